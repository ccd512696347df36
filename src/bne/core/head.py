"""The head again: a network's last layer, fitted to its features as they are in use."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.ensemble import DomainEnsemble


def fit_head(
    net: DomainEnsemble,
    loader: Iterable[Sequence[Any]],
    *,
    head: str | None = None,
    epochs: int = 10,
    learning_rate: float = 1e-3,
) -> None:
    """Fits the last layer of a network again; everything else stays as it is.

    The network runs as in use, in evaluation mode and leaning as far as `net.lean` says. So a
    network that was trained without leaning gets a head that expects it.

    Args:
        net: the network, changed in place.
        loader: batches of images, (N, ...), and labels, (N,), which may be read once per epoch;
            whatever else is in a batch is ignored.
        head: the layer's name in `net.model`; None takes the last linear layer.
        epochs: the number of times to go through the images.
        learning_rate: Adam's.

    Raises:
        ValueError: There is no such layer, or no images, or a loss that is not finite.
    """
    if not isinstance(net, DomainEnsemble):
        raise TypeError(f"only what bne.convert made can lean, not a {type(net).__name__}")
    layer = head_of(net, head)
    modes = {module: module.training for module in net.modules()}
    frozen = {parameter: parameter.requires_grad for parameter in net.parameters()}
    net.eval().requires_grad_(False)
    layer.requires_grad_(True)
    device = next(layer.parameters()).device
    optimiser = torch.optim.Adam(layer.parameters(), learning_rate)
    try:
        for _ in range(epochs):
            batches = 0
            for images, labels, *_ in loader:
                optimiser.zero_grad(set_to_none=True)
                loss = F.cross_entropy(_logits(net, images.to(device)), labels.to(device))
                loss.backward()
                optimiser.step()
                torch.clear_autocast_cache()  # which holds the layer as it was before the step
                batches += 1
            if not batches:
                raise ValueError("the loader gives no images, or can be read only once")
            if not loss.isfinite():
                raise ValueError("the loss is not finite: lower the learning rate")
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, wanted in frozen.items():
            parameter.requires_grad_(wanted)
            parameter.grad = None


def head_of(net: DomainEnsemble, name: str | None = None) -> nn.Module:
    """The layer of that name in `net.model`, or the last linear one.

    Raises:
        ValueError: There is no such layer.
    """
    if name is not None:
        layers: dict[str, nn.Module] = dict(net.model.named_modules())
        if name not in layers or not any(True for _ in layers[name].parameters()):
            raise ValueError(f"the network has no layer {name!r} with weights")
        return layers[name]
    linear = [module for module in net.model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("the network has no linear layer: name its last layer with head=")
    return linear[-1]


def _logits(net: DomainEnsemble, images: Tensor) -> Tensor:
    with torch.enable_grad():
        logits: Tensor = net(images)
    return logits
