"""A network as an ensemble of its domain branches (paper, sections 3.3 and 3.4)."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, get_args

import torch
from torch import Tensor, nn

from bne.core import distances as distance_registry
from bne.core.distances import Distance, inverse_weights, uniform
from bne.core.embedding import Embedding, InstancePass
from bne.core.norm import DomainBatchNorm, domain_layers
from bne.core.options import (
    ONE_PASS,
    BranchStatistics,
    Domains,
    Layers,
    Lean,
    Mix,
    Output,
    check_choice,
    checked_domains,
    checked_layers,
    checked_limit,
    kept_lean,
    lean_shares,
)
from bne.core.passes import Pass, Rule, Shared
from bne.core.points import rule_of_points
from bne.core.prediction import Prediction, mix, spread
from bne.core.shortcuts import fold, pays, run_recomputed
from bne.core.surgery import Momentum, install, remove

CPU_VALUES = 2**20
"""Values of input images beyond which a CPU, its caches full, runs branches faster one by one."""


class DomainEnsemble(nn.Module):
    """A network with one branch per domain, which share everything but batch-norm statistics.

    `bne.convert` makes it and describes the arguments, which are attributes of the same names. In
    evaluation every image is placed among the domains by its own statistics, independently of the
    rest of its batch.

    Attributes:
        model: the network, with domain-aware batch-norm layers.
        domains: the K domains' names.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Iterable[str],
        *,
        momentum: Momentum,
        synchronised: bool | None,
        distance: str | Distance,
        layers: Layers,
        mix: Mix,
        lean: Lean,
        nearest: int | None,
        domains_per_step: int | None,
        branch_statistics: BranchStatistics,
        weight_gradient: bool,
        max_images: int | None,
        max_branches: int | None,
        output: Output,
        shortcuts: bool,
    ) -> None:
        super().__init__()
        self.domains = checked_domains(domains)
        check_choice("mix", mix, get_args(Mix))
        check_choice("branch_statistics", branch_statistics, get_args(BranchStatistics))
        self.distance = distance_registry.get(distance) if isinstance(distance, str) else distance
        self.mix = mix
        self.nearest = checked_limit("nearest", nearest)
        self.domains_per_step = checked_limit("domains_per_step", domains_per_step)
        self.branch_statistics = branch_statistics
        self.weight_gradient = weight_gradient
        self.max_images = checked_limit("max_images", max_images)
        self.max_branches = checked_limit("max_branches", max_branches)
        self.output = output
        self.model = install(model, len(self.domains), momentum, synchronised, shortcuts=shortcuts)
        self._passes = next(domain_layers(self.model)).passes
        self.layers = layers
        self.lean = lean
        self.training = model.training
        self.register_load_state_dict_pre_hook(_accept_plain_state)  # type: ignore[no-untyped-call]

    def forward(
        self,
        images: Tensor,
        domains: Domains | None = None,
        *,
        own_branch: bool = False,
        details: bool = False,
        max_lean: float | Mapping[str, Tensor] | None = None,
        elsewhere: Tensor | None = None,
        beyond: Tensor | None = None,
    ) -> Any:
        """The mixture of all branches or, with `own_branch`, each image under one domain alone.

        - Training, `net(images, domains)`: the mixture of Algorithm 1 (distance training). Branch k
          normalizes by the statistics of domain k's images in this batch, which update the
          running ones.
        - Training, `net(images, domains, own_branch=True)`: the warm-up, each image under its own
          domain.
        - Training, `net(images, domains, max_lean=0.5)`: each image twice in one pass, under its
          own domain and, leaning, under another (the method "points"). That is drawn from the other
          domains in the batch, and the share to lean by from 0 to `max_lean`. The statistics of
          both are those of the first copies.
        - Evaluation, `net(images)`: the mixture, for images of any domain.
        - Evaluation, `net(images, domains, own_branch=True)`: each image under the domain named.

        Args:
            images: (N, ...), as the network takes them.
            domains: (N,), each image's domain; needless if there is one domain alone.
            own_branch: whether each image is run under its domain alone.
            details: whether to return a `Prediction`: weights, distances and branches too.
            max_lean: the largest share to lean by in training on points, 0 to 1. Or, by layer name,
                the share itself: (), for all second copies, with a gradient if it has one; layers
                that are not named do not lean.
            elsewhere: (N, K), the domains' weights where images are trained on points: the second
                copy of each is run under this mixture of their statistics, not under a domain that
                is drawn. Weights add up to 1.
            beyond: (N,), how far past that domain or mixture the second copy of each is run, at
                least 0: on the line from the centre of the batch's domains, in mean and deviation,
                and in its distance from there.

        Returns:
            The logits, (N, classes), or a `Prediction`. With `own_branch`, the network's output;
            with `max_lean` that of all images under their own domains, then of all again, (2 N, …).
        """
        if domains is None and len(self.domains) == 1 and (self.training or own_branch):
            domains = torch.zeros(images.shape[0], dtype=torch.long, device=images.device)
        if max_lean is not None:
            if own_branch or details:
                raise ValueError("max_lean trains on points: leave own_branch and details out")
            if domains is None or not self.training:
                raise ValueError("max_lean is for training, where every image needs its domain")
            own, layers = self.indices(domains, images), domain_layers(self.model)
            names = (layer.name for layer in layers)
            rule = rule_of_points(own, len(self.domains), names, max_lean, elsewhere, beyond)
            return self.run(images, rule, copies=2)
        if elsewhere is not None or beyond is not None:
            raise ValueError("elsewhere and beyond are for training on points: pass max_lean too")
        if own_branch:
            if details:
                raise ValueError("one branch has no details: leave own_branch or details out")
            if domains is None:
                raise ValueError("own_branch=True needs every image's domain: pass domains=")
            return self._own_branch(images, self.indices(domains, images))
        if self.training:
            if domains is None:
                raise ValueError(
                    "in training every image needs its domain: pass domains=, or call eval() first"
                )
            ids = self.indices(domains, images)
            return self._mixture(images, ids) if details else self._logits(images, ids)
        if domains is not None:
            raise ValueError(
                "in evaluation images are placed by their own statistics: leave domains out, or "
                "write own_branch=True to run each image under the domain named for it"
            )
        parts = self._chunks(images)
        if details:
            return Prediction.cat([self._mixture(part, None) for part in parts])
        return _joined([self._logits(part, None) for part in parts])

    def branches(self, images: Tensor) -> Tensor:
        """Each branch's own answer in evaluation, (N, K, classes), whatever `nearest` says.

        Args:
            images: (N, ...), as the network takes them.
        """
        found = []
        for part in self._chunks(images):
            with Shared(self._passes, part):
                found.append(self._branches(part, None, None))
        return torch.cat(found)

    def run(self, images: Tensor, rule: Rule, copies: int = 1) -> Any:
        """Runs images through layers that normalize by your own rule.

        Args:
            images: (N, ...), as the network takes them.
            rule: the function called at every `DomainBatchNorm`, with the layer and its input; it
                returns the output.
            copies: the number of times every image runs; the input is all images, then all again.

        Returns:
            What the network returns for (copies * N) images.
        """
        alone = copies > 1 and self._passes.shared is None
        with Shared(self._passes, images) if alone else nullcontext(), Pass(self._passes, rule):
            return self._taken(self.model(self._passes.copies(images, copies)))

    def embed(self, images: Tensor) -> Embedding:
        """Where images lie in the space of domains: their statistics under instance normalization.

        Args:
            images: (N, ...), as the network takes them.
        """
        return Embedding.cat([self._embed(part) for part in self._chunks(images)])

    def domain_embeddings(self) -> Embedding:
        """Where the K domains lie: their running statistics, as constants."""
        population = {
            layer.name: layer.population
            for layer in domain_layers(self.model)
            if layer.population is not None
        }
        names = population if self.layers is None else self.layers
        return Embedding.stack({name: population[name] for name in names})

    def indices(self, domains: Domains, images: Tensor) -> Tensor:
        """The domains of images, (N,), as indices on the images' device.

        Args:
            domains: one for each image, as indices or names.
            images: (N, ...).

        Raises:
            ValueError: They are not as many as the images, or unknown.
        """
        if not isinstance(domains, Tensor):
            if isinstance(domains, str) or not isinstance(domains, Iterable):
                raise TypeError(f"domains must be one for every image, in a list, not {domains!r}")
            ids = [self._index(item) if isinstance(item, str) else item for item in domains]
            if wrong := [item for item in ids if not hasattr(item, "__index__")]:
                raise ValueError(f"domains must be whole numbers or names, not {wrong[0]!r}")
            domains = torch.tensor(ids) if ids else torch.empty(0, dtype=torch.long)
        if domains.shape != images.shape[:1]:
            raise ValueError(
                f"{images.shape[0]} images need as many domains, not {tuple(domains.shape)}"
            )
        if domains.is_floating_point() or domains.dtype == torch.bool:
            raise ValueError(f"domains must be whole numbers or names, not {domains.dtype}")
        # A look at a GPU's values would stall it.
        looking = domains.device.type == "cpu" and not torch.compiler.is_compiling()
        if looking and not ((domains >= 0) & (domains < len(self.domains))).all():
            raise ValueError(f"domains must lie in 0 … {len(self.domains) - 1}")
        return domains.to(images.device, torch.long)

    @torch.no_grad()
    def set_domains(self, domains: Iterable[str], central: int | None = None) -> None:
        """Changes which domains have a branch, in place; statistics of those that stay are kept.

        A new domain starts at the centre; collect its statistics before you use it.

        Args:
            domains: names, in the new order.
            central: how many of them, the first ones, make up the centre; by default all.

        Raises:
            ValueError: There is no name, or the layers learn something for each domain, like
                DSON's.
        """
        names = checked_domains(domains)
        layers = list(domain_layers(self.model))
        if any(type(layer) is not DomainBatchNorm for layer in layers):
            raise ValueError("the layers learn more than statistics for each domain: train anew")
        rows = [self.domains.index(name) if name in self.domains else None for name in names]
        for layer in layers:
            layer.set_domains(rows, central or len(names))
        self.domains = names

    @property
    def layers(self) -> tuple[str, ...] | None:
        """The layers whose statistics are compared, by name; None for all that can be.

        May be set at any time, also to the number of first layers. The pass that measures images in
        evaluation ends where it has met the last of them: in the first call it learns where that
        is. In several processes it always runs to the end, and a compiler leaves out by itself what
        is not used.
        """
        return self._instance_pass.layers

    @layers.setter
    def layers(self, layers: Layers) -> None:
        known = [layer.name for layer in domain_layers(self.model) if layer.population]
        self._instance_pass = InstancePass(checked_layers(layers, known))

    @property
    def lean(self) -> Lean:
        """How far images lean on their own statistics in evaluation, 0 to 1, or that by layer name.

        To lean by a share is to be normalized that far on the way from the domain's statistics to
        the image's own at that layer: 0 is the paper's branch, 1 instance normalization. It acts in
        every branch, in mixed statistics and in the centre, but never on embeddings, and so on no
        distance and no weight. It may be set at any time, and is no part of the state dict. Shares
        by layer name are set all at once: a dict that was given or got is a copy. A CUDA graph that
        was captured at 0 has no leaning in it: capture it again.
        """
        return kept_lean(self._lean)

    @lean.setter
    def lean(self, lean: Lean) -> None:
        layers = {layer.name: layer for layer in domain_layers(self.model)}
        for name, share in lean_shares(lean, layers).items():
            layers[name].lean(share)
        self._lean = kept_lean(lean)

    @property
    def leans(self) -> bool:
        """Whether images lean on their own statistics in any layer."""
        return any(layer.leans for layer in domain_layers(self.model))

    @property
    def placing(self) -> bool:
        """Whether this thread's current pass is the instance pass, which places images."""
        return self._passes.placing

    def to_plain(self, domain: str | None = None) -> nn.Module:
        """An ordinary network without the mixture, as an independent copy of the original class.

        With one domain's statistics it suits that domain, not new ones. Before any training
        `to_plain()` gives the original back, to the last bit.

        Args:
            domain: the domain whose statistics it has; None averages the means and second moments
                of all domains, or of those that `set_domains` has made central.

        Raises:
            ValueError: No domain has that name, or the layers are no plain batch norm, like DSON's
                or those of a network that leans.
        """
        if self.leans:
            raise ValueError("no plain network leans on its images: set lean to 0 first")
        index = None if domain is None else self._index(domain)
        return remove(copy.deepcopy(self).model, index)

    def _own_branch(self, images: Tensor, ids: Tensor) -> Any:
        if self.training:
            return self.run(images, _under(ids, members=torch.ones_like(ids, dtype=torch.bool)))
        parts = zip(self._chunks(images), self._chunks(ids), strict=True)
        return _joined([self.run(part, _under(own, members=None)) for part, own in parts])

    def _logits(self, images: Tensor, domains: Tensor | None) -> Tensor:
        """The mixture alone; weights that are the same for every image need no instance pass."""
        count = len(self.domains)
        branches = self.training or self.mix not in ONE_PASS
        some = branches and self._run_of_each() < count
        placed = self.training or self.mix != "centre"
        if placed and count > 1 and (self.distance is not uniform or some):
            return self._mixture(images, domains).logits
        with Shared(self._passes, images):
            members = self._members(images, domains)
            exact = torch.promote_types(images.dtype, torch.float32)
            weights = images.new_full((), 1 / count, dtype=exact).expand(images.shape[0], count)
            if not branches:
                return self._in_one_pass(images, weights)
            return mix(self._branches(images, None, members), weights, self.mix)

    def _members(self, images: Tensor, domains: Tensor | None) -> Tensor | None:
        """(N,), the domains if their images define the branches' statistics, otherwise None."""
        if domains is None or self.branch_statistics == "batch":
            return domains
        with torch.no_grad():
            self._own_branch(images, domains)  # Algorithm 1's first pass: update the statistics
        return None

    def _in_one_pass(self, images: Tensor, weights: Tensor) -> Tensor:
        """The network at the domains' centre, or between them by the images' weights, (N, K)."""
        if self.mix == "centre":
            return _tensor(self.run(images, lambda layer, x: layer.by_centre(x, images.shape[0])))
        return _tensor(self.run(images, lambda layer, x: layer.by_mixture(x, weights)))

    def _mixture(self, images: Tensor, domains: Tensor | None) -> Prediction:
        with Shared(self._passes, images):
            members = self._members(images, domains)
            shaping = torch.is_grad_enabled() and (self.weight_gradient or not self.training)
            with torch.set_grad_enabled(shaping):
                embedding = self._embed(images)
            if self.mix in ONE_PASS and not self.training:
                weights, distances = self._weigh(embedding)
                if self.mix == "centre":
                    central = next(domain_layers(self.model)).central
                    even = torch.full_like(weights[:, :central], 1 / central)
                    weights = nn.functional.pad(even, (0, len(self.domains) - central))
                logits = self._in_one_pass(images, weights)
                unknown = logits.new_full((), torch.nan)
                shape = images.shape[0], len(self.domains), *logits.shape[1:]
                branch_logits = unknown.expand(shape)
                return Prediction(
                    logits, weights, distances, branch_logits, embedding, self.domains
                )
            among = self._among(domains)
            chosen = self._choose(embedding, domains, among)
            branch_logits = self._branches(images, chosen, members)
            with torch.set_grad_enabled(shaping):
                # Only now: the branches have updated the domains' statistics.
                weights, distances = self._weigh(embedding, chosen, among)
            own = weights if chosen is None else weights.gather(1, chosen)
            logits = mix(branch_logits, own, self.mix)
            if chosen is not None:
                branch_logits = spread(branch_logits, chosen, len(self.domains))
            return Prediction(logits, weights, distances, branch_logits, embedding, self.domains)

    def _distances(self, embedding: Embedding, among: Tensor | None) -> Tensor:
        """From images to domains, (N, K); infinite to those that are not `among` some, (m,)."""
        known = self.domain_embeddings().select(embedding.layers)
        if among is None:
            return self.distance(embedding, known)
        some = Embedding(known.mean[among], known.var[among], known.layers, known.channels)
        near = self.distance(embedding, some)
        return near.new_full((len(near), len(known)), torch.inf).index_copy(1, among, near)

    def _weigh(
        self, embedding: Embedding, chosen: Tensor | None = None, among: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The weights of the domains and their distances, (N, K); 0 for branches not chosen."""
        distances = self._distances(embedding, among)
        if chosen is None:
            return inverse_weights(distances), distances
        weights = inverse_weights(distances.gather(1, chosen))
        return torch.zeros_like(distances).scatter(1, chosen, weights), distances

    def _run_of_each(self) -> int:
        """The number of branches that each image is run under."""
        limits = [self.nearest, self.domains_per_step if self.training else None]
        return min(limit or len(self.domains) for limit in (*limits, len(self.domains)))

    def _among(self, own: Tensor | None) -> Tensor | None:
        """(m,), the domains of a training batch, if it is known how many there are; or None."""
        number = self.domains_per_step
        if own is None or number is None or number >= len(self.domains):
            return None
        present = (own.unsqueeze(1) == torch.arange(len(self.domains), device=own.device)).any(0)
        if own.is_cpu and not torch.compiler.is_compiling() and present.sum() > number:
            raise ValueError(
                f"the batch has images of {int(present.sum())} domains, but domains_per_step is "
                f"{number}"
            )
        return present.to(torch.uint8).topk(number).indices

    def _choose(
        self, embedding: Embedding, own: Tensor | None, among: Tensor | None
    ) -> Tensor | None:
        """The domains whose branches each image is run under, (N, m), or None for all."""
        number = self._run_of_each()
        if number == len(self.domains):
            return None
        with torch.no_grad():  # not around nothing: `torch.export.save` refuses that
            distances = self._distances(embedding, among)
            if own is not None:
                distances = distances.scatter(1, own.unsqueeze(1), -1)
            chosen = distances.topk(number, largest=False).indices
            # In training in the domains' order: if all images have the same ones, as those of the
            # batch, then copies of theirs that run side by side are in the same branch.
            return chosen if own is None else chosen.sort(1).values

    def _branches(self, images: Tensor, chosen: Tensor | None, own: Tensor | None) -> Tensor:
        """Every image under the domains chosen for it, (N, m, classes).

        Args:
            images: (N, ...).
            chosen: (N, m), the domains; None for all.
            own: (N,), each image's own domain, if its images are to define the statistics.
        """
        count = images.shape[0]
        apart = self.nearest is not None and chosen is not None and own is not None
        if apart and self.max_branches is not None:
            raise ValueError(
                "nearest and max_branches do not go together in training: a domain's images, whose "
                "statistics its branch needs, would be spread over several runs"
            )
        if chosen is None:
            chosen = torch.arange(len(self.domains), device=images.device).expand(count, -1)
        # All images under their first domain, then all under their second, and so on.
        runs = chosen.T.split(self.max_branches or self._branches_at_once(images, chosen.shape[1]))
        outputs = [
            _tensor(self._run_branches(images, domains, own)).unflatten(0, (len(domains), count))
            for domains in runs
        ]
        return torch.cat(outputs).transpose(0, 1)

    def _branches_at_once(self, images: Tensor, branches: int) -> int:
        """As many as are fastest: all of them, but on a CPU only what fits its caches."""
        if self.training or not images.is_cpu or torch.compiler.is_compiling():
            return branches
        return min(branches, max(1, CPU_VALUES // max(1, images.numel())))

    def _run_branches(self, images: Tensor, domains: Tensor, own: Tensor | None) -> Any:
        """All images under their first of `domains`, (m, N), then under their second, and so on."""
        ids = domains.flatten()
        members = None if own is None else own.repeat(len(domains)) == ids
        rule = _under(ids, members)
        if self.training and self.max_branches is not None:
            again = _under(ids, members, track=False)
            output = run_recomputed(self.model, images, len(domains), self._passes, rule, again)
            return self._taken(output)
        if not self.training and pays(images, len(domains)):
            rule = fold(domain_layers(self.model), ids)
        return self.run(images, rule, len(domains))

    def _embed(self, images: Tensor) -> Embedding:
        together = self._passes.together
        return self._place(images) if together is None else together.point(images, self._place)

    def _place(self, images: Tensor) -> Embedding:
        return self._instance_pass(self.model, self._passes, images, whole=self.training)

    def _taken(self, output: Any) -> Any:
        """The logits in what the network returned."""
        if self.output is None:
            return output
        if callable(self.output):
            return self.output(output)
        if isinstance(self.output, str) and not isinstance(output, Mapping):
            return getattr(output, self.output)
        return output[self.output]

    def _chunks(self, images: Tensor) -> tuple[Tensor, ...]:
        return images.split(self.max_images) if self.max_images and len(images) else (images,)

    def _index(self, domain: str) -> int:
        if domain not in self.domains:
            raise ValueError(f"no domain is named {domain!r}; there are {list(self.domains)}")
        return self.domains.index(domain)

    def extra_repr(self) -> str:
        """The domains, for `print(net)`."""
        return f"domains={list(self.domains)}"


def _tensor(output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"only tensors can be mixed or joined, but the network gave a {type(output).__name__}: "
            "name the logits with convert(..., output=), or turn auxiliary outputs off"
        )
    return output


def _joined(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else torch.cat([_tensor(part) for part in outputs])


def _under(ids: Tensor, members: Tensor | None, *, track: bool = True) -> Rule:
    return lambda layer, x: layer.by_domain(x, ids, members, track=track)


def _accept_plain_state(
    ensemble: DomainEnsemble, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    """Lets the state of a plain network, which has no "model." in its names, be loaded."""
    own = {f"{prefix}model.{name}" for name in ensemble.model.state_dict()}
    given = [name for name in state_dict if name.startswith(prefix)]
    if own.isdisjoint(given):
        for name in given:
            state_dict[f"{prefix}model.{name.removeprefix(prefix)}"] = state_dict.pop(name)
