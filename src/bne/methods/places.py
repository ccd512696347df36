"""Places inside a plain network that methods look at or change, and its stages."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.ensemble import DomainEnsemble

Change = Callable[[Tensor], Tensor | None]
"""What to put in a tensor's place, or None to leave it."""


def stages(model: nn.Module) -> dict[str, int]:
    """The layers after which features change their scale, in order, and their channels.

    They are ``layer1`` to ``layer4`` of ResNets, and the last four that timm names of its networks.
    Of others they are the convolutions in front of the last batch-norm layer of each width, the
    last four.

    Raises:
        ValueError: There is none.
    """
    told: Any = getattr(model, "feature_info", None)
    if isinstance(told, list):
        return {known["module"]: known["num_chs"] for known in told[-4:]}
    blocks = {name: getattr(model, name, None) for name in (f"layer{n}" for n in range(1, 5))}
    if all(isinstance(block, nn.Module) for block in blocks.values()):
        return {name: _norms(block)[-1].num_features for name, block in blocks.items()}
    convolutions: dict[int, str] = {}
    widths: dict[int, str] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Conv2d):
            convolutions[layer.out_channels] = name
        elif isinstance(layer, _BatchNorm) and not isinstance(layer, nn.BatchNorm1d):
            widths.pop(layer.num_features, None)  # to the end
            widths[layer.num_features] = convolutions.get(layer.num_features, name)
    if not widths:
        raise ValueError("the network has no batch-norm layer beside which to look at its features")
    return {name: width for width, name in list(widths.items())[-4:]}


def _norms(block: Any) -> list[_BatchNorm]:
    return [layer for layer in block.modules() if isinstance(layer, _BatchNorm)]


@contextmanager
def at_input(net: nn.Module, name: str, change: Change) -> Iterator[None]:
    """A context in which the input of a layer is looked at, or changed, in this thread."""
    ours = threading.get_ident()

    def hook(_: nn.Module, inputs: tuple[Tensor]) -> Tensor | None:
        return change(inputs[0]) if threading.get_ident() == ours else None

    handle = layer_of(net, name).register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def at_outputs(net: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """A context in which the outputs of layers are looked at, or changed, in this thread."""
    ours = threading.get_ident()

    def hook(change: Change) -> Callable[[nn.Module, tuple[Tensor], Tensor], Tensor | None]:
        return lambda _, __, x: change(x) if threading.get_ident() == ours else None

    with ExitStack() as stack:
        for name, change in changes.items():
            stack.callback(layer_of(net, name).register_forward_hook(hook(change)).remove)
        yield


def layer_of(net: nn.Module, name: str) -> nn.Module:
    """The layer of that name in a plain network, also if that has been converted since."""
    return (net.model if isinstance(net, DomainEnsemble) else net).get_submodule(name)
