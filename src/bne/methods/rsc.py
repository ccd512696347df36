"""RSC of Huang et al.: the features that decide most are muted in training."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.moments import at_least_float32
from bne.core.options import check_share
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, classifier_name
from bne.methods.method import register
from bne.methods.places import at_input

LEAST_CHANGE = 1e-4  # of the own class's probability, below which muting is left out


@register(
    "rsc",
    "propose a training heuristic that iteratively discards the dominant features activated on the "
    "training data, challenging the model to learn more robust representations",
)
class RSC(DeepAll):
    """DeepAll that mutes those features, in part of the batch, that the true class rests on most.

    They are the channels or the places of the last map with the largest gradient of the true
    class's logit. The classifier is linear in the map's mean, so that gradient is a row of its
    weights, and no backward pass is needed. If the classifier sees something else than the mean
    of a map, as in AlexNet, the muted features are its inputs.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
        muted: the share of channels, or of places, to mute.
        images: the share of the batch that is muted: the images whose own class suffers most.
        spatial: the probability of a step that mutes places instead of channels.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        muted: float = 1 / 3,
        images: float = 1 / 3,
        spatial: float = 0.5,
    ) -> None:
        super().__init__(model, domains)
        for name, share in (("muted", muted), ("images", images), ("spatial", spatial)):
            check_share(name, share)
        self.muted, self.images, self.spatial = muted, images, spatial
        self._place = _pooling(model) or classifier_name(model)

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the muted network; the domains play no part."""
        with at_input(self.net, self._place, lambda x: x * self.mask(x, labels)):
            logits = self.net(images)
        return self.cross_entropy(logits, labels)

    @torch.no_grad()
    def mask(self, x: Tensor, labels: Tensor) -> Tensor:
        """What to multiply the features by: 0 where they are muted, otherwise 1.

        Args:
            x: (N, C, H, W), the last map; (N, C) if there is none.
            labels: (N,).

        Returns:
            Shaped like `x`.
        """
        own = classifier(self.net)
        places = at_least_float32(x).reshape(*x.shape[:2], -1)
        weight = own.weight.to(places.dtype)
        gradient = weight[labels].unsqueeze(2)  # at every place, but for a constant
        kept = (~_largest(gradient, self.muted, dim=1)).to(places.dtype)
        if places.shape[2] > 1:
            spatial = torch.rand((), device=x.device) < self.spatial
            scores = (places * gradient).sum(1, keepdim=True)
            by_place = (~_largest(scores, self.muted, dim=2)).to(places.dtype)
            kept = torch.where(spatial, by_place, kept)

        def probability(features: Tensor) -> Tensor:
            logits = nn.functional.linear(features.mean(2), weight, own.bias)
            return logits.softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1)

        change = probability(places) - probability(places * kept)
        suffers = _largest(change, self.images, dim=0) & (change > LEAST_CHANGE)
        kept = torch.where(suffers.view(-1, 1, 1), kept, torch.ones_like(kept))
        return kept.expand_as(places).reshape(x.shape).to(x.dtype)


def _largest(scores: Tensor, share: float, dim: int) -> Tensor:
    """Whether each value is among that share of the largest along a dimension."""
    count = scores.shape[dim]
    rank = scores.argsort(dim, descending=True).argsort(dim)
    return rank < math.ceil(share * count - 1e-9)


def _pooling(model: nn.Module) -> str | None:
    """The name of the layer that averages the map whose channels the classifier sees, if any."""
    width, found = 0, None
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):  # after a pooling, it norms no map that is averaged
            width, found = layer.num_features, None
        elif "AdaptiveAvgPool" in type(layer).__name__:
            found = name
    return found if width == classifier(model).in_features else None
