"""The paper's future directions: unlabeled target images in training, several at once in use."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bne.core.distances import Distance
from bne.core.embedding import Embedding
from bne.core.moments import Moments, combine
from bne.core.options import check_least
from bne.methods.bne import BNE
from bne.methods.method import register


@register(
    "bne-adapt",
    "Our formulation could also be easily extended to the domain adaptation setting by injecting "
    "unlabelled samples from the target domain during training",
)
class BNEAdaptation(BNE):
    """BNE with the target as one more domain: its statistics, its branch and its weight.

    Target images come last in every batch, with the label -100: they shape the target's statistics
    but have no part in the cross-entropy of the classes. The arguments are those of `BNE`, with the
    target as the last domain.
    """

    uses_target: ClassVar[bool] = True


@register(
    "bne-pooled",
    "If few target samples happened to be available at the same time, they could all be used to "
    "retrieve a less biased estimate of the statistics of the unseen domain",
)
class BNEPooled(BNE):
    """BNE that takes the images it is given at once for images of one unknown domain.

    Training is BNE's. In evaluation the images' statistics are pooled into one point, whose
    distances weigh the branches for all of them.

    Args:
        model: the plain network.
        domains: the source domains' names.
        group: how many images, one after another, are pooled at a time; None pools all that come
            in one call.
        **options: of `BNE`.
    """

    def __init__(
        self, model: nn.Module, domains: Sequence[str], *, group: int | None = None, **options: Any
    ) -> None:
        super().__init__(model, domains, **options)
        check_least(1, group=group)
        self._single = self.net.distance
        self._pooled = partial(_pooled_distance, distance=self._single, group=group)
        self.train(model.training)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode or evaluation mode, in which distances are those of groups."""
        super().train(mode)
        self.net.distance = self._single if mode else self._pooled
        return self


def _pooled_distance(a: Embedding, b: Embedding, distance: Distance, group: int | None) -> Tensor:
    """(N, K), where all images of a group have the distances of their common point."""
    size = group or max(1, len(a))
    points = [
        combine(Moments(mean, var), torch.full_like(mean[:, 0], 1 / max(1, len(mean))))
        for mean, var in zip(a.mean.split(size), a.var.split(size), strict=True)
    ]
    mean, var = (torch.stack(statistic) for statistic in zip(*points, strict=True))
    distances = distance(Embedding(mean, var, a.layers, a.channels), b)
    return distances[torch.arange(len(a), device=mean.device) // size]
