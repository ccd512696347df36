"""Max-pooling by our own GPU kernels, if they are faster.

A network's first pooling sees its largest activations, in every branch. PyTorch's own took a
seventh of a step of distance training with ResNet-18 on a GPU.
"""

from typing import Any

from torch import Tensor, nn

from bne.core.kernels import pooling_for


class FusedMaxPool2d(nn.MaxPool2d):
    """A `MaxPool2d` with the same results; see `fuse`."""

    def forward(self, input: Tensor) -> Any:  # noqa: A002 - by that name in torch
        """The maxima, and their indices if `return_indices` is set."""
        given = self.kernel_size, self.stride, self.padding, self.dilation
        size, stride, padding, dilation = map(_pair, given)
        suits = (
            dilation == (1, 1)
            and min(size) > 0
            and size[0] * size[1] <= 25  # compiling takes much longer for larger windows
            and min(stride) > 0
            and min(padding) >= 0
            and not (self.ceil_mode or self.return_indices)
        )
        pooling = pooling_for(input) if suits else None
        if pooling is None:
            return super().forward(input)
        return pooling.max_pool(input, size, stride, padding)


def fuse(module: nn.Module) -> None:
    """Lets a plain `MaxPool2d` use our kernels if they are faster."""
    if type(module) is nn.MaxPool2d:
        module.__class__ = FusedMaxPool2d


def unfuse(module: nn.Module) -> None:
    """Undoes `fuse`."""
    if type(module) is FusedMaxPool2d:
        module.__class__ = nn.MaxPool2d  # type: ignore[assignment]


def _pair(size: object) -> tuple[int, int]:
    """Height and width; negative if only torch understands them."""
    match size:
        case int():
            return size, size
        case [int(height), int(width)]:
            return height, width
    return -1, -1
