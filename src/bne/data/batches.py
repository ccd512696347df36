"""Which images make up each step of training: as many of each domain, in domain order.

Nothing here remembers anything but the number of the next step: each domain is an endless series
of shuffles, every one drawn from the seed, the domain's name and its own number. So a resumed run
continues exactly, and a domain's order depends on no other domain.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from bne.errors import DataError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

EpochLength = Literal["largest", "smallest"] | int
Series = tuple[str | int, ...]
"""What is shuffled: the images of a domain, its classes, or the images of one of them."""


class DomainBatches:
    """Equal-sized batches of every domain, for ever.

    A batch holds `per_domain` images of the first domain, then as many of the second, and so on. A
    domain that is used up starts again in a new order; what a last incomplete batch would hold
    opens the next epoch.

    An epoch is a number of steps, one of

    - "largest": the largest domain is seen once, smaller ones more often (the default). On PACS
      with the official split, 16 images per domain: 3531 // 16 = 220 steps if sketch is a source,
      2107 // 16 = 131 if it is the target.
    - "smallest": the smallest domain is seen once, larger ones in part.
    - a whole number: so many steps.

    With `labels`, every class of a domain is drawn as often as any other: each round of a domain is
    one image of each of its classes, in random order, and each class is an endless series of
    shuffles too. The length of an epoch stays.

    With `domains_per_step`, a step takes images of so many domains alone. All domains are shuffled
    and dealt out in turn; what is left over after the last whole deal sits this round out. So a
    domain comes at most once in a round, and the round tells which of its images come. An epoch has
    more steps then, so that it still sees as many images.

    Under several processes each takes an equal part of every domain batch; together they hold what
    one process would.

    Attributes:
        step: The number of steps handed out since training began, all the state there is: set
            it to resume.
        steps_per_epoch: The length of an epoch.
        positions: (B,) int64, where each image stands in the batch of all processes together.
    """

    def __init__(
        self,
        images: Mapping[str, Sequence[int]],
        per_domain: int,
        *,
        seed: int = 0,
        epoch: EpochLength = "largest",
        rank: int = 0,
        world_size: int = 1,
        labels: Mapping[int, int] | None = None,
        domains_per_step: int | None = None,
    ) -> None:
        """Chooses the order.

        Args:
            images: Numbers of the images of each domain, by the domain's name.
            per_domain: Images of each domain in a batch, over all processes.
            seed: Number that decides the order.
            epoch: Length of an epoch, see above.
            rank: Number of this process, from 0.
            world_size: Number of processes.
            labels: The class of images by their number, to balance classes; images that are not in
                it count as one class. None draws images as they come.
            domains_per_step: Domains of a step, see above; None takes all.

        Raises:
            DataError: A domain is empty.
            SettingsError: A number makes no sense.
        """
        if not 0 <= rank < world_size:
            raise SettingsError(
                f"rank={rank} is none of world_size={world_size} processes; they count from 0."
            )
        if per_domain < 1 or per_domain % world_size:
            raise SettingsError(
                f"per_domain={per_domain} images cannot be shared equally by {world_size} "
                f"processes; choose a multiple of {world_size}."
            )
        if not images:
            raise SettingsError("There is no domain to train on; name at least one.")
        taken = len(images) if domains_per_step is None else domains_per_step
        if not 1 <= taken <= len(images):
            raise SettingsError(
                f"domains_per_step is {taken}, of {len(images)} domains to train on; choose 1 to "
                f"{len(images)}."
            )
        for name, numbers in images.items():
            if len(numbers) == 0:
                raise DataError(f"Domain {name!r} has no images to train on; leave it out.")
        self._names = tuple(images)
        self._taken = taken
        self._items: dict[Series, Tensor] = {}  # of every series of shuffles
        for name, numbers in images.items():
            if labels is None:
                self._items[name,] = torch.as_tensor(numbers)
                continue
            by_class: dict[int, list[int]] = {}
            for number in numbers:
                by_class.setdefault(labels.get(int(number), -1), []).append(int(number))
            self._items[name, "classes"] = torch.tensor(sorted(by_class))
            for label, members in by_class.items():
                self._items[name, "class", label] = torch.tensor(members)
        self._per_domain = per_domain
        self._seed = seed
        self._shuffled = lru_cache(2 * len(self._items))(self._shuffle)
        self.step = 0
        sizes = [len(numbers) * len(images) for numbers in images.values()]
        self.steps_per_epoch = _steps(sizes, per_domain * taken, epoch)
        places = torch.arange(taken * per_domain).view(taken, per_domain)
        own = per_domain // world_size
        self.positions = places[:, rank * own : (rank + 1) * own].flatten()

    def batch(self, step: int) -> Tensor:
        """(B,) int64, this process's images at a step, in domain order."""
        return self.whole(step)[self.positions]

    def domains(self, step: int) -> Tensor:
        """(B,) int64, the domain of each of these images: 0 for the first domain, and so on."""
        return self.whole_domains(step)[self.positions]

    def whole(self, step: int) -> Tensor:
        """(N,) int64, the images of all processes together at a step, in domain order."""
        round_, chosen = self._deal(step)
        names = (self._names[domain] for domain in chosen.tolist())
        return torch.cat([self._of_domain(name, round_) for name in names])

    def whole_domains(self, step: int) -> Tensor:
        """(N,) int64, the domain of each image of all processes together."""
        return self._deal(step)[1].repeat_interleave(self._per_domain)

    def rest_of_epoch(self) -> range:
        """The steps left in the present epoch: a whole one unless resumed in its middle."""
        end = (self.step // self.steps_per_epoch + 1) * self.steps_per_epoch
        return range(self.step, end)

    def _deal(self, step: int) -> tuple[int, Tensor]:
        """The round that a step belongs to, and the domains that come in it, in order."""
        count = len(self._names)
        if self._taken == count:
            return step, torch.arange(count)
        round_, deal = divmod(step, count // self._taken)
        generator = torch.Generator().manual_seed(seed_of(self._seed, "domains of round", round_))
        order = torch.randperm(count, generator=generator)
        return round_, order[deal * self._taken : (deal + 1) * self._taken].sort().values

    def _of_domain(self, name: str, round_: int) -> Tensor:
        """(per_domain,) the domain's images in a round."""
        start = round_ * self._per_domain
        if (name,) in self._items:
            return self._part((name,), start, self._per_domain)
        count = len(self._items[name, "classes"])
        labels = self._part((name, "classes"), start, self._per_domain).tolist()
        # A class comes once in a round of all of them: the round tells which of its images.
        draws = [
            self._part((name, "class", label), place // count, 1)
            for place, label in enumerate(labels, start)
        ]
        return torch.cat(draws)

    def _part(self, series: Series, start: int, length: int) -> Tensor:
        """(length,) of a series from a place on, which may span two shuffles or more."""
        count, end = len(self._items[series]), start + length
        rounds = range(start // count, (end - 1) // count + 1)
        shuffles = [self._shuffled(series, number) for number in rounds]
        joined = torch.cat(shuffles) if len(shuffles) > 1 else shuffles[0]
        first = start - rounds.start * count
        return joined[first : first + length]

    def _shuffle(self, series: Series, number: int) -> Tensor:
        """(N,) all that a series holds, in the order of its n-th round."""
        generator = torch.Generator().manual_seed(seed_of(self._seed, number, *series))
        items = self._items[series]
        return items[torch.randperm(len(items), generator=generator)]


def _steps(sizes: Sequence[int], batch: int, epoch: EpochLength) -> int:
    if epoch == "largest":
        return max(1, max(sizes) // batch)
    if epoch == "smallest":
        return max(1, min(sizes) // batch)
    if isinstance(epoch, int) and epoch > 0:
        return epoch
    raise SettingsError(f"epoch={epoch!r} is not a length; use 'largest', 'smallest' or steps > 0.")


def seed_of(*parts: object) -> int:
    """A seed that differs wherever the parts do."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


class Counted(NamedTuple):
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
) -> Iterator[Counted]:
    """Batches that statistics are measured on, at most `steps` of each domain.

    They are drawn as in training, until every image has been in one: batches of another make, of
    one class for instance, would give statistics that training has never seen. A small domain
    starts again when it is used up, but each of its images counts once.
    """
    batches = DomainBatches(members, per_domain, seed=seed_of(seed, "statistics"))
    sizes = torch.tensor([len(numbers) for numbers in members.values()])
    needed = -(-int(sizes.max()) // per_domain)
    size = (domains_per_step or len(members)) * per_domain
    for step in range(needed if steps is None else min(steps, needed)):
        places = torch.arange(step * per_domain, (step + 1) * per_domain)
        new = (places < sizes.unsqueeze(1)).flatten()
        whole = batches.batch(step), batches.domains(step), new
        yield from map(Counted, *(part.split(size) for part in whole))
