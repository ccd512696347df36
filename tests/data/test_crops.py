import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from bne.data.transform import centre_crop, crop, pick, resized_crop

FLIP = torch.tensor([True, False, True, False])


def noise(height: int = 12, width: int = 15) -> torch.Tensor:
    return torch.rand(4, 3, height, width, generator=torch.Generator().manual_seed(0))


def flipped(image: torch.Tensor, flip: bool) -> torch.Tensor:
    return tv.horizontal_flip(image) if flip else image


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_crop_is_torchvisions(memory_format: torch.memory_format) -> None:
    images = (noise() * 255).to(torch.uint8, memory_format=memory_format)
    top, left = torch.tensor([0, 4, 2, 1]), torch.tensor([7, 0, 3, 5])
    ours = crop(images, top, left, FLIP, 8)
    assert ours.is_contiguous(memory_format=torch.channels_last)
    for i, image in enumerate(images):
        expected = flipped(tv.crop(image, int(top[i]), int(left[i]), 8, 8), bool(FLIP[i]))
        assert torch.equal(ours[i], expected)


def test_crop_takes_the_chosen_images() -> None:
    images = noise()
    chosen = torch.tensor([3, 0, 3, 1, 1])
    top, left = torch.tensor([0, 4, 2, 1, 3]), torch.tensor([7, 0, 3, 5, 6])
    flip = torch.tensor([True, False, False, True, True])
    ours = crop(images, top, left, flip, 8, chosen)
    assert torch.equal(ours, crop(images[chosen], top, left, flip, 8))


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
    top, left = torch.tensor([0, 4, 2, 1]), torch.tensor([7, 0, 3, 5])
    height, width = torch.tensor([12, 8, 5, 1]), torch.tensor([8, 15, 6, 3])
    ours = resized_crop(images, top, left, height, width, FLIP, size)
    for i, image in enumerate(images):
        box = (int(top[i]), int(left[i]), int(height[i]), int(width[i]))
        expected = tv.resized_crop(image, *box, [size, size], antialias=False)
        torch.testing.assert_close(ours[i], flipped(expected, bool(FLIP[i])))
