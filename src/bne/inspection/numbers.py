"""Every figure of a trained model, from what it said of single images.

A figure is by domain, of the rows that `Observed.rows` gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from bne.inspection.observe import Observed

    Rows = Mapping[str, Tensor]

BINS = 15
ALIKE = 0.6  # of the images of two domains, the share nearer to their own; 0.5 is chance
FEWEST = 10  # images of each that tell
Numbers = dict[str, Any]
Scores = dict[str, dict[str, int]]


def scores(right: Tensor, rows: Rows) -> Scores:
    """Correct answers, which `right`, (N,), tells, and images."""
    return {
        name: {"correct": int(right[own].sum()), "images": len(own)} for name, own in rows.items()
    }


def accuracy(observed: Observed, rows: Rows) -> Numbers:
    """Scores of the `prediction` and, if branches are weighed, of other answers.

    Those are `by_rank` (nearest branch first), `by_branch`, and `by_weighting` (of the same
    branches under the weights that other distances give).
    """

    def of(answers: Tensor) -> Scores:
        return scores(answers == observed.truth, rows)

    def named(names: Sequence[str], answers: Tensor) -> dict[str, Scores]:
        return dict(zip(names, map(of, answers.unbind(1)), strict=True))

    found: Numbers = {"prediction": of(observed.answers)}
    if observed.branches:
        found["by_rank"] = [of(answers) for answers in observed.by_rank.unbind(1)]
        found["by_branch"] = named(observed.branches, observed.by_branch)
        found["by_weighting"] = named(observed.weightings, observed.by_weighting)
    return found


def reliability(observed: Observed, rows: Rows) -> dict[str, list[dict[str, float]]]:
    """Mean confidence, accuracy and images of each of 15 equal bins of confidence with images."""
    bins = (observed.confidence * BINS).long().clamp_max(BINS - 1)
    right = (observed.answers == observed.truth).double()
    return {
        name: [
            {
                "confidence": float(observed.confidence[inside].mean()),
                "accuracy": float(right[inside].mean()),
                "images": len(inside),
            }
            for inside in (own[bins[own] == place] for place in range(BINS))
            if len(inside)
        ]
        for name, own in rows.items()
    }


def calibration_error(bins: Sequence[Mapping[str, float]]) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, in [0, 1]."""
    gaps = sum(one["images"] * abs(one["confidence"] - one["accuracy"]) for one in bins)
    return gaps / sum(one["images"] for one in bins)


def confusion(observed: Observed, rows: Rows) -> dict[str, list[list[int]]]:
    """Images of each true class, a row, by predicted class, a column."""
    classes = len(observed.classes)
    pairs = observed.truth * classes + observed.answers
    return {
        name: torch.bincount(pairs[own], minlength=classes**2).view(classes, classes).tolist()
        for name, own in rows.items()
    }


def answers(observed: Observed, rows: Rows) -> Numbers:
    """All that answers tell: `accuracy`, `calibration_error`, `reliability` and `confusion`."""
    bins = reliability(observed, rows)
    return {
        "accuracy": accuracy(observed, rows),
        "calibration_error": {name: calibration_error(own) for name, own in bins.items()},
        "reliability": bins,
        "confusion": confusion(observed, rows),
    }


def means(observed: Observed, values: Tensor, rows: Rows) -> dict[str, dict[str, float]]:
    """Means of (N, K), by domain and branch."""
    return {
        name: dict(zip(observed.branches, values[own].double().mean(0).tolist(), strict=True))
        for name, own in rows.items()
    }


def similarity(observed: Observed, rows: Rows) -> dict[str, dict[str, float]]:
    """Means of 1 / distance, by domain and branch."""
    smallest = torch.finfo(observed.nearness.dtype).tiny
    return means(observed, (-observed.nearness).clamp_min(smallest).reciprocal(), rows)


def domain_accuracy(observed: Observed, rows: Rows, nearness: Tensor | None = None) -> Scores:
    """Images that lie nearest to their own domain, of the domains that have a branch.

    `nearness`, (N, K), is by default that in all layers.
    """
    nearest = (observed.nearness if nearness is None else nearness).argmax(1)
    places = {name: place for place, name in enumerate(observed.branches)}
    own = torch.tensor([places.get(name, -1) for name in observed.domains])[observed.domain]
    return scores(nearest == own, {name: rows[name] for name in rows if name in places})


def alike(observed: Observed, rows: Rows) -> list[Numbers]:
    """Domains that cannot be told apart, in groups that could be merged.

    Two domains are alike if less than 60 % of their images, each domain counting half, lie nearer
    to their own of the two. In a group, every two are. `told_apart` is the largest such share in
    it. Domains with fewer than 10 images are left out.
    """
    names = [n for n in observed.branches if n in rows and len(rows[n]) >= FEWEST]
    places = [observed.branches.index(name) for name in names]
    if not names:
        return []
    near = [observed.nearness[rows[name]][:, places] for name in names]
    own = torch.stack([(n[:, [i]] > n).double().mean(0) for i, n in enumerate(near)])
    apart = (own + own.T) / 2  # (K, K)
    groups: list[list[int]] = []
    for one in range(len(names)):
        for group in groups:
            if all(apart[one, other] < ALIKE for other in group):
                group.append(one)
                break
        else:
            groups.append([one])
    return [
        {
            "domains": [names[one] for one in group],
            "told_apart": max(float(apart[a, b]) for a in group for b in group if a != b),
        }
        for group in groups
        if len(group) > 1
    ]


def layers(observed: Observed, rows: Rows) -> Numbers:
    """Each layer's `share` in the distances, and the `domain_accuracy` it has alone."""
    assert observed.known is not None
    every = torch.cat(list(rows.values()))
    totals = observed.layer_distances[every].double().sum((0, 2))
    shares = (totals / (totals.sum() or 1.0)).tolist()
    alone = observed.layer_distances.unbind(1)
    return {
        layer: {"share": share, "domain_accuracy": domain_accuracy(observed, rows, -own)}
        for layer, share, own in zip(observed.known.layers, shares, alone, strict=True)
    }
