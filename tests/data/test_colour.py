from collections.abc import Callable

import pytest
import torch
from torchvision.transforms.v2 import functional as tv

from bne.data import augment

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
