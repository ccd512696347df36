"""Images worth a look: those whose weights are most confident, and those most mixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """

    number: int
    name: str
    domain: str
    truth: str
    answer: str
    weights: Mapping[str, float]


def remarkable(observed: Observed, images: ImageSet) -> dict[str, list[Example]]:
    """The images, equally many of each domain, by `most confident` and `most mixed`.

    Confident weights have a small entropy, mixed ones a large one. Nothing is remarkable where
    all weights are the same, or there are none.
    """
    weights = observed.weights
    if not observed.branches or bool((weights - weights[0]).abs().max() < 1e-6):
        return {}
    entropy = torch.special.entr(weights.double()).sum(1)
    return {
        kind: [
            describe(observed, images, row)
            for rows in observed.rows().values()
            for row in rows[key[rows].argsort(stable=True)][:EACH].tolist()
        ]
        for kind, key in (("most confident", entropy), ("most mixed", -entropy))
    }


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
    )
