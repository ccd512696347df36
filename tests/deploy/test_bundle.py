"""A model as one file: the same as its run's folder, and never a file that is not whole."""

import json
import os
import pickle
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import bne
from bne.deploy import bundle
from bne.deploy.manifest import FORMAT, KEY
from bne.errors import DataError
from bne.methods import create, entries
from bne.models import build
from bne.training.files import snapshot
from bne.training.folder import read_training
from bne.training.manifest import BUNDLE
from bne.training.model_folder import save_model
from tests.training.test_model_folder import info

Runs = dict[str, Path]


@pytest.mark.parametrize("method", ["bne", "deepall", "dnet"])
def test_the_file_and_the_run_are_the_same_model(runs: Runs, method: str, tmp_path: Path) -> None:
    folder = bne.load(runs[method], "cpu")
    files = sorted(runs["data"].glob("photo/*/*.png"))
    expected = folder.predict(files)
    folder.save(tmp_path / "again.bne")
    assert (tmp_path / "again.bne").read_bytes() == (runs[method] / BUNDLE).read_bytes()
    for path in (runs[method] / BUNDLE, str(tmp_path / "again.bne")):
        file = bne.load(path, "cpu")
        assert (file.id, file.info, file.domains) == (folder.id, folder.info, folder.domains)
        found = file.predict(files)
        assert np.array_equal(found.probabilities, expected.probabilities)
        assert (found.weights is None) == (method == "deepall")
        assert (found.unusual is None) == (method != "bne")


def test_the_manifest_has_what_the_run_recorded(runs: Runs) -> None:
    known = bne.load(runs["bne"] / BUNDLE, "cpu").info
    training = read_training(runs["bne"])
    result = training.result
    assert (known.backbone, known.distance, known.mix) == ("small_cnn", "wasserstein", "logits")
    assert known.lean == result.lean
    assert known.branches == known.domains == ("art", "sketch")
    assert known.recipe == training.settings
    assert known.accuracy["rule"] == "last"
    (leaning,) = (own for own in result.to_dict()["leaning"] if own["share"] == result.lean)
    assert known.accuracy["target"] == leaning["target"]
    assert known.calibration.images == sum(s["images"] for s in _validation(known).values()) > 0
    assert known.calibration.calibrated_loss <= known.calibration.loss
    assert len(known.calibration.percentiles) == 101
    best = bne.load(runs["bne"] / "best", "cpu").info  # of which the run measured less
    assert (best.accuracy["rule"], best.calibration.images) == ("validation", 0)


def _validation(known) -> dict[str, dict[str, int]]:
    return known.accuracy["validation"]


def test_no_path_of_the_machine_is_in_the_file(runs: Runs, tmp_path: Path) -> None:
    run = shutil.copytree(runs["deepall"], tmp_path / "run")
    recipe = run / "recipe.yaml"
    weights = "/home/somebody/weights.safetensors"
    recipe.write_text(recipe.read_text().replace("weights: null", f"weights: {weights}"))
    assert bne.load(run, "cpu").info.recipe["weights"] == "weights.safetensors"


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_every_method_comes_back_from_its_file(tmp_path: Path, name: str) -> None:
    method = create(name, build("tiny", 3), ["a", "b", "c"])
    with torch.no_grad():
        for value in method.state_dict().values():
            if value.is_floating_point():
                value.uniform_(0.1, 1)
    tensors = snapshot(method.state_dict())
    save_model(tmp_path / "model", tensors, info(name, ["a", "b", "c"]))
    image = np.random.default_rng(0).integers(0, 255, (9, 12, 3), np.uint8)
    folder = bne.load(tmp_path / "model", "cpu")
    folder.save(tmp_path / "model.bne")
    file = bne.load(tmp_path / "model.bne", "cpu")
    assert file.info.recipe == file.info.accuracy == {}
    for one, other in zip(folder.predict(image).seen, file.predict(image).seen, strict=True):
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)


@pytest.fixture
def file(runs: Runs, tmp_path: Path) -> Path:
    return Path(shutil.copy(runs["bne"] / BUNDLE, tmp_path / "copy.bne"))


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        bne.load(path, "cpu")
    said = str(caught.value)
    assert str(path) in said
    assert "\n" not in said
    assert said.endswith(".")
    return said


def test_damage_anywhere_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    header = struct.unpack("<Q", whole[:8])[0]
    places = np.random.default_rng(0).integers(8, len(whole), 40).tolist()
    for place in [*places, 3, 8, 8 + header // 2, 8 + header, len(whole) - 1]:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        refused(file)
    for length in (0, 5, 8, 100, 8 + header, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert ("cut short" in refused(file)) == (length >= 100)


def test_other_files_are_named(file: Path, tmp_path: Path) -> None:
    refused(tmp_path / "absent.bne")
    refused(Path(os.devnull))
    os.mkfifo(tmp_path / "pipe.bne")  # opening one would wait for ever
    refused(tmp_path / "pipe.bne")
    save_file({"a": torch.zeros(2)}, file)
    assert "is no model of BNE" in refused(file)
    file.write_bytes(pickle.dumps({"a": 1}))
    assert "no model file" in refused(file)
    torch.save({"a": torch.zeros(2)}, file)
    assert "no model file" in refused(file)


def test_a_later_format_and_a_strange_one_are_named(file: Path) -> None:
    with safe_open(file, "pt") as opened:
        text = opened.metadata()[KEY]
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    for form, words in ((FORMAT + 1, "later version of BNE"), ("one", "format is 'one'")):
        save_file(tensors, file, {KEY: json.dumps({**json.loads(text), "format": form})})
        assert words in refused(file)
    for content in ("no JSON", json.dumps({**json.loads(text), "model": "[" * 10**5})):
        save_file(tensors, file, {KEY: content})
        refused(file)


def test_a_model_that_cannot_be_made_is_named(file: Path) -> None:
    model = bne.load(file, "cpu")
    bundle.write(file, model.engine.method, replace(model.info, method="bnee"))
    assert "the nearest is 'bne'" in refused(file)
    bundle.write(file, model.engine.method, replace(model.info, classes=("cat",)))
    refused(file)
    for field in ("method", "backbone"):
        for value in (None, 3):
            bundle.write(file, model.engine.method, replace(model.info, **{field: value}))
            assert f"{field} is {value}" in refused(file)


def test_a_file_that_cannot_be_written_leaves_nothing(runs: Runs, tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
