"""The latent space of a trained model in numbers, from what it said of single images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from bne.inspection.observe import Location, Observed, Weighing

BINS = 15


class Sums:
    """Named sums that grow batch by batch without the host waiting for the device."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], Tensor] = {}

    def add(self, *name: str, value: Tensor) -> None:
        """Adds a tensor, of the same shape under the same name."""
        value = value.double() if value.is_floating_point() else value.long()
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def get(self, *name: str) -> Any:
        """The sum, as a number or nested lists of numbers."""
        return self._sums[name].tolist()

    def names(self, *start: str) -> list[str]:
        """What follows `start` in the names, in the order they first came."""
        depth = len(start)
        return list(dict.fromkeys(n[depth] for n in self._sums if n[:depth] == start))


def calibration(logits: Tensor, labels: Tensor) -> Tensor:
    """Images, confidence and correct answers in each of 15 equal bins of confidence, (3, 15).

    Args:
        logits: (N, classes).
        labels: (N,).
    """
    confidence, answers = logits.double().softmax(1).max(1)
    bins = (confidence * BINS).long().clamp(0, BINS - 1)  # of NaN too: others tell of it
    counted = torch.stack([torch.ones_like(confidence), confidence, (answers == labels).double()])
    return counted.new_zeros(3, BINS).index_add_(1, bins, counted)


def calibration_error(bins: list[list[float]]) -> float:
    """The expected calibration error: the mean gap of confidence and accuracy, in [0, 1]."""
    count, confidence, correct = bins
    return sum(abs(a - b) for a, b in zip(confidence, correct, strict=True)) / sum(count)


def confusion(answers: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes, classes): how many images of each class, a row, were taken for each, a column.

    Args:
        answers: (N,).
        labels: (N,).
        classes: how many there are.
    """
    pairs = labels * classes + answers
    counts = pairs.new_zeros(classes * classes).index_add_(0, pairs, torch.ones_like(pairs))
    return counts.view(classes, classes)


Numbers = dict[str, Any]

NO_BRANCHES = (
    "This method has no branches that it weighs: there are no weights, no similarities and no map."
)
NO_POINTS = (
    "This method does not weigh its branches by distances in the space of domains: there are no "
    "similarities, no layers to compare and no map."
)
HELD_OUT = (
    "Of {} only images that were held out from training were drawn: more images (--images) are "
    "needed to say where such a domain lies."
)
NONE_SEEN = (
    "None of these images is of a domain that the model has a branch of: nothing can be said of "
    "how well it tells domains apart."
)


def latent_numbers(observed: Observed) -> Numbers:
    """Numbers, ready for JSON, named as in `bne.inspection.analysis`, all of them by domain.

    `accuracy` of the `prediction` and, of methods that weigh branches, `by_rank` (nearest branch
    first), `by_branch` and `by_weighting`; `calibration_error` and `reliability` (15 bins);
    `confusion`, a row a true class; mean `weights`; `similarity` (mean 1 / distance) and
    `similarity_share`, the same with rows that add up to 1; `domain_accuracy`; and `layers`, the
    share of each in the distances of images of seen domains, and the domain accuracy it has
    alone. Answers are scored on all images; where domains lie, from `weights` on, is told from
    images that were not held out from training. What does not apply is absent, and `left_out`
    says why, in sentences.
    """
    everything = {domain: observed.rows_of(domain) for domain in observed.domains}
    bins = {d: calibration(observed.logits[r], observed.truth[r]) for d, r in everything.items()}
    numbers: Numbers = {
        "accuracy": {"prediction": _scores(observed, observed.answers)},
        "calibration_error": {d: calibration_error(counts.tolist()) for d, counts in bins.items()},
        "reliability": {d: _reliability(counts) for d, counts in bins.items()},
        "confusion": {d: _confusion(observed, rows) for d, rows in everything.items()},
        "left_out": [],
    }
    if observed.weighing is None:
        return {**numbers, "left_out": [NO_BRANCHES]}
    _add_branches(numbers, observed, observed.weighing)
    if observed.location is None:
        numbers["left_out"].append(NO_POINTS)
    else:
        _add_location(numbers, observed, observed.weighing, observed.location)
    return numbers


def _add_branches(numbers: Numbers, observed: Observed, weighing: Weighing) -> None:
    answers = {
        "by_branch": dict(zip(observed.branches, weighing.by_branch.unbind(1), strict=True)),
        "by_weighting": weighing.by_weighting,
    }
    for what, by_name in answers.items():
        numbers["accuracy"][what] = {name: _scores(observed, own) for name, own in by_name.items()}
    ranks = weighing.by_rank.unbind(1)
    numbers["accuracy"]["by_rank"] = [_scores(observed, own) for own in ranks]
    if only := [d for d in observed.domains if not len(observed.placed_rows_of(d))]:
        numbers["left_out"].append(HELD_OUT.format(", ".join(only)))
    numbers["weights"] = _means(observed, weighing.weights)
    nearest = weighing.nearness.argmax(1)
    numbers["domain_accuracy"] = _domain_scores(observed, nearest)
    if not numbers["domain_accuracy"]:
        numbers["left_out"].append(NONE_SEEN)


def _add_location(
    numbers: Numbers, observed: Observed, weighing: Weighing, location: Location
) -> None:
    smallest = torch.finfo(weighing.nearness.dtype).tiny
    similarity = _means(observed, (-weighing.nearness).clamp_min(smallest).reciprocal())
    if not similarity:
        return
    numbers["similarity"] = similarity
    numbers["similarity_share"] = {
        domain: {name: value / sum(row.values()) for name, value in row.items()}
        for domain, row in similarity.items()
    }
    if not numbers["domain_accuracy"]:
        return
    rows = torch.cat([observed.placed_rows_of(domain) for domain in numbers["domain_accuracy"]])
    totals = {
        layer: float(own[rows].double().sum()) for layer, own in location.layer_distances.items()
    }
    whole = sum(totals.values()) or 1.0
    numbers["layers"] = {
        layer: {
            "share": totals[layer] / whole,
            "domain_accuracy": _domain_scores(observed, own.argmin(1)),
        }
        for layer, own in location.layer_distances.items()
    }


def _score(right: Tensor) -> dict[str, int]:
    return {"correct": int(right.sum()), "images": len(right)}


def _scores(observed: Observed, answers: Tensor) -> dict[str, dict[str, int]]:
    right = answers == observed.truth
    return {domain: _score(right[observed.rows_of(domain)]) for domain in observed.domains}


def _domain_scores(observed: Observed, nearest: Tensor) -> dict[str, dict[str, int]]:
    """How many images of each domain that has a branch lie nearest to it; `nearest` is (N,)."""
    return {
        domain: _score(nearest[rows] == observed.branches.index(domain))
        for domain, rows in _placed(observed).items()
        if domain in observed.branches
    }


def _means(observed: Observed, values: Tensor) -> dict[str, dict[str, float]]:
    """Of (N, K), by domain and branch."""
    means = {d: values[rows].double().mean(0).tolist() for d, rows in _placed(observed).items()}
    return {d: dict(zip(observed.branches, row, strict=True)) for d, row in means.items()}


def _placed(observed: Observed) -> dict[str, Tensor]:
    """The rows that say where each domain lies, of those that have any."""
    rows = {domain: observed.placed_rows_of(domain) for domain in observed.domains}
    return {domain: own for domain, own in rows.items() if len(own)}


def _confusion(observed: Observed, rows: Tensor) -> list[list[int]]:
    classes = len(observed.classes)
    counts: list[list[int]] = confusion(
        observed.answers[rows], observed.truth[rows], classes
    ).tolist()
    return counts


def _reliability(bins: Tensor) -> list[dict[str, float]]:
    """Mean confidence, accuracy and images of each bin, (3, bins), that has images."""
    columns: Sequence[Sequence[float]] = bins.T.tolist()
    return [
        {"confidence": sure / count, "accuracy": right / count, "images": int(count)}
        for count, sure, right in columns
        if count
    ]
