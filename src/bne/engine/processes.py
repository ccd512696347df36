"""The processes that share a run, as `torchrun` starts them."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from bne.engine.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

LOST = ("by peer", "remote process exit")  # gloo's and NCCL's words for a process that has ended


@dataclass(frozen=True)
class Processes:
    """This process among all.

    Attributes:
        device: of this process.
        rank: its number.
        count: of all processes.
    """

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that evaluates and writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Adds up every process's values, in place; they lie on the device."""
        if self.count > 1:
            distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        """Returns when all processes have come here."""
        self.sum(torch.zeros(1, device=self.device)).item()

    def share(self, method: nn.Module) -> nn.Module:
        """What to call instead of a method, so that gradients are those of all processes' images.

        It lasts for one stage of the method, whose steps all leave out the same parameters, if any.
        Its batch-norm layers must pool their statistics: see `bne.engine.synchronised`.
        """
        if self.count == 1:
            return method
        # `no_sync` does not go with a static graph: gradients are exchanged after every backward.
        return DistributedDataParallel(
            method,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            static_graph=True,
        )


@contextmanager
def joined(device: torch.device | str) -> Iterator[Processes]:
    """Joins the other processes, if `torchrun` started any, for as long as the context lasts.

    Args:
        device: "cuda" means this process's own GPU.

    Raises:
        TrainingError: Another process has ended before its time.
    """
    device = torch.device(device)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    ours = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not distributed.is_initialized()
    if ours:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        if distributed.is_initialized():
            yield Processes(device, distributed.get_rank(), distributed.get_world_size())
        else:
            yield Processes(device)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in LOST):
            raise
        raise TrainingError("Another process of the run has ended; its error says why.") from error
    finally:
        if ours:
            gc.collect()  # what still held the group would end it only with the interpreter
            distributed.destroy_process_group()
