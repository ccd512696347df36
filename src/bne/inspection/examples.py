"""Images worth a look: those whose weights are most confident, and those most mixed."""

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
        number: of the prepared image.
        name: of the image.
        domain: its own.
        truth: its class.
        answer: the class that the model sees.
        weights: of the branches, by domain.
    """

    number: int
    name: str
    domain: str
    truth: str
    answer: str
    weights: Mapping[str, float]


def remarkable(observed: Observed, images: ImageSet) -> dict[str, list[Example]]:
    """The images, of each domain equally many, by `most confident` and `most mixed`.

    Confident weights have a small entropy, mixed ones a large one. Nothing is remarkable where
    all weights are the same, or there are none.
    """
    if observed.weighing is None:
        return {}
    weights = observed.weighing.weights
    entropy = torch.special.entr(weights.double()).sum(1)
    if bool((weights - weights[0]).abs().max() < 1e-6):
        return {}
    return {
        "most confident": _lowest(observed, images, entropy),
        "most mixed": _lowest(observed, images, -entropy),
    }


def describe(observed: Observed, images: ImageSet, row: int) -> Example:
    """One of the observed images."""
    number = int(observed.numbers[row])
    weights = [] if observed.weighing is None else observed.weighing.weights[row].tolist()
    return Example(
        number,
        images.files[number].name,
        observed.domains[int(observed.domain[row])],
        observed.classes[int(observed.truth[row])],
        observed.classes[int(observed.answers[row])],
        dict(zip(observed.branches, weights, strict=True)),
    )


def _lowest(observed: Observed, images: ImageSet, key: Tensor) -> list[Example]:
    found = []
    for domain in observed.domains:
        rows = observed.rows_of(domain)
        first = rows[key[rows].argsort(stable=True)][:EACH]
        found += [describe(observed, images, row) for row in first.tolist()]
    return found
