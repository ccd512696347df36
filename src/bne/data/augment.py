"""Random changes to training images, on the device they are on, for a whole batch at once.

What happens to an image follows from the seed, the step and the image's position in the batch and
from nothing else, so that a resumed run, another device and several processes change it alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch

from bne.data.batches import seed_of
from bne.data.mixing import mix_amplitudes
from bne.data.strong import Strong
from bne.data.transform import crop, normalise, pick, resized_crop, upload
from bne.errors import DataError, SettingsError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor

    from bne.data.batches import DomainBatches
    from bne.data.mixing import AmplitudeMixing, Mixture
    from bne.models.registry import Preprocessing

Strength = Literal["paper", "strong", "randaugment"]

MAX_LOG_ASPECT = 0.2877  # log(4/3)
DRAWS = 10  # random numbers per image, as many as the strong augmentation takes


class Augmentation:
    """Augments and normalizes training batches.

    - "paper": a random crop and a random horizontal flip.
    - "strong": a random crop of at least half the area and an aspect of 3:4 to 4:3, resized; a
      random flip; brightness, contrast and saturation scaled by 0.7 to 1.3 and hue turned by up to
      0.3, in this order; one image in ten made gray. `Strong` has these numbers.
    - "randaugment": torchvision's `RandAugment`, 2 operations of magnitude 9, then "strong". Slow:
      it takes the images one by one.

    Amplitudes are mixed after that, see `bne.data.mixing`.
    """

    def __init__(
        self,
        strength: Strength,
        preprocessing: Preprocessing,
        seed: int = 0,
        *,
        flip: bool = True,
        strong: Strong = Strong(),  # noqa: B008  a constant
        mixing: AmplitudeMixing | None = None,
    ) -> None:
        """Chooses the changes.

        Args:
            strength: One of the above.
            preprocessing: The size of the crops, and the normalization.
            seed: Number that decides all changes.
            flip: Whether to mirror every other image; digits and text must not be.
            strong: How far "strong" goes.
            mixing: How images mix their amplitudes; None for not at all.
        """
        known = get_args(Strength)
        if strength not in known:
            raise SettingsError(
                f"augmentation={strength!r} is not known; {did_you_mean(strength, known)}."
            )
        self._strength = strength
        self._preprocessing = preprocessing
        self._seed = seed
        self._flip_chance = 0.5 if flip else 0.0
        self._strengths = strong
        self._mixing = mixing

    def mixture(self, batches: DomainBatches, step: int) -> Mixture | None:
        """How a process's images mix their amplitudes at a step; None if none ever does."""
        if self._mixing is None:
            return None
        return self._mixing.plan(step, batches.positions, batches.whole_domains(step))

    def __call__(
        self,
        images: Tensor,
        step: int,
        positions: Tensor | None = None,
        chosen: Tensor | None = None,
        mixture: Mixture | None = None,
    ) -> Tensor:
        """Augments one batch.

        Args:
            images: (N, 3, H, W) uint8.
            step: Steps of training before this one.
            positions: (B,) int64 on the CPU, where each image stands in the batch of all processes
                together; 0, 1, 2, ... if there is one process.
            chosen: (B,) int64 on the CPU, the images that make up the batch; all, in order, by
                default.
            mixture: What `mixture` gave; the batch is then all that take part.

        Returns:
            (B, 3, size, size) float32, normalized, where `size` is the preprocessing's; with a
            mixture, of its own images alone.
        """
        size = self._preprocessing.size
        if min(images.shape[-2:]) < size:
            raise DataError(
                f"Images of {images.shape[-1]} pixels are too small for crops of {size}; "
                "prepare them with a larger size."
            )
        if positions is None:
            positions = torch.arange(len(images) if chosen is None else len(chosen))
        draws = _draws(self._seed, step, positions)
        if self._strength == "paper":
            changed = self._paper(images, draws, chosen)
        else:
            if chosen is not None:
                images = pick(images, chosen)
            if self._strength == "randaugment":
                seeds = [seed_of("randaugment", self._seed, step, p) for p in positions.tolist()]
                images = _rand_augment(images, seeds)
            changed = self._strong(images, draws)
        if mixture is not None:
            changed = changed / 255 if changed.dtype == torch.uint8 else changed
            changed = mix_amplitudes(changed, mixture)
        return normalise(changed, self._preprocessing)

    def _paper(self, images: Tensor, draws: Tensor, chosen: Tensor | None) -> Tensor:
        """(B, 3, size, size) uint8."""
        size = self._preprocessing.size
        room = torch.tensor(images.shape[-2:])[:, None] - size + 1
        corner = (draws[:, :2].T * room).long()
        return crop(images, corner, draws[:, 2] < self._flip_chance, size, chosen)

    def _strong(self, images: Tensor, draws: Tensor) -> Tensor:
        """(B, 3, size, size) in [0, 1]."""
        own = self._strengths
        full_height, full_width = images.shape[-2:]
        area = full_height * full_width * _between(draws[:, 0], own.area, 1)
        aspect = _between(draws[:, 1], -MAX_LOG_ASPECT, MAX_LOG_ASPECT).exp()
        height = (area / aspect).sqrt().round().clamp(max=full_height)
        width = (area * aspect).sqrt().round().clamp(max=full_width)
        top = (draws[:, 2] * (full_height - height + 1)).floor()
        left = (draws[:, 3] * (full_width - width + 1)).floor()
        box, flip = torch.stack((top, left, height, width)), draws[:, 4] < self._flip_chance
        changed = resized_crop(images.float() / 255, box, flip, self._preprocessing.size)
        scales = _between(draws[:, 5:8].T, -own.jitter, own.jitter)
        turns = _between(draws[:, 8:9].T, -own.hue, own.hue)
        strengths = upload(torch.cat((1 + scales, turns)), images.device)
        changed = adjust_brightness(changed, strengths[0])
        changed = adjust_contrast(changed, strengths[1])
        changed = adjust_saturation(changed, strengths[2])
        changed = adjust_hue(changed, strengths[3])
        return drop_colour(changed, upload(draws[:, 9] < own.gray, images.device))


def _draws(seed: int, step: int, positions: Tensor) -> Tensor:
    """(B, DRAWS) in [0, 1) on the CPU, so that every device gets the same."""
    generator = torch.Generator().manual_seed(seed_of("augment", seed, step))
    # Filled row by row, so a row does not depend on how many follow.
    return torch.rand(int(positions.max()) + 1, DRAWS, generator=generator)[positions]


def _between(draws: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * draws


def _rand_augment(images: Tensor, seeds: list[int]) -> Tensor:
    """Changes each of (B, 3, H, W) uint8 images by its own seed."""
    from torchvision.transforms.v2 import RandAugment  # type: ignore[attr-defined]

    change = RandAugment(num_ops=2, magnitude=9)
    changed = torch.empty_like(images)
    # It draws from the CPU's global generator; `torch.manual_seed` would set the GPUs' too.
    with torch.random.fork_rng(devices=[]):
        for i, seed in enumerate(seeds):
            torch.default_generator.manual_seed(seed)
            changed[i] = change(images[i])
    return changed


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Scales every pixel: 0 gives black, 1 the image."""
    return (images * factor[:, None, None, None]).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Moves pixels from (0) the image's mean gray toward the image (1) and beyond."""
    return _blend(images, grey(images).mean((1, 2, 3), keepdim=True), factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Moves pixels from (0) their gray toward the image (1) and beyond."""
    return _blend(images, grey(images), factor)


def adjust_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turns hues round the color circle; `turn` 1 is all the way round."""
    value, darkest = images.amax(1), images.amin(1)
    chroma = value - darkest
    red, green, blue = images.unbind(1)
    divisor = torch.where(chroma == 0, 1, chroma)
    sextant = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    sextant = sextant + 6 * turn[:, None, None]
    # A channel falls from the value by the chroma as the hue moves away from it (HSV to RGB).
    turns = [torch.remainder(offset + sextant, 6) for offset in (5, 3, 1)]
    falls = [torch.minimum(t, 4 - t).clamp(0, 1) for t in turns]
    return torch.stack([value - chroma * fall for fall in falls], dim=1)


def drop_colour(images: Tensor, chosen: Tensor) -> Tensor:
    """Makes the chosen images, (B,) bool, gray."""
    return torch.where(chosen[:, None, None, None], grey(images), images)


def grey(images: Tensor) -> Tensor:
    """(B, 1, H, W), the luma of ITU-R 601."""
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).unsqueeze(1)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(other, images, factor[:, None, None, None]).clamp(0, 1)
