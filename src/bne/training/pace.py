"""How long the rest of some work takes, kind by kind, from what is done and from guesses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bne.recipes.schema import Recipe
    from bne.training.events import Epoch, Start, Step

BACKWARD = 2
"""Forward passes that a backward pass takes as long as."""

HEAD_SCORING, SCORING, EXACT, LEANING = "head scoring", "scoring", "exact statistics", "leaning"


class Cost(NamedTuple):
    """What an epoch of training is expected to take.

    Attributes:
        stage: what the loss computes.
        training: passes of an image through the network and back, per step.
        evaluation: passes of an image that is scored.
    """

    stage: str
    training: float = 1
    evaluation: float = 1


@dataclass
class Work:
    """One kind of work.

    Attributes:
        amount: steps, images or whatever it is counted in, in all.
        cost: guessed time of one, in a unit that all kinds share.
        trains: whether it is training, and not evaluation.
        guess: guessed seconds of one, where they do not depend on the pace of other work.
        before: those done before the clock started.
        done: those done since.
        seconds: that these took.
    """

    amount: float
    cost: float
    trains: bool = False
    guess: float | None = None
    before: float = 0
    done: float = 0
    seconds: float = 0

    @property
    def left(self) -> float:
        """How many are to do."""
        return max(0.0, self.amount - self.before - self.done)


class Pace:
    """The time that is left, of several kinds of work.

    A kind that has begun goes on at its own pace. One that has not is expected to take as many
    times longer than the last that has as their costs say, of those that train if it does.

    Args:
        works: all kinds, in their order.
        clock: tells the time in seconds.
    """

    def __init__(
        self, works: Mapping[str, Work], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.works = dict(works)
        self.clock = clock
        self._told = clock()

    def add(self, kind: str, done: float, seconds: float | None = None) -> None:
        """Some more is done; by default it took as long as passed since the last call."""
        now = self.clock()
        work = self.works[kind]
        work.done += done
        work.seconds += now - self._told if seconds is None else seconds
        self._told = now

    def seconds_of(self, kind: str) -> float | None:
        """That one of a kind takes; None if nothing is known of any."""
        work = self.works[kind]
        if work.done:
            return work.seconds / work.done
        if work.guess is not None:
            return work.guess
        known = [one for one in self.works.values() if one.done and one.guess is None]
        alike = [one for one in known if one.trains == work.trains] or known
        return work.cost * alike[-1].seconds / (alike[-1].cost * alike[-1].done) if known else None

    def left(self, *kinds: str) -> float | None:
        """Seconds that some kinds still take, or all of them; None if that is not known yet."""
        times = [(self.works[kind].left, self.seconds_of(kind)) for kind in kinds or self.works]
        if any(each is None for count, each in times if count):
            return None
        return sum(count * (each or 0) for count, each in times)

    def remaining(self) -> float | None:
        """Seconds that are left now, counted down since the last call of `add`."""
        left = self.left()
        return None if left is None else max(0.0, left - (self.clock() - self._told))

    @property
    def share(self) -> float:
        """Of the time of all work, what is over, 0 to 1."""
        costs = {kind: self.seconds_of(kind) or one.cost for kind, one in self.works.items()}
        done = sum(costs[kind] * (one.amount - one.left) for kind, one in self.works.items())
        whole = sum(costs[kind] * one.amount for kind, one in self.works.items())
        return done / whole if whole else 1.0


def epoch_costs(recipe: Recipe, domains: int) -> list[Cost]:
    """Of every epoch of a run, those of the head first.

    Args:
        recipe: of the run.
        domains: number of domains that the method knows.
    """
    from bne.methods import find  # which needs torch, as a pace alone does not

    entry = find(recipe.method)
    options = {**entry.options, **recipe.options}
    head = [Cost("head", 1 / (1 + BACKWARD))] * recipe.head.epochs  # nothing goes back through it
    return head + [
        Cost(*entry.method.cost(epoch, recipe.train.warm_up, domains, options))
        for epoch in range(recipe.train.epochs)
    ]


def run_cost(recipe: Recipe, domains: int) -> float:
    """The guessed time of a run, beside those of others on the same images."""
    return sum(cost.training for cost in epoch_costs(recipe, domains))


class RunPace(Pace):
    """The pace of one run of training, from what its listeners hear.

    Args:
        start: what the run is about to do.
        clock: tells the time in seconds.

    Attributes:
        costs: of every epoch.
    """

    def __init__(self, start: Start, clock: Callable[[], float] = time.monotonic) -> None:
        from bne.methods import find

        recipe, inputs = start.recipe, start.inputs
        entry = find(recipe.method)
        domains = len(inputs.splits) + entry.method.uses_target
        costs = epoch_costs(recipe, domains)
        per_step = (recipe.domains_per_step or domains) * recipe.per_domain * (1 + BACKWARD)
        scored = sum(map(len, (*inputs.validation.values(), *inputs.target.values())))
        begun = start.first_step // start.steps_per_epoch
        works: dict[str, Work] = {}
        for number, cost in enumerate(costs):
            own = works.setdefault(cost.stage, Work(0, cost.training * per_step, trains=True))
            own.amount += start.steps_per_epoch
            own.before += start.steps_per_epoch * (number < begun)
        evaluation = costs[-1].evaluation if costs else 1
        head = recipe.head.epochs
        works[HEAD_SCORING] = Work(head, scored, before=min(begun, head))
        works[SCORING] = Work(len(costs) - head, scored * evaluation, before=max(0, begun - head))
        if recipe.exact_statistics:
            trained = sum(map(len, inputs.train.values()))
            works[EXACT] = Work(1, trained + scored * evaluation)
        if entry.method.can_lean:
            from bne.training.scores import SHARES

            works[LEANING] = Work(1, len(SHARES) * scored * evaluation)
        super().__init__(works, clock)
        self.costs = costs
        self._epochs = begun
        self._epoch_steps, self._epoch_seconds = 0, 0.0

    def stepped(self, step: Step) -> None:
        """Some steps of an epoch are done."""
        self._count(step.stage, step.step, step.seconds)

    def finished_epoch(self, epoch: Epoch) -> None:
        """An epoch is done, and scored."""
        passed = self.clock() - self._told
        if epoch.statistics == "exact":
            self.add(EXACT, 1)
            return
        steps = epoch.seconds - self._epoch_seconds
        self._count(epoch.stage, epoch.steps, epoch.seconds)
        self._epochs += 1
        self._epoch_steps, self._epoch_seconds = 0, 0.0
        kind = SCORING if epoch.phase == "train" else HEAD_SCORING
        self.add(kind, 1, max(0.0, passed - steps))

    def _count(self, stage: str, steps: int, seconds: float) -> None:
        if stage not in self.works:  # of a method that does not say what its stages will be
            stage = self.costs[min(self._epochs, len(self.costs) - 1)].stage
        self.add(stage, steps - self._epoch_steps, seconds - self._epoch_seconds)
        self._epoch_steps, self._epoch_seconds = steps, seconds

    def stages(self) -> Iterable[tuple[str, float]]:
        """The kinds of work that are left, with their seconds."""
        for kind, work in self.works.items():
            seconds = self.left(kind)
            if work.left and seconds is not None:
                yield kind, seconds
