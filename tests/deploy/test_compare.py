from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

import bne
from bne.data.cache import prepare
from bne.data.sources import open_images
from bne.deploy.compare import Candidate, Difference, compare, mcnemar


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (1, 0), (3, 9), (40, 41), (900, 1000), (99_000, 100_000)]
)
def test_mcnemar_is_the_exact_test(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected)
    assert mcnemar(lost, gained) == mcnemar(gained, lost)


def test_the_interval_is_that_of_paired_images() -> None:
    draw = np.random.default_rng(0)
    theirs = draw.random(800) < 0.7
    ours = np.where(draw.random(800) < 0.9, theirs, draw.random(800) < 0.9)
    found = Difference.of(ours, theirs)
    assert found.difference == pytest.approx(100 * (ours.mean() - theirs.mean()))
    assert (found.correct, found.against) == (ours.sum(), theirs.sum())
    gaps = 100 * (ours.astype(float) - theirs)
    outside = bootstrap((gaps,), np.mean, method="percentile", n_resamples=2000, rng=0)
    assert found.low == pytest.approx(outside.confidence_interval.low, abs=0.15)
    assert found.high == pytest.approx(outside.confidence_interval.high, abs=0.15)
    swapped = Difference.of(theirs, ours)
    assert (swapped.gained, swapped.lost) == (found.lost, found.gained)


def test_models_of_other_sizes_and_orders_of_classes_see_the_same_images(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    images = open_images(runs["data"])
    candidates = []
    for method in ("bne", "deepall"):
        model = bne.load(runs[method], "cpu")
        prepared = prepare(images, tmp_path, model.engine.way.size)
        engine = model.engine
        candidates.append(Candidate(engine.method, engine.transform, model.classes, prepared))
    ours, theirs = candidates
    found = compare(ours, theirs, ["photo", "art"])
    assert list(found.domains) == ["photo", "art"]
    assert list(found.classes) == ["cat", "dog"]
    for own in (found.domains, found.classes):
        assert sum(part.gained for part in own.values()) == found.total.gained
    turned = compare(ours, theirs._replace(classes=("dog", "cat")), ["photo", "art"])
    assert turned.total.against == found.total.images - found.total.against
    assert turned.total.correct == found.total.correct
