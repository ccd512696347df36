"""Counts over many batches, kept on the device until they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

BINS = 15


class Sums:
    """Named sums that grow batch by batch without the host waiting for the device."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], Tensor] = {}

    def add(self, *name: str, value: Tensor) -> None:
        """Adds a tensor, of the same shape under the same name."""
        value = value.double() if value.is_floating_point() else value.long()
        self._sums[name] = self._sums[name] + value if name in self._sums else value

    def get(self, *name: str) -> Any:
        """The sum, as a number or nested lists of numbers."""
        return self._sums[name].tolist()

    def names(self, *start: str) -> list[str]:
        """What follows `start` in the names, in the order they first came."""
        depth = len(start)
        return list(dict.fromkeys(n[depth] for n in self._sums if n[:depth] == start))


def calibration(logits: Tensor, labels: Tensor) -> Tensor:
    """Images, confidence and correct answers in each of 15 equal bins of confidence, (3, 15).

    Args:
        logits: (N, classes).
        labels: (N,).
    """
    confidence, answers = logits.double().softmax(1).max(1)
    bins = (confidence * BINS).long().clamp_max(BINS - 1)
    counted = torch.stack([torch.ones_like(confidence), confidence, (answers == labels).double()])
    return counted.new_zeros(3, BINS).index_add_(1, bins, counted)


def calibration_error(bins: list[list[float]]) -> float:
    """The expected calibration error: the mean gap of confidence and accuracy, in [0, 1]."""
    count, confidence, correct = bins
    return sum(abs(a - b) for a, b in zip(confidence, correct, strict=True)) / sum(count)


def confusion(answers: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes, classes): how many images of each class, a row, were taken for each, a column.

    Args:
        answers: (N,).
        labels: (N,).
        classes: how many there are.
    """
    pairs = labels * classes + answers
    counts = pairs.new_zeros(classes * classes).index_add_(0, pairs, torch.ones_like(pairs))
    return counts.view(classes, classes)
