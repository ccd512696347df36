"""The names of the backbones."""

from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec

from bne.models import timm_zoo, torchvision_zoo
from bne.models.alexnet_bn import alexnet_bn
from bne.models.alexnet_cvgj import alexnet_cvgj, from_caffe
from bne.models.backbone import Backbone
from bne.models.inputs import Preprocessing
from bne.models.small_cnn import small_cnn

_BACKBONES = {
    "resnet18": torchvision_zoo.resnet(18),
    "resnet34": torchvision_zoo.resnet(34),
    "resnet50": torchvision_zoo.resnet(50),
    "alexnet_cvgj": Backbone(
        create=alexnet_cvgj,
        classifier=("fc8",),
        preprocessing=Preprocessing(size=227, mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255)),
        from_caffe=from_caffe,
    ),
    "alexnet_bn": Backbone(
        create=alexnet_bn,
        classifier=("classifier.6",),
        preprocessing=Preprocessing(size=227),
        downloads={"torchvision": partial(torchvision_zoo.download, "AlexNet_Weights")},
        # Published weights of this AlexNet have no BN, and often only the convolutions.
        optional=("features.bn", "classifier."),
    ),
    "small_cnn": Backbone(
        create=small_cnn,
        classifier=("fc",),
        preprocessing=Preprocessing(size=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    ),
}
_TIMM = "timm/"


def list_models(pattern: str = "*") -> list[str]:
    """Return the names that `bne.models.build` accepts, timm's last.

    Args:
        pattern: Shell-style filter, e.g. ``"timm/*lite*"``.
    """
    names = list(_BACKBONES)
    if find_spec("timm"):
        names += [_TIMM + name for name in timm_zoo.names()]
    return [name for name in names if fnmatchcase(name, pattern)]


def find(name: str) -> Backbone:
    """Return what is known of the backbone called ``name``.

    Raises:
        ValueError: If there is none of that name.
    """
    backbone = _BACKBONES.get(name)
    if backbone is None and name.startswith(_TIMM):
        backbone = timm_zoo.find(name.removeprefix(_TIMM))
    if backbone is None:
        nearest = get_close_matches(name, list_models(), n=3) or list(_BACKBONES)
        raise ValueError(f"unknown backbone {name!r}: the nearest are {', '.join(nearest)}")
    return backbone
