from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bne
from bne.core.norm import domain_layers
from bne.errors import SettingsError
from bne.methods import create
from bne.models import build
from bne.training.files import snapshot
from bne.training.model_folder import save_model
from tests.training.test_model_folder import info

Runs = dict[str, Path]


@pytest.mark.parametrize(
    "mode",
    [
        {"lean": 0.3},
        {"mix": "statistics"},
        {"mix": "centre", "lean": 0.1},
        {"nearest": 1},
        {"layers": 1},
    ],
)
def test_a_mode_changes_answers_and_is_kept(runs: Runs, mode: dict, tmp_path: Path) -> None:
    files = sorted(runs["data"].glob("photo/*/*.png"))
    mode = {"lean": 0.0, **mode}
    before = bne.load(runs["bne"], "cpu", lean=0.0)
    model = bne.load(runs["bne"], "cpu", **mode)
    for key, value in mode.items():
        kept = getattr(model.engine.method.net, key)
        assert (len(kept) if key == "layers" else kept) == value
    # What is usual was measured by all layers.
    assert (model.predict(files).unusual is None) == ("layers" in mode)
    assert (model.info.calibration.reference is None) == ("layers" in mode)
    found = model.predict(files).seen.logits
    assert not np.allclose(found, before.predict(files).seen.logits, rtol=1e-4)
    model.save(tmp_path / "model.bne")
    again = bne.load(tmp_path / "model.bne", "cpu")
    assert again.id == model.id != before.id
    np.testing.assert_array_equal(again.predict(files).seen.logits, found)
    every = len(list(domain_layers(model.engine.method.net)))
    back = bne.load(tmp_path / "model.bne", "cpu", lean=0.0, mix="logits", nearest=2, layers=every)
    np.testing.assert_allclose(
        back.predict(files).seen.logits, before.predict(files).seen.logits, rtol=1e-4, atol=1e-6
    )


@pytest.fixture
def folder(tmp_path: Path):
    """Writes a model of a method that never was trained, on three domains."""

    def make(method: str, **options: Any) -> Path:
        known = replace(info(method, ["a", "b", "c"]), options=options)
        made = create(method, build("tiny", 3), known.domains, options)
        save_model(tmp_path / method, snapshot(made.state_dict()), known)
        return tmp_path / method

    return make


@pytest.mark.parametrize(
    "options", [{"branch_loss": 0.5}, {"max_branches": 1}, {"mixstyle": "random"}]
)
def test_a_mode_that_training_refuses_is_kept(folder, options: dict, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 255, (9, 12, 3), np.uint8)
    model = bne.load(folder("bne", **options), "cpu", nearest=1)
    model.save(tmp_path / "model.bne")
    again = bne.load(tmp_path / "model.bne", "cpu")
    assert again.engine.method.net.nearest == 1
    assert dict(again.info.options) == {**options, "nearest": 1}
    np.testing.assert_array_equal(again.predict(image).weights, model.predict(image).weights)


def test_a_plain_network_leans_too(runs: Runs) -> None:
    files = sorted(runs["data"].glob("photo/*/*.png"))
    logits = [bne.load(runs["deepall"], "cpu", lean=a).predict(files).seen.logits for a in (0, 0.5)]
    assert not np.allclose(*logits, rtol=1e-3)


@pytest.mark.parametrize(
    ("method", "mode", "words"),
    [
        ("dson", {"mix": "centre"}, "there are logits, probabilities"),
        ("dson-bne", {"mix": "statistics"}, "there are logits, probabilities"),
        ("dson", {"nearest": 1}, "weighs all branches alike"),
        ("points", {"nearest": 1}, "with mix centre no branch is run"),
        ("bne", {"mix": "statistics", "nearest": 1}, "with mix statistics no branch is run"),
        ("bne", {"nearest": 1.5}, "whole number"),
    ],
)
def test_what_a_method_cannot_do_is_one_sentence(folder, method, mode, words) -> None:
    with pytest.raises(SettingsError, match=words):
        bne.load(folder(method), "cpu", **mode)


@pytest.mark.parametrize(
    ("method", "mode", "words"),
    [
        ("deepall", {"mix": "centre"}, "deepall has no branches"),
        ("dnet", {"nearest": 1}, "dnet has no branches that are weighed by distances"),
        ("bne", {"mix": "logit"}, "the nearest is 'logits'"),
        ("bne", {"nearest": 3}, "choose 1 to 2"),
        ("bne", {"layers": 99}, "layers must be 1 to"),
        ("bne", {"lean": 2}, "lean 2"),
        ("bne", {"lean": {"no": 0.1}}, "no batch-norm layer"),
    ],
)
def test_what_a_model_cannot_do_is_one_sentence(runs: Runs, method, mode, words) -> None:
    with pytest.raises(SettingsError, match=words):
        bne.load(runs[method], "cpu", **mode)
