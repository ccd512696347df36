"""Shows images to a trained model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.data.feed import Feed
from bne.data.images import DataError
from bne.engine.scoring import batches
from bne.ensemble import DomainEnsemble
from bne.evaluation.evaluate import some_of, translated
from bne.evaluation.observed import Location, Observed, Weighing, joined
from bne.evaluation.views import branches, ranking_distance, view

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from bne.data.images import ImageSet
    from bne.data.prepared import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.embedding import Embedding
    from bne.evaluation.views import View
    from bne.methods import Method


def sample(images: ImageSet, domains: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """The numbers of at most `count` images of each domain, drawn at random, by domain.

    Raises:
        DataError: A domain is unknown or has no images.
    """
    drawn = {}
    for domain in domains:
        numbers = some_of(images, domain)
        drawn[domain] = np.random.default_rng(seed).permutation(numbers)[:count].tolist()
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
    held_out: Collection[int] = (),
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
        held_out: images of domains trained on that were kept from training.
        device: to compute on.

    Raises:
        DataError: A class is unknown, or an answer is no number.
    """
    labels = translated(prepared.images.classes, classes)
    kept_out = torch.tensor(sorted(held_out), dtype=torch.int64)
    feed = Feed(prepared, device)
    each = max(1, points // len(members))
    parts = []
    for number, chosen in enumerate(members.values()):
        kept = torch.tensor(chosen[:each])
        plan = batches(torch.tensor(chosen))
        for numbers, (images, _) in zip(plan, feed.gather(plan), strict=True):
            logits, weighing, location = _look(method, transform(images), numbers, kept)
            names = tuple(members), tuple(classes), branches(method)
            domain = torch.full_like(numbers, number)
            out = torch.isin(numbers, kept_out)
            truth = labels[prepared.labels[numbers]]
            parts.append(Observed(*names, numbers, domain, out, truth, logits, weighing, location))
    observed = joined(parts)
    if not observed.logits.isfinite().all():
        raise DataError(
            "The network's answers are not finite: its training has diverged; train it anew, with "
            "a smaller learning rate."
        )
    return observed


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
