"""A network as an ensemble of its domain branches (paper, sections 3.3 and 3.4)."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bne.core import distances as distance_registry
from bne.core.distances import Distance, inverse_weights
from bne.core.embedding import Embedding
from bne.core.moments import Moments
from bne.core.norm import DomainBatchNorm
from bne.core.passes import Pass, Rule, Shared
from bne.core.shortcuts import fold, pays, run_recomputed
from bne.core.surgery import Momentum, check_copyable, domain_layers, install, remove


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the ensemble says of N images, and why.

    Attributes:
        logits: (N, classes), the mixture. Where probabilities are mixed, their logarithms.
        weights: (N, K), the weight of each domain's branch; they add up to 1.
        distances: (N, K), of each image from each domain.
        branch_logits: (N, K, classes), each branch's own answer; NaN where it was not run.
        embedding: where the images lie in the space of domains.
    """

    logits: Tensor
    weights: Tensor
    distances: Tensor
    branch_logits: Tensor
    embedding: Embedding

    @classmethod
    def cat(cls, parts: Sequence["Prediction"]) -> "Prediction":
        """The predictions for several groups of images, one after another."""
        return cls(
            torch.cat([part.logits for part in parts]),
            torch.cat([part.weights for part in parts]),
            torch.cat([part.distances for part in parts]),
            torch.cat([part.branch_logits for part in parts]),
            Embedding.cat([part.embedding for part in parts]),
        )


def mix(branch_logits: Tensor, weights: Tensor, what: str) -> Tensor:
    """Combines (N, K, classes, ...) by (N, K) into (N, classes, ...): logits or probabilities."""
    weights = weights.view(*weights.shape, *(1,) * (branch_logits.ndim - 2))
    if what != "probabilities":
        return (weights * branch_logits).sum(1)
    # Clamped, a weight of 0 has a finite logarithm and no gradient.
    logarithms = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    return (logarithms + branch_logits.log_softmax(2)).logsumexp(1)


def spread(chosen_logits: Tensor, chosen: Tensor, domains: int) -> Tensor:
    """Puts (N, m, classes, ...) in their domains' places among (N, K, classes, ...)."""
    count, _, *rest = chosen_logits.shape
    places = chosen.view(*chosen.shape, *(1,) * len(rest)).expand_as(chosen_logits)
    unknown = chosen_logits.new_full((count, domains, *rest), torch.nan)
    return unknown.scatter(1, places, chosen_logits)


Domains = Tensor | Sequence[int] | Sequence[str]
"""The domains of N images: indices or names. Indices in a GPU's memory are not checked."""

CPU_VALUES = 2**20
"""Values of input images beyond which a CPU, its caches full, runs branches faster one by one."""


class DomainEnsemble(nn.Module):
    """A network with one branch per domain, which share everything but batch-norm statistics.

    Made by `bne.convert`. In evaluation every image is placed among the domains by its own
    statistics, independently of the rest of its batch.

    Args:
        momentum: least share of a new batch in the running statistics, of which a domain's nth has
            1/n, see `DomainBatchNorm`; None averages all batches, "keep" takes over each layer's
            own.

    All other arguments become attributes:

    Attributes:
        model: the network, with domain-aware batch-norm layers.
        domains: the K domains' names.
        distance: from images to domains.
        layers: the layers whose statistics are compared; None takes all that can be.
        mix: what the weights combine: the branches' "logits" or their "probabilities", or, in
            evaluation, the domains' "statistics" at every layer, so that any number of domains
            costs two passes; training then mixes logits.
        nearest: how many branches are run for each image, the nearest; None runs all. In training
            an image's own branch, whose statistics it defines, is always among them. In evaluation
            it means nothing where "statistics" are mixed.
        branch_statistics: what branch k normalises by in distance training: the "batch" statistics
            of domain k's own images, or its "population" statistics as in Algorithm 1's print.
        weight_gradient: whether distance training shapes the space of domains through the weights.
        max_images: the most images to treat at once in evaluation; None sets no limit.
        max_branches: the most branches to run at once; None sets no limit. In training, branches
            are then run again in the backward pass instead of being kept: less memory, more time.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Iterable[str],
        *,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Iterable[str] | None = None,
        mix: Literal["logits", "probabilities", "statistics"] = "logits",
        nearest: int | None = None,
        branch_statistics: Literal["batch", "population"] = "batch",
        weight_gradient: bool = True,
        max_images: int | None = None,
        max_branches: int | None = None,
    ) -> None:
        super().__init__()
        self.domains = _checked_domains(domains)
        _check_choice("mix", mix, ("logits", "probabilities", "statistics"))
        _check_choice("branch_statistics", branch_statistics, ("batch", "population"))
        self.distance = distance_registry.get(distance) if isinstance(distance, str) else distance
        self.mix = mix
        self.nearest = _checked_limit("nearest", nearest)
        self.branch_statistics = branch_statistics
        self.weight_gradient = weight_gradient
        self.max_images = _checked_limit("max_images", max_images)
        self.max_branches = _checked_limit("max_branches", max_branches)
        self.model = install(model, len(self.domains), momentum)
        self._passes = next(domain_layers(self.model)).passes
        self.layers = self._checked_layers(layers)
        self.training = model.training
        self.register_load_state_dict_pre_hook(_accept_plain_state)  # type: ignore[no-untyped-call]

    def forward(self, images: Tensor, domains: Domains | None = None) -> Any:
        """The mixture of all branches or, where domains are named, each image's own branch.

        In training the domains are needed: every image is run under its own, by the statistics of
        its domain's images in this batch, which update the running ones (the warm-up).

        Args:
            images: (N, ...), whatever the network takes.
            domains: (N,), each image's domain.

        Returns:
            (N, classes); with domains, whatever the network returns.
        """
        if domains is None:
            return self.explain(images).logits
        ids = self._ids(domains, images)
        if self.training:
            return self._run(images, _under(ids, members=torch.ones_like(ids, dtype=torch.bool)))
        parts = zip(self._chunks(images), self._chunks(ids), strict=True)
        outputs = [self._run(part, _under(own, members=None)) for part, own in parts]
        return torch.cat([_tensor(part) for part in outputs]) if len(outputs) > 1 else outputs[0]

    def explain(self, images: Tensor, domains: Domains | None = None) -> Prediction:
        """The mixture of all branches, with the weights it was made by.

        In training this is the forward of distance training, Algorithm 1, and needs every image's
        domain; in evaluation domains play no part.

        Args:
            images: (N, ...), whatever the network takes.
            domains: (N,), each image's domain.
        """
        if self.training:
            if domains is None:
                raise ValueError(
                    "in training every image needs its domain: pass domains=, or call eval() first"
                )
            return self._mixture(images, self._ids(domains, images))
        return Prediction.cat([self._mixture(part, None) for part in self._chunks(images)])

    def embed(self, images: Tensor) -> Embedding:
        """Where images lie in the space of domains: their statistics under instance normalisation.

        Args:
            images: (N, ...), whatever the network takes.
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

    def branch(self, domain: str) -> nn.Module:
        """An independent copy of the plain network with one domain's statistics."""
        return remove(copy.deepcopy(self).model, self._index(domain))

    def _mixture(self, images: Tensor, domains: Tensor | None) -> Prediction:
        with Shared(self._passes, images):
            members = domains
            if domains is not None and self.branch_statistics == "population":
                with torch.no_grad():
                    self.forward(images, domains)  # Algorithm 1's first pass: update the statistics
                members = None
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.weight_gradient):
                embedding = self._embed(images)
            if self.mix == "statistics" and not self.training:
                weights, distances = self._weigh(embedding)
                logits = _tensor(self._run(images, lambda layer, x: layer.by_mixture(x, weights)))
                unknown = logits.new_full((), torch.nan)
                branch_logits = unknown.expand(len(images), len(self.domains), *logits.shape[1:])
                return Prediction(logits, weights, distances, branch_logits, embedding)
            chosen = self._choose(embedding, domains)
            branch_logits = self._branches(images, chosen, members)
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.weight_gradient):
                # Only now: the branches have updated the domains' statistics.
                weights, distances = self._weigh(embedding, chosen)
            own = weights if chosen is None else weights.gather(1, chosen)
            logits = mix(branch_logits, own, self.mix)
            if chosen is not None:
                branch_logits = spread(branch_logits, chosen, len(self.domains))
            return Prediction(logits, weights, distances, branch_logits, embedding)

    def _weigh(self, embedding: Embedding, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The weights of the domains and their distances, (N, K); 0 for branches not chosen."""
        known = self.domain_embeddings().select(embedding.layers)
        distances = self.distance(embedding, known)
        if chosen is None:
            return inverse_weights(distances), distances
        weights = inverse_weights(distances.gather(1, chosen))
        return torch.zeros_like(distances).scatter(1, chosen, weights), distances

    @torch.no_grad()
    def _choose(self, embedding: Embedding, own: Tensor | None) -> Tensor | None:
        """The domains whose branches each image is run under, (N, m), or None for all."""
        if self.nearest is None or self.nearest >= len(self.domains):
            return None
        distances = self.distance(embedding, self.domain_embeddings().select(embedding.layers))
        if own is not None:
            distances = distances.scatter(1, own.unsqueeze(1), -1)
        return distances.topk(self.nearest, largest=False).indices

    def _branches(self, images: Tensor, chosen: Tensor | None, own: Tensor | None) -> Tensor:
        """Every image under the domains chosen for it, (N, m, classes).

        Args:
            images: (N, ...).
            chosen: (N, m), the domains; None for all.
            own: (N,), each image's own domain, if its images are to define the statistics.
        """
        count = images.shape[0]
        if chosen is not None and own is not None and self.max_branches is not None:
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
            return run_recomputed(self.model, images, len(domains), self._passes, rule, again)
        if not self.training and pays(images, len(domains)):
            rule = fold(domain_layers(self.model), ids)
        return self._run(images, rule, len(domains))

    def _embed(self, images: Tensor) -> Embedding:
        found: dict[str, list[Moments]] = {}

        def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
            x, moments = layer.by_instance(x, images.shape[0])
            if moments is not None:
                found.setdefault(layer.name, []).append(moments)
            return x

        self._run(images, rule)
        names = [layer.name for layer in domain_layers(self.model) if layer.name in found]
        if self.layers is not None:
            if missing := [name for name in self.layers if name not in found]:
                raise ValueError(f"layers {missing} see one value a channel: leave them out")
            names = list(self.layers)
        return Embedding.stack({name: _average(found[name]) for name in names})

    def _run(self, images: Tensor, rule: Rule, copies: int = 1) -> Any:
        """Sends images, each so many times, through layers that normalise by one rule."""
        with Pass(self._passes, rule):
            return self.model(self._passes.copies(images, copies))

    def _chunks(self, images: Tensor) -> tuple[Tensor, ...]:
        return images.split(self.max_images) if self.max_images and len(images) else (images,)

    def _index(self, domain: str) -> int:
        if domain not in self.domains:
            raise ValueError(f"no domain is named {domain!r}; there are {list(self.domains)}")
        return self.domains.index(domain)

    def _ids(self, domains: Domains, images: Tensor) -> Tensor:
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

    def _checked_layers(self, layers: Iterable[str] | None) -> tuple[str, ...] | None:
        if layers is None:
            return None
        layers = (layers,) if isinstance(layers, str) else tuple(layers)
        known = [layer.name for layer in domain_layers(self.model) if layer.population]
        unknown = [name for name in layers if name not in known]
        if unknown or not layers:
            raise ValueError(f"no batch-norm layer is named {unknown}; there are {known}")
        return layers

    def extra_repr(self) -> str:
        """The domains, for `print(net)`."""
        return f"domains={list(self.domains)}"


def convert(model: nn.Module, domains: Iterable[str], **options: Any) -> DomainEnsemble:
    """Gives every domain its own batch-norm statistics.

    Every branch starts from the network's own statistics, so each answers as `model` does until
    training tells them apart. `model` itself is left as it is.

    Args:
        model: any network with batch-norm layers.
        domains: the domains' names.
        **options: of `DomainEnsemble`.
    """
    check_copyable(model)
    return DomainEnsemble(copy.deepcopy(model), domains, **options)


def revert(ensemble: DomainEnsemble) -> nn.Module:
    """An independent copy of the plain network; undoes `convert`.

    Its statistics are those of all domains pooled, which before any training are the original's to
    the last bit; its layers have counted the domains' batches alone. `DomainEnsemble.branch` gives
    those of one domain.
    """
    if not isinstance(ensemble, DomainEnsemble):
        kind = type(ensemble).__name__  # type: ignore[unreachable]
        raise TypeError(f"only a network that bne.convert gave can be reverted, not a {kind}")
    return remove(copy.deepcopy(ensemble).model, None)


def _tensor(output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"only tensors can be mixed or joined, but the network gave a {type(output).__name__}: "
            "turn its auxiliary outputs off"
        )
    return output


def _under(ids: Tensor, members: Tensor | None, *, track: bool = True) -> Rule:
    return lambda layer, x: layer.by_domain(x, ids, members, track=track)


def _average(uses: list[Moments]) -> Moments:
    """A layer used in several places has one point: its running statistics mix the places too."""
    if len(uses) == 1:
        return uses[0]
    return Moments(*(torch.stack(statistic).mean(0) for statistic in zip(*uses, strict=True)))


def _checked_domains(domains: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(domains, Iterable) or isinstance(domains, set | frozenset):
        raise TypeError(f"domains must be names in an order, as a list has, not {domains!r}")
    names = (domains,) if isinstance(domains, str) else tuple(domains)
    if not names or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"domains must be one or more different names, not {list(names)}")
    return names


def _checked_limit(option: str, value: int | None) -> int | None:
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ValueError(f"the whole number {option} must be at least 1, not {value!r}")
    return value


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{option} must be one of {list(choices)}, not {value!r}")


def _accept_plain_state(
    ensemble: DomainEnsemble, state_dict: dict[str, Any], prefix: str, *_: Any
) -> None:
    """Lets the state of a plain network, which has no "model." in its names, be loaded."""
    own = {f"{prefix}model.{name}" for name in ensemble.model.state_dict()}
    given = [name for name in state_dict if name.startswith(prefix)]
    if own.isdisjoint(given):
        for name in given:
            state_dict[f"{prefix}model.{name.removeprefix(prefix)}"] = state_dict.pop(name)
