"""Several processes that train together, and batch norm over the images of all of them.

Torch's own layer for it needs a GPU; this one runs on any device.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from bne.core.activations import image_moments, mapped
from bne.core.moments import Moments, combine, combine_processes, in_processes, linear_map
from bne.core.norm import FUSED
from bne.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = timedelta(days=1)  # with the process that scores all images while the others wait
LOST = ("by peer", "remote process exit")  # gloo's and NCCL's words for a process that has ended


@dataclass(frozen=True)
class Processes:
    """This process, of number `rank`, among all."""

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

    def wrap(self, method: nn.Module) -> nn.Module:
        """What to call instead of a method, so that gradients are those of all processes' images.

        It lasts for one stage of the method, whose steps all leave out the same parameters, if any.
        Its batch-norm layers must pool their statistics: see `bne.training.distributed`.
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
    ours = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not in_processes()
    if ours:
        backend = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        if in_processes():
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


class SynchronisedBatchNorm(_BatchNorm):
    """What `nn.BatchNorm2d` would be if one process held the images of all.

    Args:
        plain: the layer it stands for, whose tensors, mode and parts it takes over.
    """

    def __init__(self, plain: _BatchNorm) -> None:
        super().__init__(plain.num_features, plain.eps, plain.momentum, device="meta")
        self.affine = plain.affine
        self.track_running_stats = plain.track_running_stats
        self.weight, self.bias = plain.weight, plain.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            setattr(self, name, getattr(plain, name))
        for name, part in plain.named_children():
            self.add_module(name, part)
        self.training = plain.training

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes (N, C, *spatial), then applies the layer's own drop and activation."""
        if self.training or self.running_mean is None:
            x = self._by_batch(x)
        else:
            x = F.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        for name in FUSED:
            if name in self._modules:
                x = getattr(self, name)(x)
        return x

    def _by_batch(self, x: Tensor) -> Tensor:
        rows, samples = x.shape[0], x.unsqueeze(1)
        own = image_moments(samples)
        batch = combine(own, own.mean.new_full((1, rows), 1 / max(1, rows)))  # (1, C)
        count = own.mean.new_full((1,), x.numel() / x.shape[1])
        if self.training and in_processes():
            batch, count = combine_processes(batch, count)
        self._track(Moments(batch.mean[0], batch.var[0]), count)
        scale, shift = linear_map(batch, self.weight, self.bias, self.eps)
        return mapped(samples, scale.expand(rows, -1), shift.expand(rows, -1))

    @torch.no_grad()
    def _track(self, batch: Moments, count: Tensor) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        new = batch.mean.new_tensor(self.momentum or 0.0)
        if self.momentum is None:
            new = 1 / self.num_batches_tracked.to(new.dtype)
        unbiased = batch.var * (count / (count - 1))  # what torch's layers keep
        for running, value in ((self.running_mean, batch.mean), (self.running_var, unbiased)):
            running.lerp_(value.to(running.dtype), new.to(running.dtype))


def synchronise(method: nn.Module) -> None:
    """Makes every batch-norm layer of a method pool its statistics over all processes, in place.

    Layers with an attribute `synchronised`, as `DomainBatchNorm` has, know how; torch's and
    timm's are exchanged.
    """
    exchanged: dict[nn.Module, nn.Module] = {}
    for module in list(method.modules()):
        if hasattr(module, "synchronised"):
            module.synchronised = True  # type: ignore[assignment]  # torch types attributes
        elif isinstance(module, _BatchNorm):
            exchanged[module] = SynchronisedBatchNorm(module)
    for module in list(method.modules()):
        for name, child in module._modules.items():
            if child in exchanged:
                module._modules[name] = exchanged[child]
