"""Measures, against scikit-learn and against drawing images one by one."""

from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from bne.errors import SettingsError
from bne.inspection import intervals, measures
from bne.inspection.intervals import mean_wilson, wilson
from bne.inspection.measures import NAMES, Measure, Measures, measure, measure_domains


def made(count: int, classes: int, seed: int, digits: int = 2):
    """Labels of unequal frequency, and probabilities that tell something, with ties."""
    draw = np.random.default_rng(seed)
    truth = np.minimum(draw.geometric(0.5, count) - 1, classes - 1)
    logits = draw.normal(size=(count, classes)) + 1.2 * np.eye(classes)[truth]
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return truth, np.round(chances, digits)


def by_scikit_learn(truth, chances, positive: int | None, specificity: float) -> list[float]:
    answers = chances.argmax(1)
    ranked = []
    for k in range(chances.shape[1]) if positive is None else [positive]:
        own = truth == k
        if own.any() and not own.all():
            fallout, recall, _ = metrics.roc_curve(own, chances[:, k], drop_intermediate=False)
            ranked.append(
                (
                    metrics.roc_auc_score(own, chances[:, k]),
                    metrics.average_precision_score(own, chances[:, k]),
                    recall[fallout <= 1 - specificity + 1e-9].max(),
                )
            )
    return [
        metrics.accuracy_score(truth, answers),
        metrics.balanced_accuracy_score(truth, answers),
        metrics.f1_score(truth, answers, average="macro"),
        *np.mean(ranked, 0),
    ]


def test_classes_are_sorted_once_for_all_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "AT_ONCE", 1)
    sorts = Mock(wraps=np.argsort)
    monkeypatch.setattr(np, "argsort", sorts)
    counts = []
    for draws in (2, 9):
        monkeypatch.setattr(measures, "DRAWS", draws)
        measure(*made(20, 3, 0))
        counts.append(sorts.call_count)
        sorts.reset_mock()
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@given(st.integers(6, 60), st.integers(2, 5), st.integers(0, 10_000), st.sampled_from([0.5, 0.9]))
@settings(max_examples=40, deadline=None)
def test_values_are_those_of_scikit_learn(count, classes, seed, specificity) -> None:
    truth, chances = made(count, classes, seed)
    truth[:2] = 0, 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "DRAWS", 3)
        for positive in (None, 1):
            found = measure(truth, chances, specificity=specificity, positive=positive)
            values = [found[name].value for name in NAMES[:-1]]
            expected = by_scikit_learn(truth, chances, positive, specificity)
            np.testing.assert_allclose(values, 100 * np.array(expected), atol=1e-9)


def test_the_calibration_error_is_the_mean_gap_of_bins() -> None:
    truth, chances = made(300, 3, 0, digits=6)
    confidence, right = chances.max(1), chances.argmax(1) == truth
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            error += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert measure(truth, chances)["calibration_error"].value == pytest.approx(100 * error)


def test_intervals_are_those_of_drawing_images_anew(monkeypatch) -> None:
    truth, chances = made(80, 3, 1)
    monkeypatch.setattr(intervals, "AT_ONCE", 80 * 333)  # several blocks of draws
    found = measure(truth, chances)
    draw = np.random.default_rng(7)
    classes = [np.flatnonzero(truth == k) for k in range(3)]
    by_class = [np.concatenate([draw.choice(own, len(own)) for own in classes]) for _ in range(300)]
    draws = np.array([by_scikit_learn(truth[p], chances[p], None, 0.9) for p in by_class])
    right = (chances.argmax(1) == truth)[draw.integers(0, 80, (300, 80))]
    draws[:, 0] = right.mean(1)  # of all images, whatever their class
    for name, values in zip(NAMES, 100 * draws.T, strict=False):
        own = found[name]
        low, high = np.percentile(values, (2.5, 97.5))
        assert own.low < own.value < own.high
        assert (own.low, own.high) == pytest.approx((low, high), abs=0.25 * (high - low)), name
    assert measure(truth, chances) == found  # seeded


def test_no_draw_lacks_a_rare_class() -> None:
    truth = np.array([0] * 12 + [1] * 3)
    found = measure(truth, np.tile([0.9, 0.1], (15, 1)))  # the rare class is never found
    balanced = found["balanced_accuracy"]
    assert balanced.value == 50
    assert (balanced.low, balanced.high) == mean_wilson([1, 0], [12, 3])
    assert found["macro_f1"].low is None  # all draws give the same
    assert found["accuracy"].low < 80 < found["accuracy"].high


def test_what_one_class_does_not_define_is_none() -> None:
    found = measure(np.zeros(5, int), np.tile([0.7, 0.3], (5, 1)))
    assert [name for name, own in found.items() if own is None] == list(NAMES[3:6])
    assert found["balanced_accuracy"] == found["accuracy"] == Measure(100, *wilson(1, 5))
    groups = measure(
        np.zeros(5, int), np.tile([0.7, 0.3], (5, 1)), groups=np.array([0, 0, 1, 1, 2])
    )
    assert groups["accuracy"] == Measure(100, *wilson(1, 3))
    assert str(groups["balanced_accuracy"]) == "100.0"
    assert Measures({"here": found}, ()).worst.keys() == set(NAMES) - set(NAMES[3:6])


def test_balanced_accuracy_leads_where_a_domain_is_unbalanced() -> None:
    sure = {"one": np.eye(2)[[0, 1]], "other": np.eye(2)[[0, 0, 0, 0, 0]]}
    truth = {"one": np.array([0, 1]), "other": np.array([0, 0, 0, 0, 1])}
    found = measure_domains(truth, sure)
    assert (found.unbalanced, found.leading) == (("other",), "balanced_accuracy")
    assert found.worst["balanced_accuracy"] == found.worst["calibration_error"] == "other"
    one = measure_domains({"one": truth["one"]}, {"one": sure["one"]})
    assert one.leading == "accuracy"


@pytest.mark.parametrize(
    ("truth", "chances", "how", "words"),
    [
        ([], np.empty((0, 2)), {}, "no images to measure"),
        ([0, 1], np.eye(3), {}, r"truth of shape \(2,\) and probabilities of shape \(3, 3\)"),
        ([0, 2], np.eye(2), {}, "Class 2 is none of the 2"),
        ([0, 1], np.eye(2), {"positive": 2}, "Class 2 is none of the 2"),
        ([0, 1], np.eye(2), {"specificity": 1.5}, "specificity is 1.5; it must be 0 to 1"),
        ([0, 1], np.eye(2) * np.nan, {}, "not finite"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(truth, chances, how, words) -> None:
    with pytest.raises(SettingsError, match=words):
        measure(np.array(truth, int), chances, **how)
