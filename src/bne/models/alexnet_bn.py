"""torchvision's one-tower AlexNet with batch normalisation after every convolution."""

from collections import OrderedDict

from torch import nn

from bne.models import torchvision_zoo


def alexnet_bn(num_classes: int) -> nn.Module:
    """Build torchvision's AlexNet and put a BN between each convolution and its ReLU.

    The convolutions and the fully connected layers keep torchvision's key names, so its weights
    fit; the BN layers are ``features.bn1`` to ``features.bn5``.
    """
    model = torchvision_zoo.create("alexnet", num_classes)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    convolutions = 0
    for name, layer in model.get_submodule("features").named_children():
        layers[name] = layer
        if isinstance(layer, nn.Conv2d):
            convolutions += 1
            layers[f"bn{convolutions}"] = nn.BatchNorm2d(layer.out_channels)
    model.set_submodule("features", nn.Sequential(layers))
    return model
