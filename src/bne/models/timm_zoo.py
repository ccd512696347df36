"""Networks and pretrained weights from timm."""

from functools import partial

from torch import nn

from bne.models.backbone import Backbone, StateDict
from bne.models.extras import require
from bne.models.inputs import Preprocessing

_REFUSAL = "timm's {} is no classifier of square images: choose another one"


def names() -> list[str]:
    """Return the names of timm's architectures."""
    return list(require("timm").list_models())


def find(name: str) -> Backbone | None:
    """Describe timm's network ``architecture`` or ``architecture.tag``; None if there is none.

    Raises:
        ValueError: If the network is no classifier of square images.
    """
    timm = require("timm")
    if not timm.is_model(name):
        return None
    try:
        config = timm.get_pretrained_cfg(name, allow_unregistered=False)
    except RuntimeError:  # timm's answer to an unknown tag
        return None
    _, height, width = config.input_size
    if not config.classifier or height != width:
        raise ValueError(_REFUSAL.format(name))
    layers = config.classifier
    classifier = (layers,) if isinstance(layers, str) else tuple(layers)
    return Backbone(
        create=partial(_create, name, classifier),
        classifier=classifier,
        preprocessing=Preprocessing(height, mean=tuple(config.mean), std=tuple(config.std)),
        downloads={"timm": partial(_download, name)},
    )


def _create(name: str, classifier: tuple[str, ...], num_classes: int) -> nn.Module:
    model: nn.Module = require("timm").create_model(name, num_classes=num_classes)
    layers = dict(model.named_modules())
    for path in classifier:
        if path not in layers:  # some of timm's encoders name a layer that they do not have
            raise ValueError(_REFUSAL.format(name))
        # timm initialises classifiers in several ways, some with zeros; ours start alike.
        layer = layers[path]
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        layer.reset_parameters()
    return model


def _download(name: str) -> StateDict:
    return dict(require("timm").create_model(name, pretrained=True).state_dict())
