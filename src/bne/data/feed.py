"""Brings chosen images to the device: from its own memory, or streamed ahead of use.

The images of a batch are the same either way.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import torch

from bne.data.upload import upload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from bne.data.batches import DomainBatches
    from bne.data.prepared import PreparedImages

READERS = 4
AHEAD = 8  # batches read before they are asked for


class Batch(NamedTuple):
    """One step's images of K domains, in domain order, on the device.

    Attributes:
        images: (B, 3, size, size) uint8, in `channels_last` format.
        labels: (B,) int64.
        domains: (B,) int64, in 0..K-1.
        positions: (B,) int64, where each image stands in the batch of all processes together; on
            the CPU, for `Augmentation`.
        step: Steps of training before this one.
    """

    images: Tensor
    labels: Tensor
    domains: Tensor
    positions: Tensor
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
        """Moves the images to the device if they fit.

        Args:
            prepared: The images.
            device: Where batches are wanted. On the CPU the memory map is used as it is.
            resident: Whether to move all images to the device now; by default if `fits`.
        """
        self._device = torch.device(device)
        self.resident = fits(prepared.pixels, self._device) if resident is None else resident
        home = self._device if self.resident else torch.device("cpu")
        self._pixels = prepared.pixels.to(home)
        self._labels = prepared.labels.to(home)

    def epoch(self, batches: DomainBatches) -> Iterator[Batch]:
        """The rest of the present epoch.

        `batches.step` counts a batch as soon as it is handed out: save its state after the step
        that used it.
        """
        domains = batches.domains.to(self._device)
        steps = batches.rest_of_epoch()
        pairs = self.gather(batches.batch(step) for step in steps)
        for step, (images, labels) in zip(steps, pairs, strict=True):
            batches.step = step + 1
            yield Batch(images, labels, domains, batches.positions, step)

    def gather(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and labels on the device, for each list of image numbers in `plan`.

        Args:
            plan: (B,) int64 each, on the CPU; `torch.arange(n).split(256)` for all in order.

        Yields:
            (B, 3, size, size) uint8 images in `channels_last` format and (B,) int64 labels.
        """
        pairs = map(self._take, plan) if self.resident else self._stream(plan)
        for pixels, labels in pairs:
            yield pixels.permute(0, 3, 1, 2), labels

    def _take(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        numbers = upload(numbers, self._labels.device)
        return self._pixels.index_select(0, numbers), self._labels.index_select(0, numbers)

    def _take_pinned(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        pixels, labels = self._take(numbers)
        if self._device.type != "cuda":
            return pixels, labels
        return pixels.pin_memory(), labels.pin_memory()

    def _stream(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Reads up to `AHEAD` batches early; copying memory frees the interpreter lock."""
        with ThreadPoolExecutor(READERS) as readers:
            waiting: deque[Future[tuple[Tensor, Tensor]]] = deque()
            try:
                for numbers in plan:
                    waiting.append(readers.submit(self._take_pinned, numbers))
                    if len(waiting) > AHEAD:
                        yield self._upload(*waiting.popleft().result())
                while waiting:
                    yield self._upload(*waiting.popleft().result())
            finally:  # the caller may stop early
                readers.shutdown(cancel_futures=True)

    def _upload(self, pixels: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return (
            pixels.to(self._device, non_blocking=True),
            labels.to(self._device, non_blocking=True),
        )


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
