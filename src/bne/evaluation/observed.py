"""What a trained model says of single images, kept image by image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from bne.embedding import Embedding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Weighing:
    """What K weighted branches say of N images, on the CPU.

    Attributes:
        weights: (N, K).
        nearness: (N, K), the larger the nearer an image lies to a branch's domain.
        by_branch: (N, K), the class that each branch sees.
        by_rank: (N, K), the same with the nearest branch first.
        by_weighting: (N,), the class seen under other weights, by their name.
    """

    weights: Tensor
    nearness: Tensor
    by_branch: Tensor
    by_rank: Tensor
    by_weighting: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Location:
    """Where images lie among the K domains, on the CPU.

    Attributes:
        layer_distances: (N, K) of all images, by layer: their distances in that layer alone.
        rows: (M,), the images that have a point, as rows of all N.
        points: the M points.
        known: the K domains' points.
    """

    layer_distances: Mapping[str, Tensor]
    rows: Tensor
    points: Embedding
    known: Embedding


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model says of N images of several domains, on the CPU.

    Attributes:
        domains: the names of the images' domains.
        classes: the names of the classes.
        branches: the names of the K domains that the model has a branch of; none if it has none.
        numbers: (N,), the images as numbers of the prepared ones.
        domain: (N,), an index into `domains`.
        held_out: (N,), whether an image of a domain trained on was kept from training.
        truth: (N,), the true class.
        logits: (N, classes), the model's answer.
        weighing: of the branches, if there are any.
        location: in the space of domains, if that is what weighs the branches.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    branches: tuple[str, ...]
    numbers: Tensor
    domain: Tensor
    held_out: Tensor
    truth: Tensor
    logits: Tensor
    weighing: Weighing | None
    location: Location | None

    @cached_property
    def answers(self) -> Tensor:
        """(N,), the class that the model sees."""
        return self.logits.argmax(1)

    def rows_of(self, domain: str) -> Tensor:
        """The rows of a domain's images."""
        return (self.domain == self.domains.index(domain)).nonzero().flatten()

    def placed_rows_of(self, domain: str) -> Tensor:
        """The rows of those that say where a domain lies: none that was held out."""
        rows = self.rows_of(domain)
        return rows[~self.held_out[rows]]


def joined(parts: Sequence[Observed]) -> Observed:
    """What was said of several groups of images, one after another."""
    weighings = [part.weighing for part in parts if part.weighing is not None]
    return replace(
        parts[0],
        numbers=torch.cat([part.numbers for part in parts]),
        domain=torch.cat([part.domain for part in parts]),
        held_out=torch.cat([part.held_out for part in parts]),
        truth=torch.cat([part.truth for part in parts]),
        logits=torch.cat([part.logits for part in parts]),
        weighing=_joined_weighings(weighings) if weighings else None,
        location=_joined_locations(parts),
    )


def _joined_weighings(parts: Sequence[Weighing]) -> Weighing:
    return Weighing(
        torch.cat([part.weights for part in parts]),
        torch.cat([part.nearness for part in parts]),
        torch.cat([part.by_branch for part in parts]),
        torch.cat([part.by_rank for part in parts]),
        {
            name: torch.cat([part.by_weighting[name] for part in parts])
            for name in parts[0].by_weighting
        },
    )


def _joined_locations(parts: Sequence[Observed]) -> Location | None:
    locations = []
    rows, before = [], 0
    for part in parts:
        if part.location is None:
            return None
        locations.append(part.location)
        rows.append(part.location.rows + before)
        before += len(part.numbers)
    return Location(
        {
            layer: torch.cat([one.layer_distances[layer] for one in locations])
            for layer in locations[0].layer_distances
        },
        torch.cat(rows),
        Embedding.cat([one.points for one in locations]),
        locations[0].known,
    )
