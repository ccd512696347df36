"""Batch normalization statistics measured from images, for weights that come without them."""

from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.moments import Moments, combine
from bne.errors import DataError


@torch.no_grad()
def calibrate_batch_norm(model: nn.Module, images: Tensor | Iterable[Tensor]) -> None:
    """Make every BN layer of ``model`` standardize its input over ``images``, in place.

    Layer after layer, in the order they run, the running mean and the biased running variance
    become exactly those of the layer's input over all the images, with the layers before it
    already calibrated; γ becomes 1 and β 0. Layers that do not run in eval mode stay as they are.

    The images are run once for each layer.

    Args:
        model: A network with BN layers, each used at most once in a forward pass.
        images: One batch, (N, 3, H, W), on the model's device, or a collection of batches (a list,
            a data loader without shuffling or augmentation) that gives the same images each time.
    """
    batches = [images] if isinstance(images, Tensor) else images
    if iter(batches) is batches:
        raise TypeError("images can be read only once, but every BN layer needs them: pass a list")
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for layer in _layers_in_order(model, batches):
            mean, variance = _input_statistics(model, layer, batches)
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(mean)
            layer.running_var.copy_(variance)
            if layer.weight is not None:
                nn.init.ones_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    finally:
        for module, training in modes.items():
            module.training = training


def _layers_in_order(model: nn.Module, batches: Iterable[Tensor]) -> list[_BatchNorm]:
    """The BN layers with running statistics in the order in which they run."""
    order: list[_BatchNorm] = []

    def note(layer: nn.Module, _: tuple[Tensor]) -> None:
        assert isinstance(layer, _BatchNorm)
        order.append(layer)

    hooks = [
        module.register_forward_pre_hook(note)
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
    try:
        first = next(iter(batches), None)
        if first is None:
            raise DataError("There are no images to calibrate BN layers with; give at least one.")
        model(first[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return order


class _Reached(Exception):  # noqa: N818 - ends a forward pass early, signals no error
    """The layer to measure has its input: the rest of the network need not run."""


def _input_statistics(model: nn.Module, layer: _BatchNorm, batches: Iterable[Tensor]) -> Moments:
    """The moments, (C,), of the layer's input over all batches."""
    counts, means, variances = [], [], []

    def measure(_: nn.Module, args: tuple[Tensor]) -> NoReturn:
        x = args[0].transpose(0, 1).flatten(1)
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(x, dim=1, correction=0)
        counts.append(x.shape[1])
        means.append(mean)
        variances.append(variance)
        raise _Reached

    hook = layer.register_forward_pre_hook(measure)
    try:
        for batch in batches:
            with suppress(_Reached):
                model(batch)
    finally:
        hook.remove()
    parts = means[0].new_tensor(counts) / sum(counts)
    return combine(Moments(torch.stack(means), torch.stack(variances)), parts)
