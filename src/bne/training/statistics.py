"""Images that population statistics are measured on after training, and whenever it is scored.

Batches are drawn as in training: shuffled, of its size, with as many images of each domain. Batches
of another make, of one class for instance, would give statistics that training has never seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from bne.core.statistics import measure
from bne.data.batches import DomainBatches, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bne.methods import Method

SCORING_STEPS = 64
"""Batches of each domain that statistics for scoring are measured on."""

SHORT = 1000
"""Steps of training below which tracked statistics, which remember about 100, lag too far behind.

None of the runs behind docs/results.md is as short."""


class Batch(NamedTuple):
    """Images to run together: (N,) numbers, domains, and whether each is seen the first time."""

    numbers: Tensor
    domains: Tensor
    counts: Tensor


def draw(
    members: Mapping[str, Sequence[int]],
    per_domain: int,
    seed: int,
    steps: int | None = None,
    domains_per_step: int | None = None,
) -> Iterator[Batch]:
    """At most `steps` batches of each domain, until every image has been in one.

    A small domain starts again when it is used up, but each of its images counts once.
    """
    batches = DomainBatches(members, per_domain, seed=seed_of(seed, "statistics"))
    sizes = torch.tensor([len(numbers) for numbers in members.values()])
    needed = -(-int(sizes.max()) // per_domain)
    size = (domains_per_step or len(members)) * per_domain
    for step in range(needed if steps is None else min(steps, needed)):
        places = torch.arange(step * per_domain, (step + 1) * per_domain)
        new = (places < sizes.unsqueeze(1)).flatten()
        whole = batches.batch(step), batches.domains(step), new
        yield from map(Batch, *(part.split(size) for part in whole))


def recompute(
    method: Method,
    batches: Sequence[Batch],
    images_of: Callable[[Iterable[Tensor]], Iterator[Tensor]],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    shrinkage: float = 0.0,
) -> None:
    """Sets the running statistics of every layer that is trained with batch statistics.

    Args:
        method: its `observe` runs the images; it is left in the mode it was in.
        batches: what to measure on, see `draw`.
        images_of: gives the network's input, (N, 3, H, W), for each list of numbers.
        device: where they are.
        autocast: makes the context in which the network runs.
        shrinkage: as in `bne.recompute_statistics`.
    """

    def given() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for batch, images in zip(batches, images_of(b.numbers for b in batches), strict=True):
            yield images, batch.domains.to(device), batch.counts.to(device)

    def observe(images: Tensor, domains: Tensor) -> None:
        with autocast():
            method.observe(images, domains)

    domains = 1 + max(int(batch.domains.max()) for batch in batches)
    measure(method, given(), observe, domains, shrinkage=shrinkage)
