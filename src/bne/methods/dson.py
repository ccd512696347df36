"""DSON of Seo et al., and its normalisation under BNE's weights."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from bne.distances import Distance
from bne.methods.bne import BNE
from bne.methods.dson_norm import Affine, OptimisedNorm
from bne.methods.policy import When
from bne.methods.registry import register
from bne.surgery import domain_layers


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
        if self.net.mix == "statistics":
            raise ValueError("mix='statistics' does not go with DSON: mix 'logits'")
        for layer in domain_layers(self.net):
            if layer.population is not None:
                OptimisedNorm.take_over(layer, affine)
