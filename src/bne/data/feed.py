"""Brings training batches to the device: from images in its memory, or streamed ahead of use.

The batches are the same either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch

from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches
from bne.data.decoding import in_threads
from bne.data.transform import pick, upload
from bne.models.registry import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from bne.data.cache import PreparedImages

READERS = 4
AHEAD = 8  # batches read before they are asked for
USUAL = 64  # images in a batch

Item = TypeVar("Item")


class Batch(NamedTuple):
    """One step's images of some or all of K domains, in domain order, on the device.

    Attributes:
        images: (B, 3, size, size) float32, augmented and normalized, in `channels_last` format.
        labels: (B,) int64.
        domains: (B,) int64, in 0..K-1.
        step: Steps of training before this one.
    """

    images: Tensor
    labels: Tensor
    domains: Tensor
    step: int


class Feed:
    """Images on a device, batch by batch.

    Attributes:
        resident: Whether all images lie in the device's memory.
    """

    def __init__(
        self,
        prepared: PreparedImages,
        device: torch.device | str,
        *,
        resident: bool | None = None,
    ) -> None:
        """Moves the images to the device if they fit, and on a GPU readies it to make batches.

        Args:
            prepared: The images.
            device: The place of the batches. On the CPU the memory map is used as it is.
            resident: Whether to move all images to the device now; by default if they fit.
        """
        self._device = torch.device(device)
        self.resident = fits(prepared.pixels, self._device) if resident is None else resident
        pixels = prepared.pixels.to(self._device) if self.resident else prepared.pixels
        self._images = pixels.permute(0, 3, 1, 2)
        self._labels = prepared.labels
        # One for all epochs: every stream keeps the memory it has once used.
        self._side = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        if self._side is not None:
            self._load_kernels()

    def epoch(self, batches: DomainBatches, augmentation: Augmentation) -> Iterator[Batch]:
        """The rest of the present epoch; on a GPU, each batch made while the last one is used.

        `batches.step` counts a batch as soon as it is handed out: save its state after the step
        that used it.
        """
        for batch in ahead(self._batches(batches, augmentation), self._side):
            batches.step = batch.step + 1
            yield batch

    def gather(self, numbers: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images as they are and their labels, on the device, batch by batch.

        Args:
            numbers: (B,) int64 on the CPU, the images of each batch; `torch.arange(n).split(256)`
                for all in order.

        Yields:
            (B, 3, H, W) uint8 images in `channels_last` format and (B,) int64 labels.
        """
        for images, chosen, labels in self._find(numbers):
            yield images if chosen is None else pick(images, chosen), labels

    def _load_kernels(self) -> None:
        """Makes a batch for nothing: at first use CUDA loads kernels and sets memory aside."""
        known = Preprocessing(self._images.shape[-1]).for_channels(self._images.shape[1])
        crops = Augmentation("paper", known)
        for _ in self.epoch(DomainBatches({"any": [0]}, USUAL, epoch=1), crops):
            pass

    def _batches(self, batches: DomainBatches, augmentation: Augmentation) -> Iterator[Batch]:
        steps = batches.rest_of_epoch()

        def numbers(step: int) -> Tensor:
            mixture = augmentation.mixture(batches, step)
            return (
                batches.batch(step) if mixture is None else batches.whole(step)[mixture.positions]
            )

        found = self._find(map(numbers, steps))
        for step, (images, chosen, labels) in zip(steps, found, strict=True):
            mixture, positions = augmentation.mixture(batches, step), batches.positions
            if mixture is not None:
                positions = mixture.positions
                labels = labels.index_select(0, upload(mixture.own, self._device))
            changed = augmentation(images, step, positions, chosen, mixture)
            yield Batch(changed, labels, upload(batches.domains(step), self._device), step)

    def _find(self, numbers: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
        """Images on the device, which of them were asked for (None: all), and their labels."""
        if self.resident:
            for chosen in numbers:
                yield self._images, chosen, upload(self._labels[chosen], self._device)
        else:  # read early, up to `AHEAD` batches: copying memory frees the interpreter lock
            for images, labels in in_threads(self._read, numbers, READERS, AHEAD):
                yield upload(images, self._device), None, upload(labels, self._device)

    def _read(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        images = pick(self._images, numbers)
        return images.pin_memory() if self._side else images, self._labels[numbers]


def ahead(items: Iterator[Item], side: torch.cuda.Stream | None) -> Iterator[Item]:
    """Makes each item on a GPU stream of its own while the one before it is used.

    Args:
        items: Things to hand out, made when asked for.
        side: A stream to make them on; without one, items are handed out as they are made.
    """
    if side is None:
        yield from items
        return

    def make() -> Item | None:
        # Items handed out earlier are perhaps still in use, and their memory is used again here.
        side.wait_stream(torch.cuda.current_stream(side.device))
        with torch.cuda.stream(side):
            return next(items, None)

    item = make()
    while item is not None:
        torch.cuda.current_stream(side.device).wait_stream(side)
        following = make()
        yield item
        item = following


def fits(pixels: Tensor, device: torch.device) -> bool:
    """Whether the images take at most half the memory that is now free on the device.

    Always on the CPU, where nothing is moved. The other half is for the network, its gradients and
    its activations; devices that cannot say how much is free are fed by streaming.
    """
    if device.type == "cpu":
        return True
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return pixels.numel() * 2 <= free
