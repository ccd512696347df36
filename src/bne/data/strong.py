"""The strengths of strong augmentation: apart from the changes themselves, which need torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Strong:
    """How far the augmentation "strong" goes, which is part of "randaugment" too.

    Attributes:
        area: the least share of an image that a crop keeps.
        jitter: by how much brightness, contrast and saturation are scaled up or down at most.
        hue: by how much of the color circle hues are turned at most, to either side.
        gray: the chance of an image to be made gray.
    """

    area: float = 0.5
    jitter: float = 0.3
    hue: float = 0.3
    gray: float = 0.1
