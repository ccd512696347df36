"""Training steps as CUDA graphs: recorded once, replayed without the CPU's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from bne.engine.step import TrainingStep

WARM_UP = 3  # steps, so that libraries choose their algorithms before anything is recorded


class GraphedStep:
    """A training step that records itself after a few calls.

    The first calls are ordinary steps of training on a stream of their own, as recording demands;
    so nothing is computed that does not count. A step of another shape starts over.

    Args:
        step: what is recorded. Everything it changes must stay where it is in memory.
        device: a GPU.
    """

    def __init__(self, step: TrainingStep, device: torch.device) -> None:
        self._step = step
        self._side = torch.cuda.Stream(device)
        self._fixed: list[Tensor] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0

    def __call__(self, images: Tensor, labels: Tensor, domains: Tensor) -> None:
        """Trains on one batch, as `TrainingStep` does."""
        batch = (images, labels, domains)
        if [tensor.shape for tensor in self._fixed] != [tensor.shape for tensor in batch]:
            self._fixed = [tensor.clone() for tensor in batch]
            self._graph = None
            self._calls = 0
        for own, given in zip(self._fixed, batch, strict=True):
            own.copy_(given)
        self._calls += 1
        if self._calls <= WARM_UP:
            self._run_aside()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may read images and pin their memory meanwhile.
            with torch.cuda.graph(
                self._graph, stream=self._side, capture_error_mode="thread_local"
            ):
                self._step(*self._fixed)
        self._graph.replay()

    def _run_aside(self) -> None:
        here = torch.cuda.current_stream(self._side.device)
        self._side.wait_stream(here)
        with torch.cuda.stream(self._side):
            self._step(*self._fixed)
        here.wait_stream(self._side)
