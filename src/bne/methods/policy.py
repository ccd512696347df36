"""The paper's training policy: a warm-up that tells the domains apart, then the mixture."""

from abc import abstractmethod
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from bne.ensemble import DomainEnsemble
from bne.methods.method import Method

WARM_UP, DISTANCE_TRAINING = "warm-up", "distance training"

When = Literal["never", "always", "after warm-up"]


class BranchMethod(Method):
    """One branch per domain, trained each on its own images or as a mixture.

    A subclass makes `net`, says what the mixture's loss is, and how unknown images are predicted.

    Args:
        distance_training: when the loss is that of the mixture; otherwise every image is run under
            its own domain.
    """

    net: DomainEnsemble

    def __init__(self, distance_training: When) -> None:
        super().__init__()
        if distance_training not in get_args(When):
            raise ValueError(
                f"distance_training must be one of {list(get_args(When))}, "
                f"not {distance_training!r}"
            )
        self.distance_training = distance_training
        self.begin_epoch(0, 0)

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Leaves the warm-up when its epochs are over."""
        when = self.distance_training
        mixes = when == "always" or (when == "after warm-up" and epoch >= warm_up)
        self.stage = DISTANCE_TRAINING if mixes else WARM_UP

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss of the mixture or, in the warm-up, of each image's own branch."""
        if self.stage == WARM_UP:
            return F.cross_entropy(self.net(images, domains), labels)
        return self.mixture_loss(images, labels, domains)

    @abstractmethod
    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss in distance training, a scalar; the arguments are those of `loss`."""

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs every image under its own domain."""
        self.net(images, domains)
