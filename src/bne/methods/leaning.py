"""Networks of methods, plain or converted, whose images lean on their own statistics."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bne.core.activations import image_moments, mapped
from bne.core.ensemble import DomainEnsemble
from bne.core.moments import (
    Moments,
    at_least_float32,
    leaned,
    samples_of,
    values_per_channel,
)
from bne.core.norm import DomainBatchNorm
from bne.core.options import kept_lean, lean_shares

if TYPE_CHECKING:
    from bne.core.options import Lean


class Leaning(nn.Module):
    """What has a network, `net`, that may lean in evaluation.

    A plain network stays the plain one: its layers' inputs are moved.

    Attributes:
        net: the network.
        can_lean: whether images may lean on their own statistics in evaluation.
    """

    net: nn.Module
    can_lean: ClassVar[bool] = True
    _lean: Lean = 0.0
    _hooks: list[Any] | None = None

    @property
    def has_batch_norm(self) -> bool:
        """Whether the network has any layer at which images could lean."""
        layers = (_BatchNorm, DomainBatchNorm)
        return any(isinstance(module, layers) for module in self.net.modules())

    @property
    def lean(self) -> Lean:
        """How far images lean on their own statistics in evaluation; see `DomainEnsemble.lean`.

        No part of the state dict. A plain network that was compiled at 0 does not lean: compile it
        again.

        Raises:
            ValueError: It is set to what is no share, or the method does not lean.
        """
        return self.net.lean if isinstance(self.net, DomainEnsemble) else kept_lean(self._lean)

    @lean.setter
    def lean(self, lean: Lean) -> None:
        if lean and not self.can_lean:
            raise ValueError(
                f"{type(self).__name__} does not lean on its images' statistics: leave lean at 0"
            )
        if isinstance(self.net, DomainEnsemble):
            self.net.lean = lean
            return
        named = self.net.named_modules()
        layers = {name: layer for name, layer in named if isinstance(layer, _BatchNorm)}
        shares = lean_shares(lean, layers)
        for hook in self._hooks or ():
            hook.remove()
        self._hooks, batch = [], _Batch()
        for name, share in shares.items():
            if share:
                lean_input = partial(self._leaning_input, batch=batch, share=share)
                self._hooks.append(layers[name].register_forward_pre_hook(lean_input))
        if self._hooks:
            self._hooks.append(self.net.register_forward_pre_hook(batch.count, prepend=True))
            self._hooks.append(self.net.register_forward_hook(batch.forget))
        self._lean = kept_lean(lean)

    def _leaning_input(
        self, layer: nn.Module, inputs: tuple[Tensor], *, batch: _Batch, share: float
    ) -> tuple[Tensor] | None:
        """The input that a plain layer normalizes as if it leaned on the given one."""
        assert isinstance(layer, _BatchNorm)
        (x,) = inputs
        mean, var = layer.running_mean, layer.running_var
        if self.training or mean is None or var is None:
            return None
        # Where a method runs a part of its network alone, every row is an image.
        samples = samples_of(x, batch.images or x.shape[0])
        if values_per_channel(samples) == 1:
            return None
        mean, var = at_least_float32(mean), at_least_float32(var)
        known, own = Moments(mean, var), image_moments(samples)
        point = leaned(known, own, mean.new_full((), share), layer.eps)
        scale = ((var + layer.eps) / (point.var + layer.eps)).sqrt()
        return (mapped(samples, scale, mean - point.mean * scale),)


class _Batch(threading.local):
    """How many images the network is run on, in this thread; each may own several of its rows."""

    images: int = 0

    def count(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        self.images = inputs[0].shape[0]

    def forget(self, *_: object) -> None:
        self.images = 0

    def __reduce__(self) -> tuple[type[_Batch], tuple[()]]:
        return _Batch, ()  # no two copies run at once
