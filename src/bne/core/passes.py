"""Passes through a network: how its layers normalize, and what passes of the same images share.

One network serves many passes: each image under its own statistics, and once under each domain. A
pass sets a rule. Every batch-norm layer hands its input to the rule, which normalizes it:

    ensemble        with Pass(passes, rule): model(images)
                          |
    model           conv -> batch norm -> relu -> conv -> batch norm -> ...
                               |    ^                         |    ^
    rule                   rule(layer, x)                 rule(layer, x)
                               |    |                         |    |
    layer                  layer.by_domain, by_instance or by_mixture

The passes are the same until the first batch norm, so a convolution of the images themselves runs
once for all.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from bne.core.together import Together

Rule = Callable[[Any, Tensor], Tensor]
"""What a pass does at every domain-aware layer: takes it and its input, returns the output."""


class Passes(threading.local):
    """The state of the current pass; all layers of a network hold the same object.

    It is local to a thread, so one network can serve several threads at once.

    Attributes:
        rule: the current pass's rule.
        placing: whether the current pass is the one that places images among the domains.
        shared: what the current passes share, if they run the same images.
        together: what stands for the statistics of each image, if all are one domain.
    """

    def __init__(self) -> None:  # in every thread
        self.rule: Rule | None = None
        self.placing = False
        self.shared: Shared | None = None
        self.together: Together | None = None

    def copies(self, images: Tensor, number: int) -> Tensor:
        """The input of a pass that runs every image so many times, (number * N, ...)."""
        shared = self.shared
        if shared is not None and shared.images is images:
            shared.number, shared.rows = number, copied(images, number)
            return shared.rows
        return images if number == 1 else copied(images, number)

    def __reduce__(self) -> tuple[type["Passes"], tuple[()]]:
        return Passes, ()  # a copy, or a module read from a file, is in no pass


class Pass:
    """The context of a pass, which may be run again, in which all layers normalize by one rule.

    Args:
        passes: the network's state.
        rule: of the pass.
        placing: whether the pass places images among the domains.
    """

    def __init__(self, passes: Passes, rule: Rule, *, placing: bool = False) -> None:
        self.passes, self.rule, self.placing = passes, rule, placing

    def __enter__(self) -> None:
        self.passes.rule, self.passes.placing = self.rule, self.placing

    def __exit__(self, *_: object) -> None:
        self.passes.rule, self.passes.placing = None, False


class Shared:
    """The context of several passes of the same images.

    Args:
        passes: the network's state.
        images: (N, ...).

    Attributes:
        number: the number of times the current pass runs every image.
        rows: (number * N, ...), the current pass's input, until a convolution has used it.
        done: the convolutions' outputs for the images, by weights and with or without gradient.
    """

    def __init__(self, passes: Passes, images: Tensor) -> None:
        self.passes, self.images = passes, images
        self.number = 0
        self.rows: Tensor | None = None
        self.done: dict[tuple[object, ...], Tensor] = {}

    def __enter__(self) -> None:
        self.passes.shared = self

    def __exit__(self, *_: object) -> None:
        self.passes.shared = None

    def of_images(self, layer: nn.Module, x: Tensor, treat: Callable[[Tensor], Tensor]) -> Tensor:
        """A convolution's output for `x`; if that is the pass's input, made once for all passes.

        Args:
            layer: the convolution.
            x: the convolution's input.
            treat: the convolution's forward pass.
        """
        if x is not self.rows:
            return treat(x)
        # A network may change its input in place, before this and after: so `x` is what counts, not
        # the images, and it counts once. It may go on in place too: so the result is copied.
        self.rows = None
        key = layer, layer.weight, torch.is_grad_enabled()
        if key not in self.done:
            self.done[key] = treat(x[: self.images.shape[0]])
        return copied(self.done[key], self.number)


class _Convolution(nn.Module):
    """A convolution whose input may be the images themselves.

    Attributes:
        passes: the state of the current pass, shared by all layers of the network.
    """

    passes: Passes

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - by that name in torch
        """Convolves; images that run several times are convolved once."""
        shared, treat = self.passes.shared, super().forward
        return treat(input) if shared is None else shared.of_images(self, input, treat)


class SharedConv1d(_Convolution, nn.Conv1d):
    """See `start_sharing`."""


class SharedConv2d(_Convolution, nn.Conv2d):
    """See `start_sharing`."""


class SharedConv3d(_Convolution, nn.Conv3d):
    """See `start_sharing`."""


_SHARED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: SharedConv1d,
    nn.Conv2d: SharedConv2d,
    nn.Conv3d: SharedConv3d,
}
_PLAIN = {shared: plain for plain, shared in _SHARED.items()}


def start_sharing(module: nn.Module, passes: Passes) -> None:
    """Lets a plain convolution run once for images that run several times."""
    if type(module) in _SHARED:
        module.__class__ = _SHARED[type(module)]
        module.passes = passes  # type: ignore[assignment]


def stop_sharing(module: nn.Module) -> None:
    """Undoes `start_sharing`."""
    if type(module) in _PLAIN:
        module.__class__ = _PLAIN[type(module)]
        del module.passes


def copied(x: Tensor, number: int) -> Tensor:
    """All of `x`, then all again, and so on."""
    return torch.cat([x] * number)  # `repeat` would lose channels-last
