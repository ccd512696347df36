"""Images worth a look: lost ones, and those whose weights are most confident or most mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from bne.data.images import ImageSet
    from bne.inspection.observe import Observed

EACH = 4


@dataclass(frozen=True)
class Example:
    """One image and what the model says of it.

    Attributes:
        number: number of the prepared image.
        name: name of the image.
        domain: its domain.
        truth: its class.
        answer: the predicted class.
        weights: weights of the branches, by domain.
        confidence: probability of the predicted class.
    """

    number: int
    name: str
    domain: str
    truth: str
    answer: str
    weights: Mapping[str, float]
    confidence: float


def remarkable(observed: Observed, images: ImageSet) -> dict[str, list[Example]]:
    """The images, at most as many of each domain, by what they are; kinds without any are absent.

    `surely wrong` have the highest confidence of the wrong answers. `most confident` weights have
    a small entropy, `most mixed` ones a large one: none where all weights are the same, or there
    are none.
    """
    weights = observed.weights
    wrong = observed.answers != observed.truth
    kinds = {"surely wrong": (-observed.confidence, wrong)}
    if observed.branches and bool((weights - weights[0]).abs().max() >= 1e-6):
        entropy, every = torch.special.entr(weights.double()).sum(1), torch.ones_like(wrong)
        kinds |= {"most confident": (entropy, every), "most mixed": (-entropy, every)}
    found = {
        kind: [
            describe(observed, images, row)
            for rows in observed.rows().values()
            for row in _first(rows[among[rows]], key)
        ]
        for kind, (key, among) in kinds.items()
    }
    return {kind: own for kind, own in found.items() if own}


def _first(rows: Tensor, key: Tensor) -> list[int]:
    """The rows of the smallest keys."""
    found: list[int] = rows[key[rows].argsort(stable=True)][:EACH].tolist()
    return found


def describe(observed: Observed, images: ImageSet, row: int) -> Example:
    """One of the observed images."""
    number = int(observed.numbers[row])
    return Example(
        number,
        images.files[number].name,
        observed.domains[int(observed.domain[row])],
        observed.classes[int(observed.truth[row])],
        observed.classes[int(observed.answers[row])],
        dict(zip(observed.branches, observed.weights[row].tolist(), strict=True)),
        float(observed.confidence[row]),
    )
