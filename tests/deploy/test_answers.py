import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.metrics import log_loss

from bne.deploy.answers import COLDEST, Calibration, fit_temperature


def answers(heat: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are too sure by a factor, and classes drawn from what they should say."""
    draw = np.random.default_rng(0)
    honest = draw.normal(0, 2, (count, 5))
    labels = np.array([draw.choice(5, p=own) for own in softmax(honest, 1)])
    return honest * heat, labels


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_the_temperature_is_that_of_the_smallest_loss(heat: float) -> None:
    logits, labels = answers(heat)

    def loss(logarithm: float) -> float:
        return log_loss(labels, softmax(logits / np.exp(logarithm), 1), labels=range(5))

    expected = minimize_scalar(loss, bounds=np.log((0.1, 10)), method="bounded").x
    found = Calibration.of(logits.astype(np.float32), labels, None)
    assert found.temperature == pytest.approx(np.exp(expected), rel=1e-3)
    assert found.temperature == pytest.approx(heat, rel=0.15)
    assert found.loss == pytest.approx(loss(0.0), rel=1e-5)
    assert found.calibrated_loss == pytest.approx(loss(np.log(found.temperature)), rel=1e-5)
    expected = softmax(logits / found.temperature, 1)
    np.testing.assert_allclose(found.probabilities(logits), expected, rtol=1e-9)


def test_images_that_are_all_right_set_a_bound() -> None:
    logits = np.eye(4) * 3
    assert fit_temperature(logits, np.arange(4)) == pytest.approx(COLDEST)


def test_unusual_is_the_percentile_among_held_out_images() -> None:
    logits, labels = answers(1.0, 200)
    distances = np.random.default_rng(1).exponential(5, (200, 3))
    found = Calibration.of(logits, labels, distances)
    nearest = np.sort(distances.min(1))
    shown = np.stack([nearest[[0, 100, 199]], np.full(3, 1e9)], 1)
    shown = np.concatenate([shown, [[0, 1e9], [1e6, 1e9]]])
    np.testing.assert_allclose(found.unusual(shown), [0, 50, 100, 0, 100], atol=0.5)
    again = Calibration.from_dict(json.loads(json.dumps(asdict(found))))
    assert again == found


def test_without_held_out_images_nothing_is_changed() -> None:
    none = Calibration.of(np.empty((0, 3)), np.empty(0, int), None)
    assert none == Calibration()
    logits, _ = answers(1.0, 3)
    np.testing.assert_allclose(none.probabilities(logits), softmax(logits, 1))
    assert none.unusual(np.ones((3, 2))) is None
