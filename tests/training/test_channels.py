"""Gray and many-channel images, from files through a network to predictions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.models import adapt_input_conv

import bne
from bne.data.cache import prepare
from bne.data.images import Way, pixels
from bne.data.sources import open_images
from bne.errors import DataError, SettingsError
from bne.models import build
from bne.recipes.checks import check_settings
from bne.report.look import picture
from tests.data.small import encode
from tests.training import small

GRAY = Image.effect_noise((20, 16), 60)


def npy(array: np.ndarray, path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return path.read_bytes()


def test_gray_is_one_channel_of_the_same_pixels() -> None:
    color = pixels(encode(GRAY), "x", Way(8))
    gray = pixels(encode(GRAY), "x", Way(8, channels=1))
    assert gray.shape == (8, 8, 1)
    assert (color == gray).all()


def test_arrays_are_resized_channel_by_channel(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 256, (20, 16, 5)).astype(np.uint8)
    found = pixels(npy(array, tmp_path / "a.npy"), "x", Way(8, "letterbox", channels=5))
    for channel in range(5):
        alone = pixels(encode(Image.fromarray(array[..., channel])), "x", Way(8, "letterbox"))
        assert (found[..., channel] == alone[..., 0]).all()
    deep = (array * 100.0).astype(np.float32)
    scaled = pixels(npy(deep, tmp_path / "b.npy"), "x", Way(8, "letterbox", (0, 25500), 5))
    assert (scaled == found).all()


@pytest.mark.parametrize(
    ("array", "channels", "message"),
    [
        (np.zeros((4, 4, 5), np.uint8), 3, "x: the array has 5 channels; set channels to 5"),
        (np.zeros((4, 4, 5), np.uint8), 4, "x: the image has 5 channels, where channels is 4"),
        (np.zeros((4, 4, 3), np.float32), 3, "x: signed, 32-bit or float values"),
        (np.zeros((4,), np.uint8), 3, r"x: the array has shape \(4,\)"),
        (np.array([[{}]]), 3, r"x: the array has shape \(1, 1\) and type object"),
    ],
)
def test_arrays_that_are_no_such_images_are_refused(
    tmp_path: Path, array: np.ndarray, channels: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        pixels(npy(array, tmp_path / "a.npy"), "x", Way(4, channels=channels))


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("name", ["resnet18", "timm/resnet18"])
def test_the_first_convolution_is_adapted_as_timm_does(name: str, channels: int) -> None:
    torch.manual_seed(0)
    color = build(name, 2)
    torch.manual_seed(0)
    other = build(name, 2, channels=channels)
    assert torch.equal(other.conv1.weight, adapt_input_conv(channels, color.conv1.weight))
    assert other.origin.preprocessing.channels == channels
    assert other.eval()(torch.zeros(1, channels, 32, 32)).shape == (1, 2)
    theirs = timm.create_model("resnet18", num_classes=2, in_chans=channels)
    assert theirs.conv1.weight.shape == other.conv1.weight.shape


@pytest.mark.parametrize("channels", [1, 5])
def test_a_model_of_other_channels_is_trained_and_used(tmp_path: Path, channels: int) -> None:
    draw = np.random.default_rng(0)
    for domain in small.DOMAINS:
        for label, name in enumerate(small.CLASSES):
            for number in range(4):
                array = draw.integers(0, 60, (12, 12, channels)) + 80 * label
                npy(array.astype(np.uint8), tmp_path / "data" / domain / name / f"{number}.npy")
    images = open_images(tmp_path / "data")
    prepared = prepare(images, tmp_path / "cache", small.SIZE, channels=channels)
    assert prepared.pixels.shape == (48, small.SIZE, small.SIZE, channels)
    recipe = small.recipe(channels=channels, per_domain=4)
    small.run(recipe, prepared, tmp_path / "run")
    model = bne.load(tmp_path / "run", "cpu")
    model.save(tmp_path / "model.bne")
    again = bne.load(tmp_path / "model.bne", "cpu")
    assert again.engine.way == Way(small.SIZE, channels=channels)
    files = sorted((tmp_path / "data/sketch").rglob("*.npy"))
    found = again.predict(files).probabilities
    assert (found == model.predict(files).probabilities).all()
    arrays = np.stack([np.load(file) for file in files])
    assert (again.predict(arrays).probabilities == found).all()
    assert picture(prepared.pixels[0]).startswith("data:image/png")
    with pytest.raises(DataError, match=f"prepared with channels {channels}, but the recipe has 3"):
        small.run(replace(recipe, channels=3), prepared, tmp_path / "other")


def test_networks_of_several_first_convolutions_or_none() -> None:
    """RepVGG runs branches side by side; TResNet packs pixels into channels first."""
    model = build("timm/repvgg_a0", 2, channels=2).eval()
    assert model(torch.zeros(1, 2, 64, 64)).shape == (1, 2)
    settings = {"channels": 2, "weights": None, "resize": 256}
    check_settings(small.recipe(backbone="timm/repvgg_a0", **settings))
    with pytest.raises(SettingsError, match=r"tresnet_m .*no first convolution"):
        check_settings(small.recipe(backbone="timm/tresnet_m", **settings))


def test_augmentation_of_colors_needs_colors() -> None:
    with pytest.raises(SettingsError, match="augmentation strong changes colors"):
        check_settings(small.recipe(channels=1, augmentation="strong"))
