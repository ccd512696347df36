import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from torchvision.transforms import v2

from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.transform import EvalTransform
from bne.errors import DataError
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


def test_file_image_and_cache_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "set/art/cat/0.jpg"
    path.parent.mkdir(parents=True)
    sideways = Image.Exif()
    sideways[ExifTags.Base.Orientation] = 6
    photo().save(path, exif=sideways)
    prepared = prepare(open_images(tmp_path / "set"), tmp_path / "cache", 32)
    ((images, _),) = Feed(prepared, "cpu").gather([torch.tensor([0])])
    assert torch.equal(SMALL(images), SMALL.file(path))
    with Image.open(path) as image:
        assert torch.equal(SMALL(images), SMALL.image(image))


def test_grey_images_become_rgb() -> None:
    grey = photo().convert("L")
    assert torch.equal(SMALL.image(grey), SMALL.image(grey.convert("RGB")))


def test_survives_json() -> None:
    assert EvalTransform.from_dict(json.loads(json.dumps(SMALL.to_dict()))) == SMALL


@pytest.mark.parametrize("field", ["size", "mean", "std", "resize"])
def test_a_broken_record_is_refused(field: str) -> None:
    record = SMALL.to_dict()
    (record if field == "resize" else record["preprocessing"])[field] = None
    with pytest.raises(DataError, match="stored image preprocessing is not valid"):
        EvalTransform.from_dict(record)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too small for a crop of 24"):
        EvalTransform(Preprocessing(24), resize=23)
    with pytest.raises(DataError, match="size=32"):
        SMALL(torch.zeros(1, 3, 33, 33, dtype=torch.uint8))
    with pytest.raises(DataError, match="float"):
        SMALL(torch.zeros(1, 3, 32, 32))
    with pytest.raises(DataError, match=r"nothing\.png: the image cannot be read"):
        SMALL.file(tmp_path / "nothing.png")
