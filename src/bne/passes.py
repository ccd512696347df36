"""Passes through a network: how its layers normalise, and what the copies of an image share.

The branches of an image are copies of it in one batch. Until the first batch norm nothing tells
them apart, so a convolution that meets the copies treats the images once and copies the result.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Rule = Callable[[Any, Tensor], Tensor]
"""What a pass does at every domain-aware layer: takes it and its input, returns the output."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Copies(NamedTuple):
    """Images, and the network's input in a pass that runs every image several times.

    Attributes:
        images: (N, ...).
        number: how often each is run.
        rows: (number * N, ...), all images, then all again, and so on.
    """

    images: Tensor
    number: int
    rows: Tensor


class Passes(threading.local):
    """What the current thread does with a network; all the network's layers hold the same object.

    Being local to a thread, it lets one network serve several threads at once.

    Attributes:
        rule: of the current pass.
        copies: that the network was given in the current pass, if it was given any.
    """

    rule: Rule | None = None
    copies: Copies | None = None

    def copy(self, images: Tensor, number: int) -> Tensor:
        """The input of a pass that runs every image `number` times, (number * N, ...)."""
        if number == 1:
            return images
        self.copies = Copies(images, number, copied(images, number))
        return self.copies.rows

    def __reduce__(self) -> tuple[type["Passes"], tuple[()]]:
        return Passes, ()  # a copy, or a module read from a file, is in no pass


class Pass:
    """The context of a pass, which may be run again, in which all layers normalise by one rule."""

    def __init__(self, passes: Passes, rule: Rule) -> None:
        self.passes, self.rule = passes, rule

    def __enter__(self) -> None:
        self.passes.rule, self.passes.copies = self.rule, None

    def __exit__(self, *_: object) -> None:
        self.passes.rule, self.passes.copies = None, None


class SharedInput:
    """Hooks of a convolution, by which it treats copies of an image once.

    Args:
        passes: of the network that the convolution belongs to.
    """

    def __init__(self, passes: Passes) -> None:
        self.passes = passes

    def attach(self, module: nn.Module) -> None:
        """Registers both hooks."""
        module.register_forward_pre_hook(self.before)
        module.register_forward_hook(self.after)

    @staticmethod
    def detach(module: nn.Module) -> None:
        """Removes what `attach` registered."""
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key, hook in list(hooks.items()):
                if isinstance(getattr(hook, "__self__", None), SharedInput):
                    del hooks[key]

    def before(self, _: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Puts the images in the place of their copies."""
        copies = self.passes.copies
        if copies is None or not inputs or inputs[0] is not copies.rows:
            return None
        return copies.images, *inputs[1:]

    def after(self, _: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """Copies what the images gave."""
        copies = self.passes.copies
        if copies is None or not inputs or inputs[0] is not copies.images:
            return None
        return copied(output, copies.number)


def copied(x: Tensor, number: int) -> Tensor:
    """All of `x`, then all again, and so on."""
    return torch.cat([x] * number)  # `repeat` would lose channels-last
