"""The domain-aware batch-norm layer (paper, section 3.2).

One γ and β, K running means and variances. During a pass through the network every image is
normalized in one of these ways:

- `DomainBatchNorm.by_domain`: under a domain, by that domain's statistics. Running an image under
  its own domain is the warm-up; running it once under each of the K domains, as K rows of one
  batch, gives the K branches.
- `DomainBatchNorm.by_instance`: by its own statistics, which place it in the space of domains.
- `DomainBatchNorm.by_mixture`: by the domains' statistics mixed by its weights, an approximation
  to mixing the branches at the price of one. `DomainBatchNorm.by_centre` mixes them evenly.

Past the paper, an image may lean: it is then normalized at a point between the domain's statistics
and its own, see `bne.core.moments.leaned`.

Everything is built from the moments of single images: a domain batch's are those of its images,
pooled. `bne.core.kernels.layers` computes the same on a GPU in fewer passes over memory.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from bne.core.activations import fused_instance_norm, image_moments, mapped
from bne.core.kernels import kernels_for
from bne.core.moments import (
    Moments,
    at_least_float32,
    combine,
    combine_processes,
    extrapolated,
    in_processes,
    leaned,
    linear_map,
    samples_of,
    values_per_channel,
)
from bne.core.passes import Passes

FUSED = ("drop", "act")
"""What timm's fused layers do after batch norm, by the names of their parts, in order."""


class DomainBatchNorm(nn.Module):
    """A batch-norm layer with one pair of running statistics per domain.

    Inputs are (rows, C), (rows, C, L), (rows, C, H, W) or (rows, C, D, H, W), where each image may
    own several consecutive rows (windows or tokens folded into the batch). Variances are biased
    everywhere, so that instance and population statistics estimate the same thing. Statistics stay
    in float32 when the module is cast to half precision.

    A layer without running statistics has no place in the embedding; in evaluation it normalizes
    every image by its own, as a batch of one. If `track_running_stats` is set to False later, the
    running statistics stay as they are.

    Args:
        num_features: the number of channels, C.
        num_domains: the number of domains, K.
        eps: the constant added to the variance.
        momentum: the least share of a new batch in the running statistics. A domain's nth batch has
            1/n if that is more: they are the plain average of the first 1/momentum batches, and
            exponential after that. None, like 0, averages all batches.
        affine: whether there are γ (`weight`) and β (`bias`).
        track_running_stats: whether there are running statistics.

    Attributes:
        running_mean: (K, C).
        running_var: (K, C).
        num_batches_tracked: (K,).
        share: (), how far images lean on their own statistics in evaluation, 0 to 1; no part of the
            state dict. Set it by `lean`.
        leans: whether that is more than 0.
        central: how many of the domains, the first ones, make up the centre; all unless
            `set_domains` says otherwise.
        synchronised: whether batch statistics are those of all processes, as in `SyncBatchNorm`.
            If None, training in several processes is refused.
        name: the layer's name in its network, which is its name in embeddings.
        passes: the state of the current pass, shared by all layers of the network.
        original: the layer that this one replaces, without its tensors, if there is one.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    share: Tensor
    original: tuple[nn.Module] | None = None

    def __init__(
        self,
        num_features: int,
        num_domains: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.01,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.num_domains = self.central = num_domains
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.synchronised: bool | None = None
        self.name = ""
        self.passes = Passes()
        self.register_parameter(
            "weight", nn.Parameter(torch.ones(num_features)) if affine else None
        )
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        tracked = track_running_stats
        shape = (num_domains, num_features)
        self.register_buffer("running_mean", torch.zeros(shape) if tracked else None)
        self.register_buffer("running_var", torch.ones(shape) if tracked else None)
        count = torch.zeros(num_domains, dtype=torch.long)
        self.register_buffer("num_batches_tracked", count if tracked else None)
        # A tensor: a compiled network, or a graph that was captured leaning, takes a new value.
        self.register_buffer("share", torch.zeros(()), persistent=False)
        self.leans = False

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes as the current pass says, then applies the layer's own drop and activation."""
        if self.passes.rule is None:
            raise RuntimeError(
                f"batch-norm layer {self.name!r} does not know the domain of its input: run the "
                "network through its DomainEnsemble, not directly and not under gradient "
                "checkpointing, which runs it again when the pass is over"
            )
        x = self.passes.rule(self, x)
        for name in FUSED:
            if name in self._modules:
                x = getattr(self, name)(x)
        return x

    @property
    def population(self) -> Moments | None:
        """The K domains' running statistics, (K, C); None if the layer has none."""
        if self.running_mean is None or self.running_var is None:
            return None
        return Moments(self.running_mean, self.running_var)

    @property
    def centre(self) -> Moments | None:
        """Mean and second moment averaged over the central domains, (1, C); None without any."""
        if self.population is None:
            return None
        # Pooled as differences from the first domain, so that equal domains give back their
        # statistics to the last bit.
        first = Moments(*(statistic[:1] for statistic in self.population))
        mean, var = (s[: self.central] - f for s, f in zip(self.population, first, strict=True))
        shift = mean.mean(0, keepdim=True)
        within, between = var.mean(0), (mean - shift).square().mean(0)
        return Moments(first.mean + shift, first.var + (within + between))

    def lean(self, share: float) -> None:
        """Lets images lean on their own statistics in evaluation, by a share from 0 to 1."""
        self.share.fill_(share)
        self.leans = share > 0

    def set_domains(self, rows: Sequence[int | None], central: int) -> None:
        """Changes the number and the order of the domains; see `DomainEnsemble.set_domains`.

        Args:
            rows: for each new domain its present number; None starts a domain at the centre.
            central: how many of the new domains, the first ones, make up the centre.
        """
        centre = self.centre
        if centre is not None and self.num_batches_tracked is not None:
            start = Moments(centre.mean[0], centre.var[0])
            fresh = {"running_mean": start.mean, "running_var": start.var}
            fresh["num_batches_tracked"] = torch.zeros_like(self.num_batches_tracked[0])
            for name, new in fresh.items():
                old = getattr(self, name)
                setattr(self, name, torch.stack([new if r is None else old[r] for r in rows]))
        self.num_domains, self.central = len(rows), central

    def by_domain(
        self,
        x: Tensor,
        domains: Tensor,
        members: Tensor | None = None,
        *,
        shares: Tensor | None = None,
        weights: Tensor | None = None,
        beyond: Tensor | None = None,
        track: bool = True,
    ) -> Tensor:
        """Normalizes every image by the statistics of the domain it is run under.

        In training these are the batch statistics of the domain's members, which also update the
        running ones. In evaluation, or if no members are named, they are the running ones. A domain
        whose members have fewer than two values per channel has no batch variance: its running
        statistics are used and kept, or mean 0 and variance 1 if it has none. They are also kept,
        and the batch is not counted, if its statistics are infinite or NaN in any channel.

        Args:
            x: (N * rows, C, *spatial).
            domains: (N,), the domain each image is run under.
            members: (N,) bool, whether the image belongs to that domain.
            shares: (N,), how far each image leans on its own statistics in training, a constant or
                with a gradient; None for 0. In evaluation that is the layer's own `share`.
            weights: (N, K), the domains' weights where in training each image is run under the
                domains' mixture instead; see `by_mixture`.
            beyond: (N,), how far past that mixture, on the line from the centre of the domains that
                have members; see `bne.core.moments.extrapolated`. None for 0.
            track: whether batch statistics update the running ones; False when a pass is repeated.

        Returns:
            The normalized input, of the shape and dtype of `x`.
        """
        samples = samples_of(x, domains.shape[0])
        population = self.population
        if members is not None and self.training:
            if values_per_channel(samples) == 1:  # an image alone has no deviation to lean on
                shares = None
            pools = self._pools_processes()
            if not pools and weights is None and (kernels := kernels_for(samples)):
                if shares is None:
                    return self._by_batch_kernel(kernels, x, domains, members, track)
                if population is not None:
                    gamma, beta = (
                        None if v is None else v.unsqueeze(0) for v in (self.weight, self.bias)
                    )
                    return self._by_blend_kernel(
                        kernels, x, shares, (gamma, beta), domains, members, track, leaning=True
                    )
            own = image_moments(samples)
            statistics = self._batch_statistics(samples, own, domains, members, track)
            if weights is not None:
                known = combine(statistics, weights.to(statistics.mean.dtype))
                if beyond is not None:
                    centre = self._centre_of_members(statistics, domains, members)
                    known = extrapolated(centre, known, beyond.unsqueeze(1), self.eps)
            elif shares is None:
                return self._normalise(samples, statistics, domains)
            else:
                known = Moments(*(statistic[domains] for statistic in statistics))
            if shares is None:
                return self._normalise(samples, known)
            return self._normalise(samples, leaned(known, own, shares.unsqueeze(1), self.eps))
        if population is None:
            return self._normalise(samples, self._moments_alone(samples))
        return self._by_population(samples, population, domains)

    def by_instance(self, x: Tensor, images: int) -> tuple[Tensor, Moments | None]:
        """Normalizes every image by its own statistics.

        An image with a single value per channel has no variance: it is normalized by the mean of
        the central domains' statistics, and the layer has no place in the embedding.

        Args:
            x: (N * rows, C, *spatial).
            images: the number of images, N.

        Returns:
            The normalized input, and the images' moments, (N, C), or None if the domains have none
            to compare with.
        """
        samples = samples_of(x, images)
        population = self.population
        if values_per_channel(samples) > 1:
            if kernels := kernels_for(samples):
                x, *own = kernels.by_instance(x, (self.weight, self.bias), self.eps)
                moments = Moments(*own)
            elif fused := fused_instance_norm(samples, self.weight, self.bias, self.eps):
                x, moments = fused
            else:
                moments = image_moments(samples)
                x = self._normalise(samples, moments)
            return x, None if population is None else moments
        if population is None:
            return self._normalise(samples, self._moments_alone(samples)), None
        middle = (statistic[: self.central].mean(0).expand(images, -1) for statistic in population)
        return self._normalise(samples, Moments(*middle)), None

    def by_mixture(self, x: Tensor, weights: Tensor) -> Tensor:
        """Normalizes every image by a mixture of the domains' running statistics.

        Mean and second moment are mixed: a mixture of domains has the variance within them and
        that between their means.

        Args:
            x: (N * rows, C, *spatial).
            weights: (N, K), the domains' weights in each image's mixture; they add up to 1.

        Returns:
            The normalized input, of the shape and dtype of `x`.
        """
        samples = samples_of(x, weights.shape[0])
        population = self.population
        if population is None:
            return self._normalise(samples, self._moments_alone(samples))
        weights = weights.to(population.mean.dtype)
        centre = population.mean.mean(0)
        apart = population.mean - centre  # measured from there, the squares keep their digits
        device = "cpu" if x.is_meta else x.device.type  # a meta tensor knows no autocast
        with torch.autocast(device, enabled=False):  # half precision would lose them
            shift = weights @ apart
            square = weights @ torch.addcmul(population.var, apart, apart)
        var = (square - shift.square()).clamp_min(0)
        return self._by_population(samples, Moments(centre + shift, var))

    def by_centre(self, x: Tensor, images: int) -> Tensor:
        """Normalizes every image by the domains' centre, see `centre`.

        Args:
            x: (N * rows, C, *spatial).
            images: the number of images, N.

        Returns:
            The normalized input, of the shape and dtype of `x`.
        """
        samples = samples_of(x, images)
        centre = self.centre
        if centre is None:
            return self._normalise(samples, self._moments_alone(samples))
        everyone = torch.zeros(images, dtype=torch.long, device=x.device)
        return self._by_population(samples, centre, everyone)

    def by_map(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Computes x * scale + shift, to which normalizing by known statistics reduces.

        Args:
            x: (N * rows, C, *spatial).
            scale: (N, C).
            shift: (N, C).

        Returns:
            The normalized input, of the shape and dtype of `x`.
        """
        return mapped(samples_of(x, scale.shape[0]), scale, shift)

    def _by_population(
        self, samples: Tensor, population: Moments, domains: Tensor | None = None
    ) -> Tensor:
        """Normalizes by given statistics and, in evaluation, as far as the layer leans.

        The arguments are those of `_normalise`.
        """
        if self.training or not self.leans or values_per_channel(samples) == 1:
            return self._normalise(samples, population, domains)
        if (together := self.passes.together) is not None:
            own = together.moments(self.name, samples, domains, len(population.mean))
            if domains is not None:
                population = Moments(*(statistic[domains] for statistic in population))
            return self._normalise(samples, leaned(population, own, self.share, self.eps))
        if not torch.is_grad_enabled() and (kernels := kernels_for(samples)):
            x, affine = samples.squeeze(1), (self.weight, self.bias)
            normalised: Tensor = kernels.by_lean(
                x, affine, domains, population, self.share, self.eps
            )
            return normalised
        if domains is not None:
            population = Moments(*(statistic[domains] for statistic in population))
        if fused := fused_instance_norm(samples, None, None, self.eps):
            x, own = fused  # which measures the point from the image's own moments
            point = leaned(population, own, self.share, self.eps)
            square = own.var + self.eps
            mean = (point.mean - own.mean) * square.rsqrt()
            var = (point.var + self.eps) / square - self.eps
            return self._normalise(x.unsqueeze(1), Moments(mean, var))
        own = image_moments(samples)
        return self._normalise(samples, leaned(population, own, self.share, self.eps))

    def _moments_alone(self, samples: Tensor) -> Moments:
        """Each image's own moments, (N, C), for a layer without running statistics."""
        if values_per_channel(samples) == 1:
            raise ValueError(
                f"batch-norm layer {self.name!r} keeps no running statistics and sees one value "
                "per channel: a single image cannot be normalized there"
            )
        return image_moments(samples)

    def _pools_processes(self) -> bool:
        """Whether batch statistics are those of all processes, if there are any others."""
        if not in_processes():
            return False
        if self.synchronised is None and distributed.get_world_size() > 1:
            raise RuntimeError(
                f"batch-norm layer {self.name!r} does not know whether its statistics are those of "
                "all processes: pass synchronised=True to bne.convert, or False for each process's "
                "own (nn.SyncBatchNorm.convert_sync_batchnorm counts before bne.convert alone)"
            )
        return bool(self.synchronised)

    def _by_batch_kernel(
        self, kernels: Any, x: Tensor, domains: Tensor, members: Tensor, track: bool
    ) -> Tensor:
        normalised: Tensor = kernels.by_batch(
            x,
            (self.weight, self.bias),
            domains,
            members,
            self.population,
            self.num_domains,
            self.num_batches_tracked if track and self.track_running_stats else None,
            float(self.momentum or 0),
            self.eps,
        )
        return normalised

    def _by_blend_kernel(
        self,
        kernels: Any,
        x: Tensor,
        shares: Tensor,
        affine: tuple[Tensor | None, Tensor | None],
        domains: Tensor,
        members: Tensor | None,
        track: bool,
        *,
        leaning: bool,
    ) -> Tensor:
        """See `bne.core.kernels.blending.by_blend`."""
        from bne.core.kernels.blending import by_blend

        assert self.population is not None
        y, batch, count = by_blend(
            x, shares, affine, domains, members, self.population, self.eps, leaning=leaning
        )
        if members is not None and track and self.track_running_stats:
            momentum = float(self.momentum or 0)
            kernels.follow(self.population, batch, count, self.num_batches_tracked, momentum)
        return y

    def _batch_statistics(
        self, samples: Tensor, own: Moments, domains: Tensor, members: Tensor, track: bool
    ) -> Moments:
        """The K domains' statistics in this batch, (K, C), which may update the running ones.

        They are made from the images' `own`, (N, C); the rest is as in `by_domain`.
        """
        each, group = torch.arange(self.num_domains, device=domains.device), domains
        if domains.is_cpu and not torch.compiler.is_compiling():  # a look costs nothing there
            each, group = domains.unique(return_inverse=True)
        belongs = ((domains == each.unsqueeze(1)) & members).to(own.mean.dtype)  # (K, N)
        count = belongs.sum(1)
        batch = combine(own, belongs / count.clamp_min(1).unsqueeze(1), group)
        count = count * values_per_channel(samples)
        if len(each) < self.num_domains:
            batch = Moments(*(_placed(found, each, self.num_domains) for found in batch))
            count = _placed(count, each, self.num_domains)
        if self._pools_processes():
            batch, count = combine_processes(batch, count)
        population = self.population
        present = count > 1
        if population is not None and track and self.track_running_stats:
            self._track(batch, present)
        # Or as a fresh layer's: nothing is known of a domain without a variance.
        mean, var = population or (0, 1)
        known = present.unsqueeze(1)
        return Moments(torch.where(known, batch.mean, mean), torch.where(known, batch.var, var))

    def _centre_of_members(self, statistics: Moments, domains: Tensor, members: Tensor) -> Moments:
        """Mean and second moment averaged over the domains that have members, (C,)."""
        each = torch.arange(self.num_domains, device=domains.device).unsqueeze(1)
        present = ((domains == each) & members).any(1).to(statistics.mean.dtype)
        return combine(statistics, present / present.sum())

    @torch.no_grad()
    def _track(self, batch: Moments, present: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        running = Moments(self.running_mean, self.running_var)
        batch = Moments(*(new.to(old.dtype) for new, old in zip(batch, running, strict=True)))
        counts = present & (batch.mean.isfinite() & batch.var.isfinite()).all(1)
        self.num_batches_tracked.add_(counts)
        seen = self.num_batches_tracked.clamp_min(1).to(running.mean.dtype).unsqueeze(1)
        step = seen.reciprocal().clamp_min(self.momentum or 0.0)
        for old, new in zip(running, batch, strict=True):
            old.lerp_(torch.where(counts.unsqueeze(1), new, old), step)

    def _normalise(
        self, samples: Tensor, moments: Moments, domains: Tensor | None = None
    ) -> Tensor:
        """(x - mean) / sqrt(var + eps) * γ + β.

        Args:
            samples: (N, rows, C, *spatial).
            moments: the moments of every image, (N, C), or of every domain, (K, C).
            domains: (N,), each image's domain, if the moments are the domains'.
        """
        constant = not (moments.mean.requires_grad or moments.var.requires_grad)
        if constant and (kernels := kernels_for(samples)):
            if domains is None:
                domains = torch.arange(samples.shape[0], device=samples.device)
            affine = self.weight, self.bias
            fused: Tensor = kernels.by_population(
                samples.squeeze(1), affine, domains, moments, self.eps
            )
            return fused
        if not torch.is_grad_enabled() and self._is_plain(samples.dtype, moments):
            mean, var = moments.mean[0], moments.var[0]
            x = samples.flatten(0, 1)
            return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)
        if domains is not None:
            moments = Moments(moments.mean[domains], moments.var[domains])
        return mapped(samples, *linear_map(moments, self.weight, self.bias, self.eps))

    def _is_plain(self, dtype: torch.dtype, moments: Moments) -> bool:
        """Whether torch's batch norm does it at once: all rows alike, and dtypes that it takes."""
        exact = moments.mean.dtype
        alike = self.weight is None or self.weight.dtype == exact
        suits = dtype == exact or (dtype.itemsize < 4 and exact == torch.float32)
        return moments.mean.shape[0] == 1 and alike and suits

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "DomainBatchNorm":
        before, share = self.population, self.share
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        after = self.population
        if before is not None and after is not None and after.mean.dtype.itemsize < 4:
            # A step of 1 % is lost in half precision, so the statistics only follow the device.
            self.running_mean = before.mean.to(after.mean.device, torch.float32)
            self.running_var = before.var.to(after.var.device, torch.float32)
        if self.share.dtype != torch.float32:  # nor does a share follow, which would be rounded
            self.share = share.to(self.share.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Also takes a plain layer's state: every domain then starts from its statistics.

        Batches are counted from 0 then: none of them was the domain's own.
        """
        if self.num_batches_tracked is not None:
            mean, count = state_dict.get(prefix + "running_mean"), prefix + "num_batches_tracked"
            if isinstance(mean, Tensor) and mean.ndim == 1:
                state_dict[count] = torch.zeros_like(self.num_batches_tracked)
            state_dict.setdefault(count, self.num_batches_tracked)
        for name, own in self.named_buffers(recurse=False):
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor):
                if value.ndim == own.ndim - 1:
                    value = value.expand(self.num_domains, *value.shape).clone()
                kept = at_least_float32(value) if value.is_floating_point() else value
                state_dict[prefix + name] = kept
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """The constructor's arguments, for `print(network)`."""
        return (
            f"{self.num_features}, domains={self.num_domains}, eps={self.eps}, "
            f"momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


def domain_layers(model: nn.Module) -> Iterator[DomainBatchNorm]:
    """The domain-aware layers of a network, each once, in the network's own order."""
    return (module for module in model.modules() if isinstance(module, DomainBatchNorm))


def _placed(some: Tensor, domains: Tensor, number: int) -> Tensor:
    """Rows of some domains in their places among those of all, which are 0."""
    return some.new_zeros(number, *some.shape[1:]).index_copy(0, domains, some)
