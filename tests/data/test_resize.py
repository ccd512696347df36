import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from bne.data.images import resize, resize_recipe


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_resizes_any_aspect_to_a_square_as_torchvision_does_by_default() -> None:
    for image in (noise(90, 40), noise(20, 70)):
        ours = resize(image, 64)
        assert ours.size == (64, 64)
        assert torch.equal(tv.pil_to_tensor(ours), tv.pil_to_tensor(tv.resize(image, [64, 64])))


def test_the_recipe_names_size_and_decoder() -> None:
    assert resize_recipe(64) != resize_recipe(65)
    assert Image.__version__ in resize_recipe(64)
