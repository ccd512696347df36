"""The contract of all methods."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Method(nn.Module, ABC):
    """A way to train a network on several domains and to use it on one it has never seen.

    A method knows nothing of how images are read or checkpoints written. Calling it gives its loss,
    so that `DistributedDataParallel`, which sees `forward` alone, can wrap it.
    """

    def forward(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The same as `loss`."""
        return self.loss(images, labels, domains)

    @abstractmethod
    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss of one training batch, a scalar.

        Args:
            images: (N, 3, H, W), normalised.
            labels: (N,).
            domains: (N,), indices of the source domains, as many images of each.
        """

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """The logits of images of unknown domain, (N, classes), in evaluation mode.

        Args:
            images: (N, 3, H, W), normalised.
        """
