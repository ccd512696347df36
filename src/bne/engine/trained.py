"""A trained network with all that is needed to study it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from bne.data.feed import Feed
    from bne.data.prepared import PreparedImages
    from bne.data.splits import Split
    from bne.data.transform import EvalTransform
    from bne.engine.recipe import Recipe
    from bne.methods import Method


@dataclass(frozen=True)
class Trained:
    """What a run hands over for analysis.

    Attributes:
        method: with its network as saved, in evaluation mode, on the device.
        transform: from prepared images to the network's input.
        prepared: all images, targets included.
        feed: the same images on the device.
        splits: of the source domains, by name.
        recipe: every setting.
        device: where the method and the feed are.
    """

    method: Method
    transform: EvalTransform
    prepared: PreparedImages
    feed: Feed
    splits: Mapping[str, Split]
    recipe: Recipe
    device: torch.device
