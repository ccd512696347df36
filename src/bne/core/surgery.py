"""Exchanging the batch-norm layers of a network for domain-aware ones, and back."""

import copy
from collections import Counter
from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from bne.core.moments import at_least_float32
from bne.core.norm import FUSED, DomainBatchNorm, domain_layers
from bne.core.passes import Passes, start_sharing, stop_sharing
from bne.core.shortcuts import fuse, unfuse

Momentum = float | None | Literal["keep"]

_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
_TENSORS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_TORCH_FORWARDS = {_BatchNorm.forward, nn.SyncBatchNorm.forward}


def check_copyable(model: nn.Module) -> None:
    """Checks that the batch-norm layers of a network can be copied.

    Raises:
        TypeError: It is no network.
        ValueError: A layer is synchronized over a process group of its own.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"the network must be an nn.Module, not {model!r}: build it first")
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm) and module.process_group is not None:
            raise ValueError(
                f"layer {name!r} is synchronised over a process group of its own, which cannot be "
                "copied: convert the network first with process_group=None, which is the group of "
                "all processes"
            )


def check_momentum(momentum: Momentum) -> None:
    """Checks a batch-norm layer's momentum.

    Raises:
        ValueError: It is no share, nor None or "keep".
    """
    if not (momentum is None or momentum == "keep" or _is_share(momentum)):
        raise ValueError(f"momentum must be between 0 and 1, None or 'keep', not {momentum!r}")


def install(
    model: nn.Module,
    num_domains: int,
    momentum: Momentum,
    synchronised: bool | None = None,
    *,
    shortcuts: bool = True,
) -> nn.Module:
    """Exchanges every batch-norm layer of `model`, in place, for a domain-aware one.

    Every domain starts from the layer's running statistics, and counts its own batches from 0. The
    result is `model`, unless that is itself a batch-norm layer.

    Args:
        model: any network.
        num_domains: the number of domains, K.
        momentum: the new layers' momentum; "keep" uses each old layer's own.
        synchronised: whether batch statistics are those of all processes; None leaves it open,
            except for layers that are synchronized already.
        shortcuts: whether plain convolutions and poolings get faster subclasses, see `bne.convert`.
    """
    check_momentum(momentum)
    check_copyable(model)
    passes = Passes()
    layers: dict[nn.Module, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, DomainBatchNorm):
            raise ValueError(f"the network is converted already: {name!r} is domain-aware")
        if isinstance(module, _BatchNorm):
            layers[module] = layer = _domain_layer(module, name, num_domains, momentum)
            layer.passes = passes
            known = isinstance(module, nn.SyncBatchNorm) or None
            layer.synchronised = known if synchronised is None else synchronised
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no batch-norm layer; "
            f"its normalization layers are: {_norms(model)}"
        )
    if shortcuts:
        for module in _before(next(iter(layers)), model):
            start_sharing(module, passes)
        for module in model.modules():
            fuse(module)
    return _exchange(model, layers)


def remove(model: nn.Module, domain: int | None) -> nn.Module:
    """Puts layers of the original classes back, in place.

    Args:
        model: a network that `install` has changed.
        domain: the domain whose statistics the layers get; None pools those of all domains.
    """
    layers: dict[nn.Module, nn.Module] = {
        layer: _plain_layer(layer, domain) for layer in domain_layers(model)
    }
    for module in model.modules():
        stop_sharing(module)
        unfuse(module)
    return _exchange(model, layers)


def _before(layer: nn.Module, model: nn.Module) -> Iterator[nn.Module]:
    """The modules that come before a layer in the network's own order."""
    return takewhile(lambda module: module is not layer, model.modules())


def _domain_layer(
    plain: _BatchNorm, name: str, num_domains: int, momentum: Momentum
) -> DomainBatchNorm:
    parts = dict(plain.named_children())
    if type(plain).forward not in _TORCH_FORWARDS and not parts.keys() & set(FUSED):
        raise ValueError(
            f"layer {name!r} is a {type(plain).__name__}, a batch norm with a forward of its own: "
            "what it adds to batch norm would be lost"
        )
    if any(getattr(plain, f"_{kind}_hooks") for kind in _HOOKS):
        raise ValueError(
            f"layer {name!r} has hooks, which would be lost: remove them, convert the network, and "
            "register them again"
        )
    if is_parametrized(plain):
        raise ValueError(
            f"layer {name!r} has parametrized weights, which would be lost: call "
            "torch.nn.utils.parametrize.remove_parametrizations on them first"
        )
    tensors = chain(plain.named_parameters(recurse=False), plain.named_buffers(recurse=False))
    if own := [key for key, _ in tensors if key not in _TENSORS]:
        raise ValueError(
            f"layer {name!r} is a {type(plain).__name__} with a tensor of its own, {own[0]!r}, "
            "which would be lost"
        )
    layer = DomainBatchNorm(
        plain.num_features,
        num_domains,
        eps=plain.eps,
        momentum=plain.momentum if momentum == "keep" else momentum,
        affine=plain.affine,
        track_running_stats=plain.running_mean is not None,
    )
    # May be set later, apart from buffers; torch leaves statistics alone for a momentum of 0, too.
    still = momentum == "keep" and plain.momentum == 0
    layer.track_running_stats = plain.track_running_stats and not still
    layer.name = name
    layer.weight, layer.bias = plain.weight, plain.bias
    for key, value in plain.named_buffers(recurse=False):
        old = value.new_zeros(()) if key == "num_batches_tracked" else at_least_float32(value)
        setattr(layer, key, old.repeat(num_domains, *(1,) * old.ndim))
    for key, part in parts.items():
        layer.add_module(key, part)
    # Kept without its tensors, so that `remove` can rebuild the very class with all it carries;
    # in a tuple, so that it is no part of the network.
    layer.original = (copy.deepcopy(plain).to("meta"),)
    return layer.train(plain.training)


def _plain_layer(layer: DomainBatchNorm, domain: int | None) -> nn.Module:
    if layer.original is None:
        raise ValueError(
            f"layer {layer.name!r} is a {type(layer).__name__} that stands for no plain layer: "
            "there is no plain network that does the same"
        )
    plain = copy.deepcopy(layer.original[0])
    plain.register_parameter("weight", layer.weight)
    plain.register_parameter("bias", layer.bias)
    if layer.population is not None and layer.num_batches_tracked is not None:
        if domain is None:
            assert layer.centre is not None
            mean, var = (statistic.squeeze(0) for statistic in layer.centre)
            plain.num_batches_tracked = layer.num_batches_tracked.amax()
        else:
            mean, var = (statistic[domain].clone() for statistic in layer.population)
            plain.num_batches_tracked = layer.num_batches_tracked[domain].clone()
        alike = plain.running_mean if layer.weight is None else layer.weight
        assert isinstance(alike, Tensor)
        plain.running_mean, plain.running_var = mean.to(alike.dtype), var.to(alike.dtype)
    for key, child in layer.named_children():
        plain.add_module(key, child)
    return plain.train(layer.training)


def _is_share(value: object) -> bool:
    return isinstance(value, float | int) and 0 <= value <= 1


def _exchange(model: nn.Module, layers: dict[nn.Module, nn.Module]) -> nn.Module:
    for module in model.modules():
        # `named_children` would pass over a layer's second name in the same module.
        for name, child in module._modules.items():
            if child in layers:
                module._modules[name] = layers[child]
    return layers.get(model, model)


def _norms(model: nn.Module) -> str:
    kinds = Counter(
        type(module).__name__
        for module in model.modules()
        if "norm" in type(module).__name__.lower()
    )
    return ", ".join(f"{kind} ×{count}" for kind, count in kinds.items()) or "none"
