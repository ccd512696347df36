"""What a method of several branches says of some images, whatever weighs its branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bne import distances
from bne.ensemble import DomainEnsemble
from bne.prediction import Prediction

if TYPE_CHECKING:
    from torch import Tensor

    from bne.distances import Distance
    from bne.embedding import Embedding
    from bne.methods import Method


@dataclass(frozen=True, eq=False)
class View:
    """N images seen by K branches.

    Attributes:
        logits: (N, classes), the method's answer.
        weights: (N, K), of the branches in it.
        branch_logits: (N, K, classes), each branch's own answer.
        nearness: (N, K), the larger the nearer an image lies to a branch's domain.
        points: where the images lie in the space of domains, if that is what weighs them.
        known: where the K domains lie there.
        mix: what the weights combine, as in `DomainEnsemble`.
    """

    logits: Tensor
    weights: Tensor
    branch_logits: Tensor
    nearness: Tensor
    points: Embedding | None
    known: Embedding | None
    mix: str

    def branch_answers(self) -> Tensor:
        """(N, K), the class that each branch sees."""
        return self.branch_logits.argmax(2)

    def ranked_answers(self) -> Tensor:
        """(N, K), the same with the nearest branch first, for each image."""
        order = self.nearness.argsort(dim=1, descending=True, stable=True)
        return self.branch_answers().gather(1, order)

    def answers_under(self, weights: Tensor) -> Tensor:
        """(N,), the class that the branches see together under other weights, (N, K)."""
        softened = self.mix == "probabilities"
        scores = self.branch_logits.softmax(2) if softened else self.branch_logits
        return (weights.unsqueeze(2) * scores).sum(1).argmax(1)

    def other_weights(self) -> dict[str, Tensor]:
        """The weights, (N, K), that each registered distance would give."""
        if self.points is None or self.known is None:
            return {"uniform": torch.full_like(self.weights, 1 / self.weights.shape[1])}
        return {
            name: distances.inverse_weights(distances.get(name)(self.points, self.known))
            for name in distances.names()
        }


def branches(method: Method) -> tuple[str, ...]:
    """The domains of a method's branches; none if it has no branches to weigh."""
    net = method.net
    return net.domains if hasattr(method, "explain") and isinstance(net, DomainEnsemble) else ()


def view(method: Method, images: Tensor) -> View:
    """What a method with branches says of images, (N, 3, H, W), in evaluation mode."""
    net = method.net
    assert isinstance(net, DomainEnsemble)
    out = method.explain(images)  # type: ignore[operator]  # torch types attributes as modules
    branch_logits = out.branch_logits
    if net.nearest is not None or net.mix == "statistics":
        branch_logits = net._branches(images, None, None)  # the answer needed some of them at most
    points = known = None
    nearness = out.weights
    if isinstance(out, Prediction):
        points = out.embedding
        known = net.domain_embeddings().select(points.layers)
        nearness = -ranking_distance(net)(points, known)
    return View(out.logits, out.weights, branch_logits, nearness, points, known, net.mix)


def ranking_distance(net: DomainEnsemble) -> Distance:
    """The one that tells the nearest domain: the network's own, unless that is always the same."""
    return distances.wasserstein if net.distance is distances.uniform else net.distance
