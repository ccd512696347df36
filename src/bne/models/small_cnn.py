"""A network small enough to be trained in seconds without a GPU."""

from collections import OrderedDict

from torch import nn

# Channels, kernel and stride of each convolution: images of 32×32 become maps of 16, 8, 4 and 4.
_BLOCKS = ((16, 5, 2), (32, 3, 2), (64, 3, 2), (128, 3, 1))


def small_cnn(num_classes: int) -> nn.Module:
    """Build four blocks of convolution, BN and ReLU, a mean over the map, and a linear layer.

    The BN layers are ``bn1`` to ``bn4``; each sees several values a channel even in one image, so
    all of them have a place in the embedding.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = 3
    for number, (outputs, kernel, stride) in enumerate(_BLOCKS, start=1):
        layers[f"conv{number}"] = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, bias=False
        )
        layers[f"bn{number}"] = nn.BatchNorm2d(outputs)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
        inputs = outputs
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(inputs, num_classes)
    return nn.Sequential(layers)
