"""Batches of every domain for a `torch.utils.data.DataLoader`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, distributed
from torch.utils.data import Sampler

from bne.core.moments import in_processes
from bne.data.batches import DomainBatches, EpochLength

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class DomainBatchSampler(Sampler[list[int]]):
    """As many images of each domain in every batch: `DataLoader(dataset, batch_sampler=this)`.

    The order follows from the seed and the number of the epoch, which `set_epoch` says, as torch's
    `DistributedSampler` has it. `DomainBatches` describes what an epoch is, and how the images of a
    domain are drawn. If several processes train, each takes its part of every domain's images.
    """

    def __init__(
        self,
        domains: Tensor | Sequence[int] | Sequence[str],
        per_domain: int,
        *,
        seed: int = 0,
        epoch: EpochLength = "largest",
        domains_per_step: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Chooses the order.

        Args:
            domains: The domain of every image of the dataset, in its order.
            per_domain: Images of each domain in a batch, over all processes.
            seed: Number that decides the order.
            epoch: Length of an epoch: "largest" sees the largest domain once, "smallest" the
                smallest, a whole number is so many batches.
            domains_per_step: Domains of a batch, drawn evenly; None takes all.
            rank: Number of this process; None asks `torch.distributed`.
            world_size: Number of processes; None asks `torch.distributed`.

        Raises:
            SettingsError: A number makes no sense.
        """
        images: dict[int | str, list[int]] = {}
        for index, domain in enumerate(
            domains.tolist() if isinstance(domains, Tensor) else domains
        ):
            images.setdefault(domain, []).append(index)
        several = in_processes()
        if rank is None:
            rank = distributed.get_rank() if several else 0
        if world_size is None:
            world_size = distributed.get_world_size() if several else 1
        self._batches = DomainBatches(
            {str(domain): images[domain] for domain in sorted(images, key=str)},
            per_domain,
            seed=seed,
            epoch=epoch,
            rank=rank,
            world_size=world_size,
            domains_per_step=domains_per_step,
        )

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        """Says which epoch comes next and, to resume in its middle, how many batches are done."""
        self._batches.step = epoch * self._batches.steps_per_epoch + skip

    @property
    def sampler(self) -> DomainBatchSampler:
        """Itself: here Lightning looks for what to tell the epoch."""
        return self

    def __len__(self) -> int:
        """Batches left in the epoch."""
        return len(self._batches.rest_of_epoch())

    def __iter__(self) -> Iterator[list[int]]:
        """The images of each batch, in domain order."""
        return (self._batches.batch(step).tolist() for step in self._batches.rest_of_epoch())
