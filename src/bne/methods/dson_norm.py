"""The layer of DSON: a learned mixture of instance and batch statistics in every domain.

After Seo et al., "Learning to Optimize Domain Specific Normalization for Domain Generalization".
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from bne.moments import Moments, image_moments, samples_of, values_per_channel
from bne.norm import DomainBatchNorm

Affine = Literal["domain", "shared"]


class OptimisedNorm(DomainBatchNorm):
    """A domain-aware layer that mixes each image's own statistics with its domain's.

    Mean and variance are w · domain + (1 - w) · image, where w = sigmoid(`mixture`) is learned for
    every domain. Where images have a single value a channel, and so no variance, w is 1.

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

    def by_domain(
        self, x: Tensor, domains: Tensor, members: Tensor | None = None, *, track: bool = True
    ) -> Tensor:
        """Normalises by the mixture of the image's own and its domain's statistics.

        The arguments, and which of the domain's statistics are taken, are those of
        `DomainBatchNorm.by_domain`.
        """
        samples = samples_of(x, domains.shape[0])
        own = image_moments(samples)
        statistics = self.population
        if members is not None and self.training:
            statistics = self._batch_statistics(samples, domains, members, track)
        if statistics is not None:
            share = (
                self.mixture.sigmoid()[domains].unsqueeze(1)
                if values_per_channel(samples) > 1
                else 1.0
            )
            pairs = zip(own, statistics, strict=True)
            own = Moments(*(image + share * (known[domains] - image) for image, known in pairs))
        return self._rescale(self._normalise(samples, own), domains)

    def by_instance(self, x: Tensor, images: int) -> tuple[Tensor, Moments | None]:
        """Normalises every image by its own statistics, and by the mean γ and β of all domains."""
        x, moments = super().by_instance(x, images)
        return self._rescale(x, None), moments

    def _rescale(self, x: Tensor, domains: Tensor | None) -> Tensor:
        """Applies γ and β, those of each image's domain (N,) or their mean."""
        if self.scales is None or self.shifts is None:
            return x
        images = 1 if domains is None else domains.shape[0]
        samples = samples_of(x, images)
        shape = (images, 1, self.num_features, *(1,) * (samples.ndim - 3))
        scale, shift = (
            values.mean(0) if domains is None else values.expand(self.num_domains, -1)[domains]
            for values in (self.scales, self.shifts)
        )
        scaled = torch.addcmul(shift.view(shape), samples, scale.view(shape))
        return scaled.to(x.dtype).flatten(0, 1)
