"""What a trained model says of single images, kept image by image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.data.feed import Feed
from bne.data.images import DataError
from bne.embedding import Embedding
from bne.engine.scoring import batches
from bne.ensemble import DomainEnsemble
from bne.evaluation.evaluate import translated
from bne.evaluation.views import branches, ranking_distance, view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bne.data.images import ImageSet
    from bne.data.prepared import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.evaluation.views import View
    from bne.methods import Method


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


def sample(images: ImageSet, domains: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """The numbers of at most `count` images of each domain, drawn at random, by domain.

    Raises:
        DataError: A domain is unknown or has no images.
    """
    drawn = {}
    for domain in domains:
        there = np.array(images.indices_of([domain]), dtype=np.int64)
        if not len(there):
            raise DataError(f"Domain {domain!r} has no images; leave it out of --domains.")
        drawn[domain] = np.random.default_rng(seed).permutation(there)[:count].tolist()
    return drawn


@torch.inference_mode()
def observe(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    members: Mapping[str, Sequence[int]],
    *,
    points: int,
    device: torch.device | str = "cpu",
) -> Observed:
    """Shows images to a model, once, in float32.

    Args:
        method: the trained model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        classes: that it knows, in order.
        prepared: images that are labelled with those classes or some of them.
        members: the images to show, by domain.
        points: of how many images to keep the points: the first of each domain, equally many.
        device: to compute on.

    Raises:
        DataError: A class is unknown.
    """
    labels = translated(prepared.images.classes, classes)
    feed = Feed(prepared, device)
    each = max(1, points // len(members))
    parts = []
    for number, chosen in enumerate(members.values()):
        kept = torch.tensor(chosen[:each])
        plan = batches(torch.tensor(chosen))
        for numbers, (images, _) in zip(plan, feed.gather(plan), strict=True):
            logits, weighing, location = _look(method, transform(images), numbers, kept)
            truth = labels[prepared.labels[numbers]]
            domain = torch.full_like(numbers, number)
            names = tuple(members), tuple(classes), branches(method)
            parts.append(Observed(*names, numbers, domain, truth, logits, weighing, location))
    return _joined(parts)


def _look(
    method: Method, images: Tensor, numbers: Tensor, kept: Tensor
) -> tuple[Tensor, Weighing | None, Location | None]:
    if not branches(method):
        return method.predict(images).float().cpu(), None, None
    seen = view(method, images)
    weighing = Weighing(
        seen.weights.float().cpu(),
        seen.nearness.float().cpu(),
        seen.branch_answers().cpu(),
        seen.ranked_answers().cpu(),
        {name: seen.answers_under(weights).cpu() for name, weights in seen.other_weights().items()},
    )
    return seen.logits.float().cpu(), weighing, _locate(method, seen, numbers, kept)


def _locate(method: Method, seen: View, numbers: Tensor, kept: Tensor) -> Location | None:
    if seen.points is None or seen.known is None:
        return None
    assert isinstance(method.net, DomainEnsemble)
    distance = ranking_distance(method.net)
    alone = {
        layer: distance(seen.points.select([layer]), seen.known.select([layer])).float().cpu()
        for layer in seen.points.layers
    }
    rows = torch.isin(numbers, kept).nonzero().flatten()
    return Location(alone, rows, _on_cpu(seen.points, rows), _on_cpu(seen.known))


def _on_cpu(points: Embedding, rows: Tensor | None = None) -> Embedding:
    mean, var = points.mean.float().cpu(), points.var.float().cpu()
    if rows is not None:
        mean, var = mean[rows], var[rows]
    return replace(points, mean=mean, var=var)


def _joined(parts: Sequence[Observed]) -> Observed:
    weighings = [part.weighing for part in parts if part.weighing is not None]
    return replace(
        parts[0],
        numbers=torch.cat([part.numbers for part in parts]),
        domain=torch.cat([part.domain for part in parts]),
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
