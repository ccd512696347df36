"""Averages of the weights, which are tested and kept instead of the last ones."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from bne.engine.recipe import Averaging


class WeightAverage:
    """The average of a method's trained parameters, if the recipe wants one.

    Batch-norm statistics are not averaged: `PhaseTraining.averaged` measures them.

    Args:
        method: whose parameters are averaged.
        settings: of the average.
        epochs: of the phase.

    Attributes:
        weights: the average, by the parameters' names; empty while there is none.
    """

    def __init__(self, method: nn.Module, settings: Averaging, epochs: int) -> None:
        self._current = {n: p for n, p in method.named_parameters() if p.requires_grad}
        self._settings = settings
        self._before_tail = epochs - max(1, round(epochs * settings.tail))
        self.weights: dict[str, Tensor] = {}
        if settings.name == "ema":
            self._start()

    @torch.no_grad()
    def after_step(self) -> None:
        """Takes a step of the exponential moving average."""
        if self._settings.name == "ema":
            update = get_ema_multi_avg_fn(self._settings.decay)
            update(list(self.weights.values()), list(self._current.values()), 0)

    @torch.no_grad()
    def after_epoch(self, epoch: int) -> None:
        """Adds an epoch of the tail to the mean.

        Args:
            epoch: its number, from 1.
        """
        if self._settings.name != "swa" or epoch <= self._before_tail:
            return
        if not self.weights:
            self._start()
            return
        averaged = epoch - self._before_tail - 1
        get_swa_multi_avg_fn()(
            list(self.weights.values()), list(self._current.values()), torch.tensor(averaged)
        )

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the method has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def adopt(self) -> None:
        """Gives the method the averaged weights for good."""
        for name, value in self.weights.items():
            self._current[name].copy_(value)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over what `weights` was."""
        self.weights = {
            name: torch.empty_like(own).copy_(weights[name])
            for name, own in self._current.items()  # in the order of the parameters
            if name in weights
        }

    @torch.no_grad()
    def _swap(self) -> None:
        # By value: a recorded step knows where the parameters lie.
        for name, value in self.weights.items():
            own = self._current[name]
            before = own.clone()
            own.copy_(value)
            value.copy_(before)

    def _start(self) -> None:
        self.weights = {name: own.detach().clone() for name, own in self._current.items()}
