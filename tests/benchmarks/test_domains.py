"""The benchmark of many domains, on few images."""

import importlib

import pytest
import torch


@pytest.fixture
def domains(_scripts, monkeypatch, tmp_path):
    found = importlib.import_module("domains")
    small = {"PER_STEP": 2, "IMAGES": 64, "UNSEEN": 4, "TEST_DIGITS": 16, "SHRINKAGES": (0,)}
    small |= {"DOMAINS": (8, 16), "LARGE": ("resnet18", 1, 32), "FIGURE": tmp_path / "figure.svg"}
    for name, value in small.items():
        monkeypatch.setattr(found, name, value)
    return found


def test_a_style_is_drawn_from_its_number_alone(domains) -> None:
    digits, _ = domains.handwriting()
    one, again, other = (domains.render(digits[:5], style, apart=1) for style in (3, 3, 4))
    assert torch.equal(one, again)
    assert one.shape == (5, 3, 32, 32)
    assert (one.mean((0, 2, 3)) - other.mean((0, 2, 3))).abs().max() > 0.1


def test_styles_are_as_far_apart_as_asked(domains) -> None:
    digits, _ = domains.handwriting()

    def spread(apart: float) -> float:
        images = torch.stack([domains.render(digits[:50], style, apart) for style in range(6)])
        return float(images.mean((1, 3, 4)).std(0).mean())

    none, near, far = map(spread, (0, 0.4, 1))
    assert near < 0.6 * far
    assert none < 0.2 * near


def test_no_digit_is_trained_and_tested_on(domains, monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(
        domains, "render", lambda digits, *_: drawn.append(digits) or torch.zeros(len(digits), 3)
    )
    domains.training_images(8, 0, apart=1)
    trained = {tuple(digit.flatten().tolist()) for digits in drawn for digit in digits}
    drawn.clear()
    domains.unseen_images(apart=1)
    tested = {tuple(digit.flatten().tolist()) for digits in drawn for digit in digits}
    assert len(tested) == 16
    assert not trained & tested


def test_cost_and_accuracy_are_recorded_and_drawn(domains) -> None:
    cost = domains.cost(1, list(domains.CASES))
    assert {record["case"] for record in cost} == set(domains.CASES)
    assert all(record["time_ratio"] == 1 for record in cost if record["domains"] == 8)
    few, more = (r for r in cost if r["case"] == "training step")
    assert 1 < more["working_mib"] < 1.1 * few["working_mib"]
    statistics = 2 * 4 * 240 + 8  # of a domain, in bytes, and its number of batches in each layer
    assert (more["network_mib"] - few["network_mib"]) * 2**20 == 8 * (statistics + 3 * 8)
    accuracy = domains.accuracy(2, [0], domains.DOMAINS, domains.METHODS, apart=1)
    assert len(accuracy) == 2 * (1 + 3 + 3 + 2 + 2)
    assert all(0 <= record["accuracy"] <= 100 for record in accuracy)
    domains.figure([*cost, *accuracy])
    assert "<svg" in domains.FIGURE.read_text()
