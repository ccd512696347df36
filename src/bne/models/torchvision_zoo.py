"""Networks and pretrained weights from torchvision."""

from functools import partial

from torch import nn

from bne.models.backbone import Backbone, StateDict
from bne.models.extras import require
from bne.models.inputs import Preprocessing


def resnet(depth: int) -> Backbone:
    """Describe torchvision's ResNet with that many layers."""
    return Backbone(
        create=partial(create, f"resnet{depth}"),
        classifier=("fc",),
        preprocessing=Preprocessing(size=224),
        downloads={"torchvision": partial(download, f"ResNet{depth}_Weights")},
    )


def create(name: str, num_classes: int) -> nn.Module:
    """Make torchvision's network of that name, with random weights."""
    model: nn.Module = getattr(require("torchvision").models, name)(num_classes=num_classes)
    return model


def download(weights: str) -> StateDict:
    """Fetch ImageNet weights, e.g. ``"ResNet18_Weights"``, or find them in torch's cache.

    Version 1 is what every network has and what published results start from.
    """
    version = getattr(require("torchvision").models, weights).IMAGENET1K_V1
    state: StateDict = version.get_state_dict(check_hash=True, weights_only=True)
    return state
