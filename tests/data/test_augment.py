from collections.abc import Callable
from dataclasses import astuple
from typing import get_args

import pytest
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from bne.data import augment
from bne.data.augment import Augmentation
from bne.data.strong import Strong
from bne.errors import DataError, SettingsError
from bne.models.registry import Preprocessing
from tests.devices import needs_gpu

PLAIN = Preprocessing(24, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
IMAGENET = Preprocessing(24)
STRENGTHS = get_args(augment.Strength)


def noise(count: int, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def places() -> torch.Tensor:
    """One image whose pixels tell where they were: red the row, green the column."""
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    return torch.stack((rows, columns, 0 * rows)).to(torch.uint8)


def test_paper_is_a_crop_and_a_flip_and_every_one_comes_up() -> None:
    images = places().expand(4000, -1, -1, -1)
    cut = (Augmentation("paper", PLAIN)(images, 0) * 255).round().long()
    top, left = cut[:, 0, 0, 0], cut[:, 1].amin((1, 2))
    flip = cut[:, 1, 0, 0] > cut[:, 1, 0, -1]
    for i in range(50):
        expected = tv.crop(images[i], int(top[i]), int(left[i]), 24, 24)
        expected = tv.horizontal_flip(expected) if flip[i] else expected
        assert torch.equal(cut[i], expected.long())
    for found in (top, left):
        assert torch.bincount(found, minlength=9).min() > 4000 / 9 * 0.8
        assert found.max() == 8
    assert 0.45 < flip.float().mean() < 0.55
    assert torch.corrcoef(torch.stack((top, left, flip)).float()).triu(1).abs().max() < 0.06


@pytest.mark.parametrize("strong", [Strong(), Strong(0.2, 0.6, 0.1, 0.5)])
def test_strong_is_torchvisions_operations_in_order(strong: Strong) -> None:
    images = noise(40)
    draws = augment._draws(0, 3, torch.arange(40))
    ours = Augmentation("strong", IMAGENET, strong=strong)(images, 3)
    least, jitter, hue, gray = astuple(strong)
    for i, u in enumerate(draws.tolist()):
        area, aspect = 32 * 32 * (least + (1 - least) * u[0]), (4 / 3) ** (2 * u[1] - 1)
        height = min(32, round((area / aspect) ** 0.5))
        width = min(32, round((area * aspect) ** 0.5))
        top, left = int(u[2] * (33 - height)), int(u[3] * (33 - width))
        image = tv.to_dtype(images[i], torch.float32, scale=True)
        image = tv.resized_crop(image, top, left, height, width, [24, 24], antialias=False)
        image = tv.horizontal_flip(image) if u[4] < 0.5 else image
        image = tv.adjust_brightness(image, 1 + jitter * (2 * u[5] - 1))
        image = tv.adjust_contrast(image, 1 + jitter * (2 * u[6] - 1))
        image = tv.adjust_saturation(image, 1 + jitter * (2 * u[7] - 1))
        image = tv.adjust_hue(image, hue * (2 * u[8] - 1))
        image = tv.rgb_to_grayscale(image, 3) if u[9] < gray else image
        expected = tv.normalize(image, list(IMAGENET.mean), list(IMAGENET.std))
        torch.testing.assert_close(ours[i], expected, rtol=0, atol=2e-4)


def test_strong_boxes_hold_half_the_area_and_lie_inside() -> None:
    images = places().expand(2000, -1, -1, -1)
    boxes: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        original = augment.resized_crop
        patch.setattr(
            augment, "resized_crop", lambda *args: (boxes.append(args[1]), original(*args))[1]
        )
        Augmentation("strong", PLAIN)(images, 0)
    ((top, left, height, width),) = boxes
    assert (height * width).min() > 0.47 * 32 * 32  # sides are rounded
    assert (top.min(), left.min()) == (0, 0)
    assert (top + height).max() == 32
    assert (left + width).max() == 32
    assert (height / width).min() < 0.8
    assert (height / width).max() > 1.25


def test_without_flips_the_crops_are_the_same_and_none_is_mirrored() -> None:
    images = places().expand(200, -1, -1, -1)
    mirrored, plain = (Augmentation("paper", PLAIN, flip=flip)(images, 0) for flip in (True, False))
    assert (plain[:, 1, 0, 0] < plain[:, 1, 0, -1]).all()
    assert torch.equal(plain.sort(-1).values, mirrored.sort(-1).values)
    ramp = places()[1].mul(8).expand(200, 3, -1, -1)  # grey, so that no change of hue shows
    for flip in (True, False):
        row = Augmentation("strong", PLAIN, flip=flip)(ramp, 0)[:, 0, 0]
        assert bool((row[:, 0] < row[:, -1]).all()) is not flip


def test_randaugment_is_torchvisions_one_image_at_a_time_then_strong() -> None:
    images, seen = noise(6), []
    strong = Augmentation("strong", PLAIN)
    with pytest.MonkeyPatch.context() as patch:
        forward = v2.RandAugment.forward
        patch.setattr(
            v2.RandAugment, "forward", lambda self, x: (seen.append(forward(self, x)), seen[-1])[1]
        )
        ours = Augmentation("randaugment", PLAIN)(images, 3)
    assert len(seen) == 6
    assert not torch.equal(torch.stack(seen), images)
    assert torch.equal(ours, strong(torch.stack(seen), 3))


@pytest.mark.parametrize("strength", STRENGTHS)
def test_chosen_images_are_changed_as_if_there_were_no_others(strength: augment.Strength) -> None:
    images, change = noise(9), Augmentation(strength, IMAGENET)
    chosen = torch.tensor([8, 0, 3, 3])
    assert torch.equal(change(images, 2, chosen=chosen), change(images[chosen], 2))


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_change_follows_from_seed_step_and_position_alone(strength: augment.Strength) -> None:
    images = noise(1).expand(12, -1, -1, -1)
    change = Augmentation(strength, PLAIN, seed=1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = change(images, 5)
    assert torch.equal(torch.get_rng_state(), state)
    change(images, 6)
    assert torch.equal(change(images, 5), first)
    assert not torch.equal(change(images, 6), first)
    assert not torch.equal(Augmentation(strength, PLAIN, seed=2)(images, 5), first)
    assert len({one.sum().item() for one in first}) > 8
    share = torch.tensor([2, 3, 6, 7])
    torch.testing.assert_close(change(images[share], 5, share), first[share])


@needs_gpu
@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_gpus_own_random_numbers_are_left_alone(strength: augment.Strength) -> None:
    state = torch.cuda.get_rng_state()
    Augmentation(strength, PLAIN)(noise(2).cuda(), 0)
    assert torch.equal(torch.cuda.get_rng_state(), state)


@needs_gpu
@pytest.mark.parametrize("strength", ["paper", "strong"])
def test_the_gpu_gives_the_same(strength: augment.Strength) -> None:
    images, change = noise(12), Augmentation(strength, IMAGENET)
    torch.testing.assert_close(change(images.cuda(), 0).cpu(), change(images, 0), rtol=0, atol=1e-4)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SettingsError, match="'mild' is not known"):
        Augmentation("mild", PLAIN)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="23 pixels are too small for crops of 24"):
        Augmentation("paper", PLAIN)(noise(2, 23), 0)


FACTORS = torch.tensor([0.0, 0.7, 1.0, 1.3, 2.5, 0.4])
TURNS = torch.tensor([-0.5, -0.3, 0.0, 0.1, 0.25, 0.5])


def pictures() -> torch.Tensor:
    """Noise, with greys, pure colours and ties among the channels, where hues are delicate."""
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images[:, :, 0] = images[:, :1, 0]
    images[:, :, 1] = (images[:, :, 1] > 0.5).float()
    images[:, 1, 2] = images[:, 0, 2]
    images[:, 2, 3] = images[:, 1, 3]
    return images


@pytest.mark.parametrize(
    ("ours", "theirs", "strengths"),
    [
        (augment.adjust_brightness, tv.adjust_brightness, FACTORS),
        (augment.adjust_contrast, tv.adjust_contrast, FACTORS),
        (augment.adjust_saturation, tv.adjust_saturation, FACTORS),
        (augment.adjust_hue, tv.adjust_hue, TURNS),
    ],
)
def test_each_image_changes_as_torchvision_would_change_it(
    ours: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    theirs: Callable[[torch.Tensor, float], torch.Tensor],
    strengths: torch.Tensor,
) -> None:
    images = pictures()
    changed = ours(images, strengths)
    assert not torch.allclose(changed[0], images[0])
    for i, strength in enumerate(strengths.tolist()):
        expected = theirs(images[i], strength)
        torch.testing.assert_close(changed[i], expected, rtol=0, atol=1e-5)


def test_colour_is_dropped_where_chosen() -> None:
    images = pictures()
    chosen = torch.tensor([True, False] * 3)
    changed = augment.drop_colour(images, chosen)
    for i, image in enumerate(images):
        expected = tv.rgb_to_grayscale(image, num_output_channels=3) if chosen[i] else image
        torch.testing.assert_close(changed[i], expected)
