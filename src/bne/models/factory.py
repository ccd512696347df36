"""Building a backbone, with or without pretrained weights."""

from pathlib import Path

from torch import nn

from bne.models.backbone import Backbone, StateDict
from bne.models.loading import load
from bne.models.provenance import Origin
from bne.models.registry import find
from bne.models.weights_file import read_weights


def build(name: str, num_classes: int, weights: str | Path | None = None) -> nn.Module:
    """Build a backbone with a fresh classifier.

    Whatever the weights, the classifier is a new layer with PyTorch's own initialisation of a
    linear layer, uniform within ±1/√inputs for weights and biases. `bne.models.origin` tells which
    tensors the weights left fresh and which of theirs were not used; anything but the classifier
    that does not fit is an error. For weights without BN, see `bne.models.calibrate_batch_norm`.

    Args:
        name: One of `bne.models.list_models`: ``"resnet18"``, ``"alexnet_bn"``, or a network of
            timm, ``"timm/efficientnet_lite0"``, if need be with a tag of its weights.
        num_classes: Number of logits.
        weights: ``"torchvision"`` (its ImageNet weights, version 1) or ``"timm"`` to download
            those of the library the network comes from; or a ``.safetensors``, ``.pth``, ``.pt``
            or ``.caffemodel`` file; or None for random weights.

    Returns:
        The network: images (N, 3, H, W), as `bne.models.preprocessing` says, to logits
        (N, num_classes).

    Raises:
        ValueError: If the name is unknown, or the weights are damaged or do not fit.
        FileNotFoundError: If there is no such weights file.
    """
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}: a classifier needs at least one class")
    backbone = find(name)
    if weights is None:
        model = backbone.create(num_classes)
        record = Origin(name, None, backbone.preprocessing, tuple(model.state_dict()), ())
    else:
        state = _read(name, backbone, weights)
        model = backbone.create(num_classes)
        fresh, unused = load(model, backbone, state, source=str(weights))
        record = Origin(name, str(weights), backbone.preprocessing, fresh, unused)
    model.origin = record  # type: ignore[assignment]  # torch types attributes as tensors or modules
    return model


def _read(name: str, backbone: Backbone, weights: str | Path) -> StateDict:
    if weights not in ("torchvision", "timm"):
        return read_weights(Path(weights), backbone)
    download = backbone.downloads.get(str(weights))
    if download is None:
        sources = [f'"{source}"' for source in backbone.downloads]
        raise ValueError(
            f"{weights} has no weights for {name}: give {' or '.join([*sources, 'a file'])}"
        )
    try:
        return download()
    except (OSError, RuntimeError) as error:
        raise RuntimeError(
            f"the weights of {name} could not be had from {weights}: give a file instead ({error})"
        ) from error
