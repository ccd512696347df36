"""What a trained model did: its branches, its weights, and where images lie among its domains.

Only sums are kept from one batch to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bne.core.ensemble import DomainEnsemble
from bne.inspection.numbers import Sums, calibration, calibration_error, confusion
from bne.inspection.observe import View, branches, check_finite, ranking_distance, view
from bne.training.runtime import autocast, effective
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from bne.training.model_folder import Trained


def analyse(trained: Trained) -> dict[str, Any]:
    """Numbers, ready for JSON, of all images of the target and of the source domains.

    `target` has, by target domain: `accuracy` of the method's `prediction` and, if it weighs
    branches, `by_rank` (nearest branch first), `by_branch` and `by_weighting` (tested with other
    distances than it was trained with); mean `weights`; `calibration_error` (15 bins);
    `confusion`, a row a true class. `sources`, of methods that weigh branches, has by source
    domain: mean `weights` and `similarity` (1 / distance) of training images to every branch;
    `domain_accuracy` of training and held-out images; and `layers`, the share of each in the
    distances and the domain accuracy it has alone.

    Raises:
        DataError: An answer is no number.
    """
    device = trained.device
    precision = effective(trained.recipe.precision, device)
    with torch.inference_mode(), autocast(precision, device):
        report: dict[str, Any] = {"target": _target(trained)}
        if names := branches(trained.method):
            report = {"branches": list(names), **report, "sources": _sources(trained, names)}
    return report


def _target(trained: Trained) -> dict[str, Any]:
    names = branches(trained.method)
    sums, finite = Sums(), torch.tensor(True, device=trained.device)
    for domain in trained.recipe.target:
        for images, labels in _batches(trained, trained.prepared.images.indices_of([domain])):
            if names:
                seen = view(trained.method, images)
                logits, sound = seen.logits, seen.is_finite()
                _count_branches(sums, domain, seen, labels)
            else:
                logits = trained.method.predict(images)
                sound = logits.isfinite().all()
            finite = finite & sound
            answers = logits.argmax(1)
            classes = logits.shape[1]
            sums.add("images", domain, value=torch.ones_like(labels).sum())
            sums.add("prediction", domain, value=(answers == labels).sum())
            sums.add("calibration", domain, value=calibration(logits, labels))
            sums.add("confusion", domain, value=confusion(answers, labels, classes))
    check_finite(finite)
    domains = sums.names("images")
    report: dict[str, Any] = {
        "accuracy": {"prediction": _scores(sums, "prediction")},
        "calibration_error": {d: calibration_error(sums.get("calibration", d)) for d in domains},
        "confusion": {d: sums.get("confusion", d) for d in domains},
    }
    if names:
        ranks = [_scores(sums, "rank", place=k) for k in range(len(names))]
        own = {name: _scores(sums, "branch", place=k) for k, name in enumerate(names)}
        others = {n: _scores(sums, "weighting", n) for n in sums.names("weighting")}
        report["accuracy"] |= {"by_rank": ranks, "by_branch": own, "by_weighting": others}
        report["weights"] = _means(sums, "weights", names)
    return report


def _count_branches(sums: Sums, domain: str, seen: View, labels: Tensor) -> None:
    truth = labels.unsqueeze(1)
    sums.add("branch", domain, value=(seen.branch_answers() == truth).sum(0))
    sums.add("rank", domain, value=(seen.ranked_answers() == truth).sum(0))
    sums.add("weights", domain, value=seen.weights.double().sum(0))
    for name, weights in seen.other_weights().items():
        value = (seen.answers_under(weights) == labels).sum()
        sums.add("weighting", name, domain, value=value)


def _sources(trained: Trained, names: Sequence[str]) -> dict[str, Any]:
    parts = {"train": Sums(), "validation": Sums()}
    for source, split in trained.splits.items():
        for part, sums in parts.items():
            for images, labels in _batches(trained, getattr(split, part)):
                seen = view(trained.method, images)
                sums.add("images", source, value=torch.ones_like(labels).sum())
                if source in names:
                    right = seen.nearness.argmax(1) == names.index(source)
                    sums.add("domain", source, value=right.sum())
                if part == "train":
                    _locate(sums, source, seen, trained.method.net, names)
    train = parts["train"]
    report: dict[str, Any] = {
        "weights": _means(train, "weights", names),
        "domain_accuracy": {part: _scores(sums, "domain") for part, sums in parts.items()},
    }
    if train.names("similarity"):
        report |= {"similarity": _means(train, "similarity", names), "layers": _layers(train)}
    return report


def _locate(
    sums: Sums, source: str, seen: View, net: torch.nn.Module, names: Sequence[str]
) -> None:
    """Adds up where training images of a source lie among the domains, layer by layer too."""
    sums.add("weights", source, value=seen.weights.double().sum(0))
    if seen.points is None or seen.known is None:
        return
    assert isinstance(net, DomainEnsemble)
    distance = ranking_distance(net)
    smallest = torch.finfo(seen.nearness.dtype).tiny
    sums.add("similarity", source, value=(-seen.nearness).clamp_min(smallest).reciprocal().sum(0))
    for layer in seen.points.layers:
        alone = distance(seen.points.select([layer]), seen.known.select([layer]))
        sums.add("layer distance", layer, value=alone.double().sum())
        if source in names:
            right = alone.argmin(1) == names.index(source)
            sums.add("layer domain", layer, source, value=right.sum())


def _layers(sums: Sums) -> dict[str, Any]:
    distances = {layer: sums.get("layer distance", layer) for layer in sums.names("layer distance")}
    total = sum(distances.values()) or 1.0
    return {
        layer: {"share": own / total, "domain_accuracy": _scores(sums, "layer domain", layer)}
        for layer, own in distances.items()
    }


def _batches(trained: Trained, numbers: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Normalised images, (B, 3, size, size), and labels, (B,), on the device."""
    if numbers:
        for images, labels in trained.feed.gather(batches(torch.as_tensor(numbers))):
            yield trained.transform(images), labels


def _scores(sums: Sums, *what: str, place: int | None = None) -> dict[str, dict[str, int]]:
    """By domain; `place` chooses from counts of several things."""
    counts = {domain: sums.get(*what, domain) for domain in sums.names(*what)}
    return {
        domain: {
            "correct": count if place is None else count[place],
            "images": sums.get("images", domain),
        }
        for domain, count in counts.items()
    }


def _means(sums: Sums, what: str, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """By domain and branch."""
    return {
        domain: {
            name: total / sums.get("images", domain)
            for name, total in zip(names, sums.get(what, domain), strict=True)
        }
        for domain in sums.names(what)
    }
