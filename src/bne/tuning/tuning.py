"""A whole search, for one target or for each in turn, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

import bne
from bne.benchmark.execute import execute
from bne.benchmark.expectation import Interval
from bne.benchmark.ray import execute_on_ray
from bne.benchmark.records import how_many_undone, newest, read
from bne.benchmark.tables import signed
from bne.recipes.files import dump
from bne.training.events import scores_from_dict
from bne.training.files import plain
from bne.tuning.objective import Found, changes_text, choose
from bne.tuning.search import FACTOR, Search, without
from bne.tuning.space import with_changes
from bne.words import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bne.benchmark.execute import Job, Outcome
    from bne.benchmark.plan import Item
    from bne.benchmark.ray import Cluster
    from bne.benchmark.records import Record
    from bne.recipes.schema import Recipe
    from bne.tuning.objective import Candidate, Choice, Question
    from bne.tuning.search import Start

FOUND = "# Found by bne tune"  # how a recipe's file begins
AT_ONCE = 8  # settings, where a cluster says how many runs it takes at a time


PACE = ("backbone", "resize", "size", "epoch", "per_domain")
"""Settings by which epochs take another time."""


@dataclass(frozen=True)
class Tuned:
    """What was found for one target.

    Attributes:
        question: target and domains left out in turn.
        start: recipe, space and budget.
        candidates: settings trained in full, each at every share; those with most seeds decide.
        choice: what to take; None before the first setting is trained in full.
        importances: how much each setting matters, in shares of 1.
        problems: why settings failed, by the settings.
        stopped: mean accuracy after the shortest training of settings that went no further.
        counts: settings tried, stopped early and failed.
        finished: whether nothing is left to run.
    """

    question: Question
    start: Start
    candidates: Sequence[Candidate]
    choice: Choice | None
    importances: dict[str, float]
    problems: dict[str, str]
    stopped: dict[str, float]
    counts: dict[str, int]
    finished: bool

    @property
    def rows(self) -> list[Candidate]:
        """Each setting at its best share, and the chosen one, the best first."""
        best: dict[str, Candidate] = {}
        for one in self.candidates:
            known = best.get(one.digest)
            if known is None or (one.mean, -one.distance) > (known.mean, -known.distance):
                best[one.digest] = one
        shown = list(best.values())
        if self.choice and not any(one is self.choice.chosen for one in shown):
            shown.append(self.choice.chosen)
        return sorted(shown, key=lambda one: (one.seeds, one.mean), reverse=True)

    @property
    def recipe_itself(self) -> Candidate | None:
        """The recipe that the search started from, if it lies in the space."""
        return next((one for one in self.candidates if one.distance == 0), None)

    @property
    def recipe(self) -> Recipe | None:
        """The chosen settings, with the target that was set aside."""
        if self.choice is None:
            return None
        chosen = self.choice.chosen
        changed = with_changes(self.start.recipe, {**chosen.changes, "lean": chosen.share})
        return without(changed, self.question.target)

    @property
    def how_sure(self) -> str:
        """The choice and how sure it is, in plain sentences."""
        if self.choice is None:
            return "Nothing is chosen yet: no setting has been trained in full."
        chosen, best = self.choice.chosen, self.choice.best
        folds = self.question.folds
        left_out = "held-out images of" if self.question.by_validation else "leaving out in turn"
        measured = f"{left_out} {listed([fold.domain for fold in folds])}"
        own = self.recipe_itself
        sentences = []
        if own is None:
            sentences.append(
                f"Chosen by {measured}, {counted(chosen.seeds, 'seed')} each. The recipe "
                f"{self.start.name} does not lie in the space, so its accuracy is not known."
            )
        elif chosen.distance == 0:
            sentences.append(
                f"Keep the recipe {self.start.name}: by {measured}, no setting tried is better by "
                "more than a standard error."
            )
        else:
            (gain, error), interval = chosen.lead(own), Interval.of(chosen.gaps(own))
            low, high = interval.low or 0.0, interval.high or 0.0
            sure = "That is fairly sure" if low > 0 else "That is not sure"
            sentences.append(
                f"By {measured}, the chosen settings have {signed(gain, 1)} ± {error:.1f} points "
                f"over the recipe {self.start.name}, {counted(chosen.seeds, 'seed')} each. {sure}: "
                f"the 95 % interval over {counted(len(folds), 'domain')} is {signed(low, 1)} to "
                f"{signed(high, 1)}, and the choice is one of {self.counts['tried']}."
            )
        if best is not chosen:
            lead, error = best.lead(chosen)
            sentences.append(
                f"The highest mean is {lead:.1f} ± {error:.1f} points above the choice, within "
                "a standard error, with more changes to the recipe."
            )
        if not self.finished:
            sentences.append("The search is not over: the same command goes on.")
        return " ".join([*sentences, *([self.question.note] if self.question.note else [])])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        rules = (
            {"one_standard_error": self.choice.chosen, "best": self.choice.best}
            if (self.choice)
            else {}
        )
        return {
            "target": list(self.question.target),
            "left_out": [fold.domain for fold in self.question.folds],
            "by_validation": self.question.by_validation,
            "recipe": self.start.name,
            "choice": {name: told(one) for name, one in rules.items()},
            "how_sure": self.how_sure,
            "finished": self.finished,
            "settings": [told(one) for one in self.rows],
            "importances": self.importances,
            "counts": self.counts,
            "failed": self.problems,
            "stopped": self.stopped,
        }

    def recipe_text(self) -> str:
        """A recipe file, with how it was found in comments above it."""
        recipe = self.recipe
        if recipe is None or self.choice is None:
            raise ValueError("nothing is chosen yet")
        rows = [
            f"#   {one.mean:.1f} ± {one.error:.1f}  {counted(one.seeds, 'seed')}  "
            f"lean={one.share} {changes_text(one.changes)}"
            for one in self.rows[:10]
        ]
        settings = plain(recipe.to_dict())
        unset = [key for key in ("sources", "target") if not settings[key]]
        for key in ("seed", *unset):
            del settings[key]
        lines = [
            f"{FOUND} {bne.__version__}, from the recipe {self.start.name}.",
            f"# {self.how_sure}",
            f"# {counted(self.counts['tried'], 'setting')} tried, {self.counts['stopped']} stopped "
            "early. The best ones, mean accuracy over domains ± standard error:",
            *rows,
        ]
        title = f"Settings for {self.question.name}, found by leaving known domains out in turn"
        return "\n".join(lines) + "\n" + dump({"title": title, **settings})


def ended(outcome: Outcome) -> str:
    """How a run ended, in a line."""
    item, record = outcome.item, outcome.record
    name = f"{item.row}, {item.target or 'no domain'} left out, seed {item.recipe.seed}"
    name = f"{name}, {counted(item.recipe.train.epochs, 'epoch')}"
    if record is None:
        return f"{name} failed: {outcome.problem}"
    scores = scores_from_dict(record.accuracy["last"])
    figures = ", ".join(f"{own.accuracy:.1f} %" for own in scores.values())
    return f"{name}: {figures or 'done'} in {duration(record.seconds)}"


def told(one: Candidate) -> dict[str, Any]:
    """A candidate for JSON."""
    return {
        "changes": dict(one.changes),
        "lean": one.share,
        "mean": one.mean,
        "standard_error": one.error,
        "by_domain": one.by_domain,
        "seeds": one.seeds,
        "distance": one.distance,
        "outer": fmean(one.outer.values()) if one.outer else None,
        "digest": one.digest,
    }


class Tuning:
    """Searches for one target or several, whose runs are shared."""

    def __init__(self, questions: Sequence[Question], start: Start, storage: Any) -> None:
        self.start = start
        self.searches = [Search(question, start, storage) for question in questions]

    def wanted(self, records: Sequence[Record], width: int) -> list[Item]:
        """The runs to be done next, each once: of a seed one setting after another."""
        found = Found(records)
        items: dict[str, Item] = {}
        places: dict[str, int] = {}  # by row, the first in any search
        for search in self.searches:
            wanted = search.wanted(found, width)
            for place, row in enumerate(dict.fromkeys(item.row for item in wanted)):
                places[row] = min(place, places.get(row, place))
            items |= {item.digest: item for item in wanted}
        return sorted(
            items.values(), key=lambda item: (item.recipe.seed, places[item.row], item.row)
        )

    def carry_out(
        self, job: Job, cluster: Cluster | None = None, limit: int | None = None
    ) -> Iterator[Outcome]:
        """Runs what is wanted until nothing is, and yields how each run ended.

        Args:
            job: how runs are carried out.
            cluster: that does so, if not this machine.
            limit: on the number of runs.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; what was done is saved.
        """
        each = max(1, len(self.searches[0].question.targets))
        width = AT_ONCE if cluster else -(-job.parallel // each)
        while items := self.wanted(read(job.records), width)[:limit]:
            outcomes = execute_on_ray(items, job, cluster) if cluster else execute(items, job)
            for outcome in outcomes:
                if outcome.record is None:
                    for search in self.searches:
                        search.failed(outcome.item, outcome.problem)
                yield outcome
            if limit is not None:
                limit -= len(items)
                if limit <= 0:
                    return

    def best_so_far(self) -> str:
        """The best settings trained in full, for each target; empty before there are any."""
        told = [
            f"Best so far for {search.question.name}: {best[0]:.1f} % by {changes_text(best[1])}"
            for search in self.searches
            if (best := search.best)
        ]
        return "\n".join(told)

    def outcome(self, records: Sequence[Record]) -> list[Tuned]:
        """What is found so far, for each target."""
        found, result = Found(records), []
        for search in self.searches:
            candidates = search.candidates(found)
            most = max((one.seeds for one in candidates), default=0)
            deciding = [one for one in candidates if one.seeds == most]
            result.append(
                Tuned(
                    search.question,
                    self.start,
                    candidates,
                    choose(deciding) if deciding else None,
                    search.importances(),
                    search.given_up(),
                    search.stopped(),
                    search.counts(),
                    finished=search.over(found),
                )
            )
        return result

    def how_many_undone(self, records: Sequence[Record], classes: int) -> str:
        """What `bne.benchmark.records.how_many_undone` says of the runs in full."""
        found = Found(records)
        runs = {run.digest: run for search in self.searches for run in search.in_full(found)}
        return how_many_undone([*runs.values()], classes)


def expected(
    start: Start, questions: Sequence[Question], records: Sequence[Record]
) -> tuple[int, float | None]:
    """How many runs a search makes, about, and how many seconds they take one after another.

    It goes by the time of an epoch in the newest records of the same network, images and steps;
    None if there is none.
    """
    budget, recipe = start.budget, start.recipe
    targets = {target for question in questions for target in question.targets}
    lengths = start.lengths(recipe)
    runs, epochs = 0, 0
    for rung, shorter in enumerate(lengths):
        count = -(-budget.settings // FACTOR**rung) * len(targets)
        runs += count
        epochs += count * (shorter.train.epochs + recipe.head.epochs)
    last = -(-budget.settings // FACTOR ** (len(lengths) - 1))
    count = min(budget.finalists + 1, last) * (budget.seeds - 1) * len(targets)
    runs += count
    epochs += count * (recipe.train.epochs + recipe.head.epochs)
    like = [
        record
        for record in records
        if all(record.settings.get(key) == getattr(recipe, key) for key in PACE)
    ]
    past = [
        record.seconds / max(1, own["train"]["epochs"] + own["head"]["epochs"])
        for record in newest(like)
        for own in [record.settings]
    ]
    return runs, epochs * fmean(past) if past else None
