"""Amplitude mixing: training images take part of another image's colors and textures.

The amplitudes of an image's Fourier transform tell its style, the phases its content. A mixed image
has its own phases and, at every frequency, an amplitude between its own and that of a partner in
the batch (Xu et al., "A Fourier-based framework for domain generalization", 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from bne.data.batches import seed_of
from bne.data.transform import pick, upload

if TYPE_CHECKING:
    from torch import Tensor

Partners = Literal["random", "other domain"]


class Mixture(NamedTuple):
    """How this process's images of one batch are mixed; all tensors are on the CPU.

    Attributes:
        positions: (M,) int64, where the images that take part stand in the batch of all processes:
            this process's own, and their partners.
        own: (B,) int64, which of those M are this process's.
        partners: (B,) int64, which of the M is the partner of each.
        shares: (B,), of the partner's amplitudes; 0 leaves an image as it is.
    """

    positions: Tensor
    own: Tensor
    partners: Tensor
    shares: Tensor


class AmplitudeMixing:
    """Chooses which images of a batch are mixed, with which, and how far.

    What happens follows from the seed, the step and the place in the batch of all processes.
    """

    def __init__(self, partners: Partners, chance: float = 0.5, seed: int = 0) -> None:
        """Chooses how images are mixed.

        Args:
            partners: Whether an image's partner is a "random" other one of the batch, or one of an
                "other domain"; an image that has no such partner stays as it is.
            chance: The chance of an image to be mixed.
            seed: Number that decides everything.
        """
        self._partners = partners
        self._chance = chance
        self._seed = seed

    def plan(self, step: int, positions: Tensor, domains: Tensor) -> Mixture:
        """How the images of this process are mixed at a step.

        Args:
            step: Steps of training before this one.
            positions: (B,) int64, where they stand in the batch of all processes together.
            domains: (N,) int64, the domains of the batch of all processes, in domain order.
        """
        places = torch.arange(len(domains))
        if self._partners == "random":
            start, length = places, torch.ones_like(places)
        else:
            _, block, counts = torch.unique_consecutive(
                domains, return_inverse=True, return_counts=True
            )
            start, length = (counts.cumsum(0) - counts)[block], counts[block]
        generator = torch.Generator().manual_seed(seed_of("amplitudes", self._seed, step))
        mixes, share, partner = torch.rand(3, len(domains), generator=generator)
        others = len(domains) - length
        partner = (partner * others).long()
        partner = torch.where(partner < start, partner, partner + length)  # past those left out
        mixed = (mixes < self._chance) & (others > 0)
        partner = torch.where(mixed, partner, places)[positions]
        needed = torch.cat((positions, partner)).unique()
        return Mixture(
            needed,
            torch.searchsorted(needed, positions),
            torch.searchsorted(needed, partner),
            torch.where(mixed, share, 0)[positions],
        )


def mix_amplitudes(images: Tensor, mixture: Mixture) -> Tensor:
    """Gives images part of their partners' amplitudes; phases stay.

    Args:
        images: (M, C, H, W), those that take part.
        mixture: Of this process.

    Returns:
        (B, C, H, W), this process's images; pixels may leave the range of the given ones.
    """
    device, changes = images.device, mixture.shares.nonzero().squeeze(1)
    result, rows = pick(images, mixture.own), upload(changes, device)
    if not len(changes):  # of no image there may be no transform
        return result
    own = torch.fft.rfft2(result.index_select(0, rows))
    other = torch.fft.rfft2(pick(images, mixture.partners[changes])).abs()
    share = upload(mixture.shares[changes], device).to(images.dtype)[:, None, None, None]
    amplitude = torch.lerp(own.abs(), other, share)
    mixed = torch.fft.irfft2(torch.polar(amplitude, own.angle()), s=images.shape[-2:])
    return result.index_copy_(0, rows, mixed)
