"""What a backbone expects of its input images."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preprocessing:
    """Input size and normalisation of a backbone, for RGB images scaled to [0, 1].

    A network is fed ``(image - mean) / std``, channel by channel. The default constants are those
    of torchvision's ImageNet networks.

    Attributes:
        size: Height and width of the images, in pixels.
        mean: What is subtracted from the red, green and blue channels.
        std: What the red, green and blue channels are then divided by.
    """

    size: int
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
