"""DSON of Seo et al., and its normalization under BNE's weights."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from bne.core.activations import image_moments
from bne.core.distances import Distance
from bne.core.kernels import kernels_for
from bne.core.moments import Moments, linear_map, samples_of, values_per_channel
from bne.core.norm import DomainBatchNorm, domain_layers
from bne.methods.bne import BNE, When
from bne.methods.method import register

Affine = Literal["domain", "shared"]


class OptimisedNorm(DomainBatchNorm):
    """A domain-aware layer that mixes each image's own statistics with its domain's.

    Mean and variance are w · domain + (1 - w) · image, where w = sigmoid(`mixture`) is learned for
    every domain. Where images have a single value per channel, and so no variance, w is 1.

    Attributes:
        mixture: (K,); 0, where it starts, weighs both alike.
        scales: (K, C) or, if shared, (1, C): γ.
        shifts: the same of β.
    """

    mixture: nn.Parameter
    scales: nn.Parameter | None
    shifts: nn.Parameter | None

    @staticmethod
    def take_over(layer: DomainBatchNorm, affine: Affine) -> None:
        """Turns a layer into one of this class, in place.

        Args:
            layer: freshly converted.
            affine: whether each "domain" gets its own γ and β, or all go on with "shared" ones.
        """
        if affine not in get_args(Affine):
            raise ValueError(f"affine must be one of {list(get_args(Affine))}, not {affine!r}")
        # The layer stays where it is, so that no name in the network has to be found again.
        layer.__class__ = OptimisedNorm
        assert isinstance(layer, OptimisedNorm)
        sets = layer.num_domains if affine == "domain" else 1
        for name, old in (("scales", layer.weight), ("shifts", layer.bias)):
            new = None if old is None else nn.Parameter(old.detach().repeat(sets, 1))
            layer.register_parameter(name, new)
        assert layer.running_mean is not None
        layer.mixture = nn.Parameter(torch.zeros_like(layer.running_mean[:, 0]))
        layer.weight = layer.bias = None
        layer.affine = False
        layer.original = None  # no plain layer does the same

    def lean(self, share: float) -> None:
        """Refuses: the layer has learned how far its images lean."""
        if share:
            raise ValueError("DSON's layers have learned how far images lean: leave lean at 0")

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
        """Normalizes by the mixture of the image's own and its domain's statistics.

        The arguments, and which of the domain's statistics are taken, are those of
        `DomainBatchNorm.by_domain`.
        """
        if shares is not None or weights is not None or beyond is not None:
            raise ValueError("DSON's layers have learned how far images lean: leave max_lean out")
        samples = samples_of(x, domains.shape[0])
        if values_per_channel(samples) == 1:
            gamma, beta = (values[domains] for values in self._affine())
            return self.by_map(super().by_domain(x, domains, members, track=track), gamma, beta)
        if not self.training:
            members = None
        pooled = members is not None and self._pools_processes()
        if not pooled and (kernels := kernels_for(samples)):
            affine = self.scales, self.shifts
            return self._by_blend_kernel(
                kernels, x, self.mixture, affine, domains, members, track, leaning=False
            )
        own, known = image_moments(samples), self.population
        assert known is not None
        if members is not None:
            known = self._batch_statistics(samples, own, domains, members, track)
        share = self.mixture.sigmoid()[domains].unsqueeze(1)
        mean, var = (
            image + share * (domain[domains] - image)
            for image, domain in zip(own, known, strict=True)
        )
        return self._by_moments(x, Moments(mean, var), *(v[domains] for v in self._affine()))

    def by_instance(self, x: Tensor, images: int) -> tuple[Tensor, Moments | None]:
        """Normalizes every image by its own statistics, and by the mean γ and β of all domains."""
        samples = samples_of(x, images)
        gamma, beta = (values.mean(0) for values in self._affine())
        if values_per_channel(samples) == 1:
            assert self.population is not None
            middle = (statistic.mean(0).expand(images, -1) for statistic in self.population)
            return self._by_moments(x, Moments(*middle), gamma, beta), None
        if kernels := kernels_for(samples):
            x, *own = kernels.by_instance(x, (gamma, beta), self.eps)
            return x, Moments(*own)
        moments = image_moments(samples)
        return self._by_moments(x, moments, gamma, beta), moments

    def _by_moments(self, x: Tensor, moments: Moments, gamma: Tensor, beta: Tensor) -> Tensor:
        """Normalizes every image by the moments given for it, (N, C), in one linear map."""
        return self.by_map(x, *linear_map(moments, gamma, beta, self.eps))

    def _affine(self) -> tuple[Tensor, Tensor]:
        """γ and β of the domains, (K, C) each."""
        assert self.running_mean is not None
        scales = torch.ones_like(self.running_mean) if self.scales is None else self.scales
        shifts = torch.zeros_like(self.running_mean) if self.shifts is None else self.shifts
        return scales.expand(self.num_domains, -1), shifts.expand(self.num_domains, -1)


@register(
    "dson-bne",
    "combining our distance weighting scheme with other recently proposed normalization methods",
    distance="wasserstein",
)
@register(
    "dson",
    "DSON, which proposes to learn an ad-hoc mixture of instance and batch normalization statics "
    "to improve generalization",
)
class DSON(BNE):
    """One branch per source domain, each with its own learned mixture of statistics.

    Every image is trained in its own domain's branch.

    Args:
        model: the plain network.
        domains: the source domains' names.
        affine: whether each "domain" has its own γ and β, as in the original, or all have "shared"
            ones, as in BNE.
        distance: how the branches are weighted in prediction; "uniform" averages them.
        distance_training: when the loss is that of the mixture instead.
        **options: of `BNE`; statistics cannot be mixed.
    """

    can_lean: ClassVar[bool] = False
    can_mix: ClassVar[tuple[str, ...]] = ("logits", "probabilities")

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        affine: Affine = "domain",
        distance: str | Distance = "uniform",
        distance_training: When = "never",
        **options: Any,
    ) -> None:
        super().__init__(
            model, domains, distance=distance, distance_training=distance_training, **options
        )
        for layer in domain_layers(self.net):
            if layer.population is not None:
                OptimisedNorm.take_over(layer, affine)
