"""Images of more than 8 bits under a stated range, from files to what a model keeps."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bne
from bne.data.cache import prepare
from bne.data.check import check
from bne.data.images import Way, decode, pixels, read
from bne.data.sources import open_images
from bne.data.values import Values, percentile_window
from bne.deploy.onnx import OnnxEngine
from bne.errors import DataError, SettingsError
from bne.recipes.checks import check_settings
from bne.recipes.inputs import Inputs
from bne.recipes.schema import checked, to_recipe
from tests.cli.command import bne as command
from tests.data.small import encode
from tests.data.test_datasets import Items
from tests.data.test_images import COLOURS_16, _png
from tests.training import small


def deep(values: np.ndarray) -> bytes:
    return encode(Image.fromarray(values.astype(np.uint16)))


def write_deep(root: Path, most: int = 4095, count: int = 8, size: int = 12) -> Path:
    """Gray images of two domains and classes, in files of 16 bits; class dog is brighter."""
    draw = np.random.default_rng(0)
    for domain in ("art", "photo", "sketch"):
        for label, name in enumerate(("cat", "dog")):
            for number in range(count):
                values = draw.integers(0, most // 2, (size, size)) + label * (most // 2)
                path = root / domain / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(deep(values))
    return root


def test_a_window_is_scaled_and_clipped_like_numpy_does() -> None:
    values = np.arange(0, 4096, 16).reshape(16, 16)
    seen = np.asarray(decode(deep(values), "x", (1000, 3000)))[..., 0]
    expected = np.interp(values, (1000, 3000), (0, 255)).round()
    assert (seen == expected).all()
    assert np.asarray(decode(deep(values), "x")).max() == 16  # of 255, in the full range


def test_8_bits_stay_as_they_are() -> None:
    data = encode(Image.effect_noise((16, 16), 50))
    assert (pixels(data, "x", Way(16, window=(0, 100))) == pixels(data, "x", Way(16))).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_a_window_makes_other_numbers_readable(mode: str) -> None:
    values = np.linspace(-1000, 1000, 256).reshape(16, 16)
    image = Image.fromarray(values.astype(np.int32 if mode == "I" else np.float32))
    seen = np.asarray(decode(encode(image, "TIFF"), "x", (-1000, 1000)))[..., 0]
    stored = np.asarray(image)
    assert (seen == np.rint((stored + 1000.0) * (255 / 2000))).all()


def test_color_of_16_bits_cannot_have_a_range() -> None:
    data = _png(COLOURS_16, 16, 2)
    assert pixels(data, "x", Way(4)).shape == (4, 4, 3)
    with pytest.raises(DataError, match=r"^x: 16-bit color, .* save it as an \.npy array"):
        pixels(data, "x", Way(4, window=(0, 4095)))


def test_values_that_are_not_finite_are_refused() -> None:
    image = Image.fromarray(np.full((4, 4), np.nan, np.float32))
    with pytest.raises(DataError, match="x: some values are not finite"):
        read(encode(image, "TIFF"), "x")


def test_percentiles_are_those_of_all_values() -> None:
    draw = np.random.default_rng(1)
    arrays = [draw.gamma(2, 500, (20, 30)).astype(np.uint16) for _ in range(5)]
    found = percentile_window(Values(array, "x", None) for array in arrays)
    assert found == tuple(np.percentile(np.concatenate(arrays), (0.5, 99.5)))
    with pytest.raises(DataError, match="nearly all values of the training images are 7"):
        percentile_window([Values(np.full((4, 4), 7, np.uint16), "x", None)])
    with pytest.raises(DataError, match="no training image has more than 8 bits"):
        percentile_window([Image.new("RGB", (4, 4))])


def test_percentiles_come_from_training_images_alone(tmp_path: Path) -> None:
    images = open_images(write_deep(tmp_path / "data"))
    for path in (tmp_path / "data/sketch").rglob("*.png"):
        path.write_bytes(deep(np.full((12, 12), 60_000)))
    recipe = small.recipe(target=("sketch",), range="percentiles")
    inputs = Inputs.of(recipe, images)
    numbers = [number for own in inputs.train.values() for number in own]
    values = [np.asarray(read(images.files[n].read(), "").array) for n in numbers]
    assert inputs.way.window == tuple(np.percentile(np.stack(values), (0.5, 99.5)))


def test_a_narrow_range_is_told_and_a_stated_one_is_another_store(tmp_path: Path) -> None:
    images = open_images(write_deep(tmp_path / "data"))
    for _ in range(2):  # the second time from the cache
        full = prepare(images, tmp_path / "cache", 12)
        assert full.notes[0].startswith("48 of 48 images with more than 8 bits use at most a six")
    assert check(images).notes == full.notes
    stated = prepare(images, tmp_path / "cache", 12, window=(0, 4095))
    assert stated.notes == ()
    assert stated.folder != full.folder
    assert stated.window == (0, 4095)
    assert stated.pixels.max() > 250
    assert full.pixels.max() < 17


def test_a_range_that_clips_too_much_is_refused_by_its_share(tmp_path: Path) -> None:
    images = open_images(write_deep(tmp_path / "data"))
    values = np.stack([read(file.read(), "").array for file in images.files])
    share = (values > 3000).mean()
    own = (values > 3000).mean((1, 2))
    first = int((own > 0.01).argmax())
    message = (
        rf"range \[0, 3000\] clips {share:.1%} of the values, more than 1%, and of those of "
        f"{images.files[first].name} {own[first]:.1%};"
    )
    prepared = prepare(images, tmp_path / "cache", 12, window=(0, 3000))
    recipe = small.recipe(range=(0.0, 3000.0), resize=12, per_domain=4)
    with pytest.raises(DataError, match=message):
        small.run(recipe, prepared, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert prepared.notes[0].startswith("range [0, 3000] clips")
    for most in (1, 3000):  # by the first all images become white, and are not the same for that
        report = check(images, window=(0, most))
        assert len(report.errors) == 1
        assert report.duplicates == report.near_duplicates == ()
    said = command("data", "check", tmp_path / "data", "--range", "[0, 3000]", "--json", code=1)
    assert json.loads(said.out)["errors"][0].startswith("range [0, 3000] clips")


@pytest.mark.parametrize("value", [[3, 3], [500, 0], [1], [1, 2, 3], "percent"])
def test_what_is_no_range_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match="range"):
        check_settings(to_recipe(checked({"weights": None, "range": value})))


def test_a_model_keeps_its_range(tmp_path: Path) -> None:
    """Trained, loaded, exported: the same image is the same pixels everywhere."""
    data = write_deep(tmp_path / "data")
    settings = {"backbone": "tiny-dry", "weights": None, "resize": 12, "per_domain": 4}
    settings |= {"head.epochs": 0, "train.epochs": 1, "train.warm_up": 1, "epoch": 3}
    run = bne.train(
        data,
        "sketch",
        out=tmp_path / "run",
        cache=tmp_path / "cache",
        device="cpu",
        range="percentiles",
        validation=0.25,
        **settings,
    )
    model = run.model("cpu")
    window = model.engine.transform.window
    assert window is not None
    assert 0 < window[0] < 200 < 3900 < window[1] < 4095
    assert model.info.transform["window"] == list(window)
    files = sorted((data / "sketch").rglob("*.png"))
    expected = model.predict(files).probabilities
    with Image.open(files[0]) as picture:
        assert np.allclose(model.predict(picture).probabilities, expected[:1], atol=1e-6)
    model.save(tmp_path / "model.bne")
    again = bne.load(tmp_path / "model.bne", "cpu")
    assert (again.predict(files).probabilities == expected).all()
    plain = replace(again.engine.transform, window=None)
    assert not np.allclose(plain.file(files[0]), again.engine.transform.file(files[0]), atol=0.1)
    exported = OnnxEngine(None, model.info, "", prepares=False)  # needs no graph to prepare images
    assert exported.way == model.engine.way
    own = pixels(files[0].read_bytes(), "x", exported.way)[None]
    assert np.allclose(exported.inputs(own), model.engine.transform.file(files[0]), atol=1e-5)


def test_datasets_keep_16_bits() -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 16
    items = [(values, 0, "a"), (Image.fromarray(values), 1, "b"), (torch.tensor(values), 1, "b")]
    for file in open_images(Items(items)).files:
        assert (read(file.read(), file.name).array == values).all()
    file = open_images(Items([(values[..., None], 0, "a")])).files[0]
    assert (read(file.read(), file.name).array == values).all()
