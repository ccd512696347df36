"""Images that are decoded, resized and ready to be batched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from bne.data.images import ImageSet


@dataclass(frozen=True)
class PreparedImages:
    """What `bne.data.cache.prepare` returns.

    Attributes:
        images: The images that could be read; row i of `pixels` is `images.files[i]`.
        pixels: (N, size, size, 3) uint8, a memory map of the cache; writing to it changes a
            private copy, never the cache.
        folder: Where the pixels lie.
        skipped: One sentence for each image that could not be read.
    """

    images: ImageSet
    pixels: Tensor
    folder: Path
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def labels(self) -> Tensor:
        """(N,) int64, the class of every image."""
        return torch.tensor(self.images.labels)
