"""The ensemble's answer, and how the answers of its branches are mixed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bne.core.embedding import Embedding


@dataclass(frozen=True, eq=False)
class Prediction:
    """The ensemble's answer for N images, and its reasons.

    Attributes:
        logits: (N, classes), the mixture; log-probabilities if probabilities are mixed.
        weights: (N, K), the weight of each domain's branch; they add up to 1.
        distances: (N, K), from each image to each domain; infinite to domains that have no images
            in a training batch of some domains alone.
        branch_logits: (N, K, classes), each branch's own answer; NaN if it was not run.
        embedding: the images' points in the space of domains.
        domains: the K domains' names.
    """

    logits: Tensor
    weights: Tensor
    distances: Tensor
    branch_logits: Tensor
    embedding: Embedding
    domains: tuple[str, ...]

    @property
    def probabilities(self) -> Tensor:
        """The mixture's probabilities, (N, classes)."""
        return self.logits.softmax(1)

    @property
    def nearest_domain(self) -> list[str]:
        """The nearest domain's name, one for each image."""
        return [self.domains[index] for index in self.distances.argmin(1).tolist()]

    @classmethod
    def cat(cls, parts: Sequence["Prediction"]) -> "Prediction":
        """The predictions for several groups of images, joined."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            torch.cat([part.logits for part in parts]),
            torch.cat([part.weights for part in parts]),
            torch.cat([part.distances for part in parts]),
            torch.cat([part.branch_logits for part in parts]),
            Embedding.cat([part.embedding for part in parts]),
            parts[0].domains,
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
