import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.images import Fit
from bne.data.sources import open_images
from bne.data.transform import EvalTransform, centre_crop, crop, pick, resized_crop
from bne.errors import DataError, SettingsError
from bne.models.registry import Preprocessing

SMALL = EvalTransform(Preprocessing(24, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)), resize=32)


def photo(width: int = 50, height: int = 41) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_an_image_goes_through_torchvisions_usual_pipeline() -> None:
    usual = v2.Compose(
        [
            v2.Resize((32, 32)),
            v2.CenterCrop(24),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]),
        ]
    )
    torch.testing.assert_close(SMALL.image(photo()), usual(photo())[None])


@pytest.mark.parametrize("fit", ["squash", "letterbox"])
def test_file_image_and_cache_give_the_same(tmp_path: Path, fit: Fit) -> None:
    transform = replace(SMALL, fit=fit)
    path = tmp_path / "set/art/cat/0.jpg"
    path.parent.mkdir(parents=True)
    sideways = Image.Exif()
    sideways[ExifTags.Base.Orientation] = 6
    photo().save(path, exif=sideways)
    prepared = prepare(open_images(tmp_path / "set"), tmp_path / "cache", 32, fit=fit)
    ((images, _),) = Feed(prepared, "cpu").gather([torch.tensor([0])])
    assert torch.equal(transform(images), transform.file(path))
    with Image.open(path) as image:
        assert torch.equal(transform(images), transform.image(image))


def test_survives_json() -> None:
    assert EvalTransform.from_dict(json.loads(json.dumps(SMALL.to_dict()))) == SMALL
    boxed = replace(SMALL, fit="letterbox")
    assert EvalTransform.from_dict(json.loads(json.dumps(boxed.to_dict()))) == boxed
    assert "fit" not in SMALL.to_dict()  # which would change the checksums of earlier models


@pytest.mark.parametrize("field", ["size", "mean", "std", "resize"])
def test_a_broken_record_is_refused(field: str) -> None:
    record = SMALL.to_dict()
    (record if field == "resize" else record["preprocessing"])[field] = None
    with pytest.raises(DataError, match="stored image preprocessing is not valid"):
        EvalTransform.from_dict(record)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="too small for a crop of 24"):
        EvalTransform(Preprocessing(24), resize=23)
    with pytest.raises(DataError, match="size=32"):
        SMALL(torch.zeros(1, 3, 33, 33, dtype=torch.uint8))
    with pytest.raises(DataError, match="float"):
        SMALL(torch.zeros(1, 3, 32, 32))
    with pytest.raises(DataError, match=r"nothing\.png: the image cannot be read"):
        SMALL.file(tmp_path / "nothing.png")


FLIP = torch.tensor([True, False, True, False])


def noise(height: int = 12, width: int = 15) -> torch.Tensor:
    return torch.rand(4, 3, height, width, generator=torch.Generator().manual_seed(0))


def flipped(image: torch.Tensor, flip: bool) -> torch.Tensor:
    return tv.horizontal_flip(image) if flip else image


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_crop_is_torchvisions(memory_format: torch.memory_format) -> None:
    images = (noise() * 255).to(torch.uint8, memory_format=memory_format)
    corner = torch.tensor([[0, 4, 2, 1], [7, 0, 3, 5]])
    ours = crop(images, corner, FLIP, 8)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    for i, image in enumerate(images):
        expected = flipped(tv.crop(image, *corner[:, i].tolist(), 8, 8), bool(FLIP[i]))
        assert torch.equal(ours[i], expected)


def test_crop_takes_the_chosen_images() -> None:
    images = noise()
    chosen = torch.tensor([3, 0, 3, 1, 1])
    corner = torch.tensor([[0, 4, 2, 1, 3], [7, 0, 3, 5, 6]])
    flip = torch.tensor([True, False, False, True, True])
    ours = crop(images, corner, flip, 8, chosen)
    assert torch.equal(ours, crop(images[chosen], corner, flip, 8))


def test_pick_keeps_the_layout() -> None:
    images = noise().to(memory_format=torch.channels_last)
    chosen = torch.tensor([3, 0, 3])
    picked = pick(images, chosen)
    assert torch.equal(picked, images[chosen])
    assert picked.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("height", "width", "size"), [(12, 15, 8), (11, 12, 8), (9, 9, 9)])
def test_centre_crop_is_torchvisions(height: int, width: int, size: int) -> None:
    images = noise(height, width)
    assert torch.equal(centre_crop(images, size), tv.center_crop(images, [size, size]))


@pytest.mark.parametrize("size", [5, 8, 20])
def test_resized_crop_is_torchvisions(size: int) -> None:
    images = noise()
    box = torch.tensor([[0, 4, 2, 1], [7, 0, 3, 5], [12, 8, 5, 1], [8, 15, 6, 3]])
    ours = resized_crop(images, box, FLIP, size)
    for i, image in enumerate(images):
        expected = tv.resized_crop(image, *box[:, i].tolist(), [size, size], antialias=False)
        torch.testing.assert_close(ours[i], flipped(expected, bool(FLIP[i])))
