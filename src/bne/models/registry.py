"""The backbones by name: those of torchvision and our own, and any of timm's after `timm/`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec

from torch import Tensor, nn

from bne.errors import SettingsError, did_you_mean, require
from bne.models.networks import alexnet_bn, alexnet_cvgj, from_caffe, small_cnn

_TIMM = "timm/"

StateDict = dict[str, Tensor]


@dataclass(frozen=True)
class Preprocessing:
    """Input size and normalization of a backbone, for images scaled to [0, 1], RGB by default.

    A network is fed ``(image - mean) / std``, channel by channel. The default constants are those
    of torchvision's ImageNet networks.

    Attributes:
        size: Height and width of the images, in pixels.
        mean: Values to subtract from the channels: red, green and blue.
        std: Values to divide the channels by after that.
    """

    size: int
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    @property
    def channels(self) -> int:
        """How many channels images have."""
        return len(self.mean)

    def for_channels(self, count: int) -> "Preprocessing":
        """The same for another number of channels: gray has the mean of all, others repeat them."""
        if count == self.channels:
            return self

        def spread(old: tuple[float, ...]) -> tuple[float, ...]:
            repeated = tuple(old[place % len(old)] for place in range(count))
            return (sum(old) / len(old),) if count == 1 else repeated

        return replace(self, mean=spread(self.mean), std=spread(self.std))


@dataclass(frozen=True)
class Backbone:
    """How to make a network, and which weights fit it.

    Attributes:
        create: Makes the network for a number of classes, with a freshly initialized classifier.
        classifier: Dotted names of the layers that give the logits.
        preprocessing: Size and normalization of its input.
        downloads: Pretrained weights by the name of their source; each call returns a state dict.
        terms: License of those weights by the name of their source, in a sentence.
        optional: Beginnings of the names of tensors that a weights file may leave out.
        from_caffe: Turns Caffe's layers into a state dict, for networks that have Caffe weights.
    """

    create: Callable[[int], nn.Module]
    classifier: tuple[str, ...]
    preprocessing: Preprocessing
    downloads: Mapping[str, Callable[[], StateDict]] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    from_caffe: Callable[[Mapping[str, list[Tensor]]], StateDict] | None = None


def list_models(pattern: str = "*") -> list[str]:
    """The names that `bne.models.build` accepts, timm's last.

    Args:
        pattern: Shell-style filter, e.g. ``"timm/*lite*"``.
    """
    names = list(_BACKBONES)
    if find_spec("timm"):
        names += [_TIMM + name for name in require("timm").list_models()]
    return [name for name in names if fnmatchcase(name, pattern)]


def find(name: str) -> Backbone:
    """What is known of the backbone called ``name``.

    Raises:
        SettingsError: There is none of that name, or it is no classifier of square images.
    """
    backbone = _BACKBONES.get(name)
    if backbone is None and name.startswith(_TIMM):
        backbone = _find_timm(name.removeprefix(_TIMM))
    if backbone is None:
        raise SettingsError(f"unknown backbone {name!r}: {did_you_mean(name, list_models())}")
    return backbone


def terms_of(name: str, weights: str) -> str:
    """The license of a backbone's weights, in a sentence, as far as it is known.

    Args:
        name: name of the backbone.
        weights: their source, see `bne.models.build`.
    """
    return find(name).terms.get(weights, OWN_TERMS)


OWN_TERMS = "The license of weights from a file of your own is yours to know."
TORCHVISION_TERMS = (
    "torchvision states no license for its weights, which were trained on ImageNet; its code is "
    "BSD-3-Clause."
)


def _resnet(depth: int) -> Backbone:
    def create(num_classes: int) -> nn.Module:
        made = getattr(require("torchvision").models, f"resnet{depth}")(num_classes=num_classes)
        assert isinstance(made, nn.Module)
        return made

    return Backbone(
        create=create,
        classifier=("fc",),
        preprocessing=Preprocessing(size=224),
        downloads={"torchvision": partial(_download_torchvision, f"ResNet{depth}_Weights")},
        terms={"torchvision": TORCHVISION_TERMS},
    )


def _download_torchvision(weights: str) -> StateDict:
    """Fetches ImageNet weights, e.g. ``"ResNet18_Weights"``, or finds them in torch's cache.

    Version 1 is what every network has and what published results start from.
    """
    version = getattr(require("torchvision").models, weights).IMAGENET1K_V1
    return dict(version.get_state_dict(check_hash=True, weights_only=True))


def _find_timm(name: str) -> Backbone | None:
    """Describes timm's network ``architecture`` or ``architecture.tag``; None if there is none."""
    timm = require("timm")
    if not timm.is_model(name):
        return None
    try:
        config = timm.get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError:  # timm's answer to an unknown tag
        return None
    _, height, width = config.input_size
    if not config.classifier or height != width:
        raise _no_classifier(name)
    layers = config.classifier
    terms = f"their license is {config.license}" if config.license else "no license is stated"
    classifier = (layers,) if isinstance(layers, str) else tuple(layers)
    return Backbone(
        create=partial(_create_timm, name, classifier),
        classifier=classifier,
        preprocessing=Preprocessing(height, mean=tuple(config.mean), std=tuple(config.std)),
        downloads={"timm": lambda: dict(timm.create_model(name, pretrained=True).state_dict())},
        terms={"timm": f"timm's weights {config.tag or name}: {terms}."},
    )


def _create_timm(name: str, classifier: tuple[str, ...], num_classes: int) -> nn.Module:
    model: nn.Module = require("timm").create_model(name, num_classes=num_classes)
    layers = dict(model.named_modules())
    for path in classifier:
        if path not in layers:  # some of timm's encoders name a layer that they do not have
            raise _no_classifier(name)
        # timm initializes classifiers in several ways, some with zeros; ours start alike.
        layer = layers[path]
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        layer.reset_parameters()
    return model


def _no_classifier(name: str) -> SettingsError:
    return SettingsError(f"timm's {name} is no classifier of square images: choose another one")


_BACKBONES = {
    "resnet18": _resnet(18),
    "resnet34": _resnet(34),
    "resnet50": _resnet(50),
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
        downloads={"torchvision": partial(_download_torchvision, "AlexNet_Weights")},
        terms={"torchvision": TORCHVISION_TERMS},
        # Published weights of this AlexNet have no BN, and often only the convolutions.
        optional=("features.bn", "classifier."),
    ),
    "small_cnn": Backbone(
        create=small_cnn,
        classifier=("fc",),
        preprocessing=Preprocessing(size=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    ),
}
