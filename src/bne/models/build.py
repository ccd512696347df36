"""Building a backbone, with or without pretrained weights, and remembering how."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from bne.errors import SettingsError, require
from bne.models.registry import Backbone, Preprocessing, StateDict, find, terms_of
from bne.models.weights import read_weights

_logger = logging.getLogger(__name__)
_LIBRARIES = ("torchvision", "timm")


@dataclass(frozen=True)
class Origin:
    """How a network was built.

    Attributes:
        backbone: Its name.
        weights: The source of its initial weights; None for random ones.
        preprocessing: Size and normalization of its input.
        fresh: Its tensors that the weights did not supply, left at their initialization.
        unused: Tensors of the weights that it did not take.
    """

    backbone: str
    weights: str | None
    preprocessing: Preprocessing
    fresh: tuple[str, ...]
    unused: tuple[str, ...]


def build(
    name: str, num_classes: int, weights: str | Path | None = None, channels: int = 3
) -> nn.Module:
    """Builds a backbone.

    The classifier of a file is kept if it has as many classes: they must be in the same order,
    which no file of weights tells. The log says so. Otherwise, and with downloaded weights, the
    classifier is a new layer with PyTorch's own initialization of a linear layer, uniform within
    ±1/√inputs for weights and biases. `bne.models.origin` tells which tensors the weights left
    fresh and which of theirs were not used; anything but the classifier that does not fit is an
    error. For weights without BN, see `bne.models.calibrate_batch_norm`.

    Args:
        name: One of `bne.models.list_models`: ``"resnet18"``, ``"alexnet_bn"``, or a network of
            timm, ``"timm/efficientnet_lite0"``, if need be with a tag of its weights.
        num_classes: Number of logits.
        weights: ``"torchvision"`` (its ImageNet weights, version 1) or ``"timm"`` to download
            those of the library the network comes from, whose license the log tells; or a
            ``.safetensors``, ``.pth``, ``.pt`` or ``.caffemodel`` file; or None for random weights.
        channels: Of its images. If they are not 3, the first convolution is adapted as timm does
            it: for gray its weights are summed, for others repeated and scaled.

    Returns:
        The network: images (N, channels, H, W), as `bne.models.preprocessing` says, to logits
        (N, num_classes).

    Raises:
        SettingsError: The name is unknown, the weights are not to be had, damaged or do not fit, or
            no convolution can be adapted.
    """
    if num_classes < 1:
        raise SettingsError(f"num_classes is {num_classes}: a classifier needs at least one class")
    backbone = find(name)
    if weights is None:
        model = backbone.create(num_classes)
        record = Origin(name, None, backbone.preprocessing, tuple(model.state_dict()), ())
    else:
        state = _read(name, backbone, weights)
        model = backbone.create(num_classes)
        own = weights not in _LIBRARIES  # whose classes are ImageNet's
        fresh, unused = load(model, backbone, state, str(weights), keep_classifier=own)
        record = Origin(name, str(weights), backbone.preprocessing, fresh, unused)
    if channels != 3:
        adapt_input(model, name, channels)
        expected = backbone.preprocessing.for_channels(channels)
        record = replace(record, preprocessing=expected)
    model.origin = record  # type: ignore[assignment]  # torch types attributes as tensors or modules
    return model


def adapt_input(model: nn.Module, name: str, channels: int) -> None:
    """Makes the first convolutions take another number of channels than red, green and blue.

    There are several where branches run side by side.

    Raises:
        SettingsError: There is none that takes three.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    first = [layer for layer in layers if layer.in_channels == 3 and layer.groups == 1]
    if not first:
        raise SettingsError(f"{name} has no first convolution to adapt to {channels} channels")
    for layer in first:
        adapted = require("timm").models.adapt_input_conv(channels, layer.weight.detach())
        layer.weight, layer.in_channels = nn.Parameter(adapted), channels


def origin(model: nn.Module) -> Origin:
    """How ``model``, or the network inside it, was built by `bne.models.build`.

    Raises:
        SettingsError: It was not.
    """
    for module in model.modules():
        record = getattr(module, "origin", None)
        if isinstance(record, Origin):
            return record
    raise SettingsError("this network was not built by bne.models.build, so its origin is unknown")


def preprocessing(model: nn.Module | str) -> Preprocessing:
    """What a backbone expects of its input.

    Args:
        model: A network from `bne.models.build`, alone or inside another, or a backbone's name.

    Raises:
        SettingsError: The network was not built by `bne.models.build` or the name is unknown.
    """
    return find(model).preprocessing if isinstance(model, str) else origin(model).preprocessing


def load(
    model: nn.Module, backbone: Backbone, state: StateDict, source: str, *, keep_classifier: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copies ``state`` into ``model``, in the model's precision.

    Args:
        model: A new network.
        backbone: What it is.
        state: Its weights.
        source: Where they are from.
        keep_classifier: Whether to copy the classifier too, if it is there and of the same shape.

    Returns:
        The names of the model's tensors left at their initialization (the classifier, if it is not
        kept, and those that the backbone calls optional, for which a warning is logged), and the
        names of the tensors in ``state`` that were not used (a classifier).

    Raises:
        SettingsError: Anything else is missing, superfluous, of another shape or not finite.
    """
    classifier = tuple(f"{layer}." for layer in backbone.classifier)
    known = model.state_dict()
    head = {name: tensor.shape for name, tensor in known.items() if name.startswith(classifier)}
    given = {name: state[name].shape for name in state if name.startswith(classifier)}
    kept = keep_classifier and head == given
    body = {name: tensor for name, tensor in state.items() if kept or name not in given}
    # BN's counters of batches are no weights, and many files have none.
    fresh = [n for n in known if n not in body and not n.endswith("num_batches_tracked")]
    absent = [name for name in fresh if not name.startswith(classifier)]
    missing = [name for name in absent if not name.startswith(backbone.optional)]
    problems = [*(f"tensor {name!r} is missing" for name in missing), *_misfits(body, known)]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise SettingsError(f"{source} does not fit the network: {problems[0]}{more}")
    model.load_state_dict(body, strict=False)
    if kept:
        _logger.warning(
            "the classifier of %s is kept: its classes must be yours, in alphabetical order", source
        )
    elif keep_classifier:
        _logger.info("the classifier starts afresh: %s has none of the same size", source)
    if absent:
        _logger.warning("%s lacks %s: they start afresh", source, ", ".join(absent))
    return tuple(fresh), tuple(name for name in state if name not in body)


def _misfits(body: StateDict, known: StateDict) -> Iterator[str]:
    for name, tensor in body.items():
        if name not in known:
            yield f"tensor {name!r} is unknown to it"
        elif tensor.shape != known[name].shape:
            expected = tuple(known[name].shape)
            yield f"tensor {name!r} has shape {tuple(tensor.shape)} instead of {expected}"
        elif not tensor.to(known[name].dtype).isfinite().all():
            yield f"tensor {name!r} has values that are not finite"


def _read(name: str, backbone: Backbone, weights: str | Path) -> StateDict:
    if weights not in _LIBRARIES:
        return read_weights(Path(weights), backbone)
    download = backbone.downloads.get(str(weights))
    if download is None:
        sources = [f'"{source}"' for source in backbone.downloads]
        raise SettingsError(
            f"{weights} has no weights for {name}: give {' or '.join([*sources, 'a file'])}"
        )
    try:
        _logger.info("%s", terms_of(name, str(weights)))
        return download()
    except (OSError, RuntimeError) as error:
        raise SettingsError(
            f"the weights of {name} could not be had from {weights}: give a file instead ({error})"
        ) from error


def classifier_parameters(model: nn.Module) -> set[nn.Parameter]:
    """The parameters of the last layers of all networks from `build` inside a module."""
    return {
        parameter
        for network in model.modules()
        if isinstance(record := getattr(network, "origin", None), Origin)
        for layer in find(record.backbone).classifier
        for parameter in network.get_submodule(layer).parameters()
    }
