"""Networks for images of another size and shape than the backbone's own, from training to use."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as tv

import bne
from bne.deploy.classifier import Classifier
from bne.deploy.onnx import OnnxEngine
from bne.deploy.pictures import Picture
from bne.deploy.predict import predict
from tests.cli.command import bne as command

SETTINGS = {"backbone": "small_cnn", "weights": None, "batch_size": 4, "epoch": 2, "epochs": 1}
SETTINGS |= {"head": {"epochs": 1}, "warmup": 0, "validation": 0.2, "lean": 0.0}


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("size")
    places = {"out": folder / "run", "cache": folder / "cache", "device": "cpu"}
    return bne.train(data, "photo", size=64, fit="letterbox", **places, **SETTINGS).folder


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 120, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    return tmp_path / "wide.png"


def by_hand(model: Classifier, path: Path) -> np.ndarray:
    """The logits of an image that torchvision prepares."""
    known = model.engine.transform.preprocessing
    image = Image.open(path)
    image = tv.pad(tv.resize(image, [24, 73]), [0, 24, 0, 25])
    pixels = tv.to_tensor(tv.center_crop(image, [64, 64]))
    with torch.no_grad():
        return model.engine.method.predict(tv.normalize(pixels, known.mean, known.std)[None])


def test_every_way_to_predict_prepares_images_as_training_did(
    run: Path, wide: Path, tmp_path: Path
) -> None:
    model = bne.load(run, "cpu")
    expected = by_hand(model, wide)
    model.save(tmp_path / "copy.bne")
    again = bne.load(tmp_path / "copy.bne", "cpu")
    assert again.engine.transform == model.engine.transform
    model.to_onnx(tmp_path / "float.onnx")
    model.to_onnx(tmp_path / "whole.onnx", preprocess=True)
    engines = [model.engine, again.engine]
    engines += [OnnxEngine.load(tmp_path / f"{name}.onnx") for name in ("float", "whole")]
    for engine in engines:
        (part,) = predict(engine, model.info, [Picture("wide", wide.read_bytes)])
        np.testing.assert_allclose(part.answers.seen.logits, expected, rtol=1e-4, atol=1e-4)
    seen = model.predict(wide).seen.logits
    np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-4)


def test_evaluate_finds_what_training_found(data: Path, run: Path, here: Path) -> None:
    found = command("evaluate", run, "--data", data, "--domains", "photo", "--json").json
    score = json.loads((run / "result.json").read_text())["accuracy"]["last"]["photo"]
    total = found["domains"]["photo"]["prediction"]["all classes"]
    assert (total["correct"], total["images"]) == (score["correct"], score["images"])
    recipe = json.loads((run / "result.json").read_text())["recipe"]
    assert (recipe["size"], recipe["resize"], recipe["fit"]) == (64, 73, "letterbox")
