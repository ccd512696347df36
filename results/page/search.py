"""The search for settings: what was tried, what it gave, and which settings go on to the final.

The choice depends on held-out images of the source domains alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from bne.benchmark.tables import percent
from page.campaign import difference, target
from page.words import number, settings_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bne.benchmark.records import Record

Statistics = Literal["running", "exact"]
METHODS = ("deepall", "bne")
TUNED = ("train.optimiser.", "train.schedule.")
_SHOWN = (*TUNED, "train.warm_up", "train.epochs")
_OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@dataclass(frozen=True)
class Estimate:
    """A mean accuracy in percent and the standard error that the number of images gives it."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


@dataclass(frozen=True)
class Tuning:
    """What was varied, in words."""

    optimiser: str
    schedule: str
    epochs: int
    warm_up: int
    otherwise: str

    @property
    def how(self) -> str:
        """The optimiser and its schedule."""
        return f"{self.optimiser}, {self.schedule}"

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.how, self.otherwise)))

    def is_like(self, other: Tuning) -> bool:
        """Whether it is the same at another length of training."""
        return str(self) == str(other)


@dataclass(frozen=True, eq=False)
class Setting:
    """One method under one setting: its runs on the search's targets."""

    method: str
    tuning: Tuning
    records: tuple[Record, ...]

    @property
    def runs(self) -> set[tuple[str, int]]:
        """Targets and seeds."""
        return {(target(record), record.settings["seed"]) for record in self.records}

    def held_out(self, statistics: Statistics) -> Estimate | None:
        """Mean over runs of the mean over source domains; None if a run has no such statistics.

        The standard error is the binomial one, as if no two runs shared images.
        """
        last = [last_epoch(record, statistics) for record in self.records]
        estimates = [_over_domains(epoch["validation"].values()) for epoch in last if epoch]
        if len(estimates) < len(last):
            return None
        variance = sum(estimate.error**2 for estimate in estimates) / len(last) ** 2
        return Estimate(fmean(estimate.mean for estimate in estimates), variance**0.5)

    def on(self, runs: set[tuple[str, int]]) -> Setting:
        """The same with some of its runs only."""
        own = (r for r in self.records if (target(r), r.settings["seed"]) in runs)
        return Setting(self.method, self.tuning, tuple(own))

    def on_target(self, domain: str, statistics: Statistics) -> float | None:
        """Mean accuracy on a target, over seeds, in percent; never used for the choice."""
        last = [last_epoch(r, statistics) for r in self.records if target(r) == domain]
        return fmean(percent(e["target"]) for e in last if e) if any(last) else None


def last_epoch(record: Record, statistics: Statistics) -> Mapping[str, Any] | None:
    """The scores at the end of training with the statistics it kept, or with recomputed ones."""
    epochs = [e for e in record.epochs if e["phase"] == "train" and e["statistics"] == statistics]
    return epochs[-1] if epochs else None


def settings_tried(records: Sequence[Record]) -> list[Setting]:
    """Every setting that was tried, the best of each method first."""
    groups: dict[tuple[str, Tuning], list[Record]] = {}
    for record in records:
        groups.setdefault((record.settings["method"], tuning(record)), []).append(record)
    tried = [Setting(method, tuning, tuple(own)) for (method, tuning), own in groups.items()]
    return sorted(tried, key=lambda setting: (setting.method, -_rank(setting)))


def best(tried: Iterable[Setting], method: str) -> Setting | None:
    """A method's setting of the highest held-out accuracy, among those run on every target."""
    tried = list(tried)
    everything = {run for setting in tried for run in setting.runs}
    own = [setting for setting in tried if setting.method == method and setting.runs == everything]
    return max(own, key=_rank, default=None)


def shared(tried: Iterable[Setting]) -> list[Setting]:
    """The settings that were tried with every method, and have all the search's runs."""
    tried = [setting for setting in tried if setting.method in METHODS]
    everything = {run for setting in tried for run in setting.runs}
    complete = [setting for setting in tried if setting.runs == everything]
    return [
        setting
        for setting in complete
        if {other.method for other in complete if other.tuning == setting.tuning} == set(METHODS)
    ]


def finalists(tried: Iterable[Setting]) -> list[Tuning]:
    """The two settings of the highest mean over methods, of those tried with every one."""
    common = shared(tried)
    tunings = dict.fromkeys(setting.tuning for setting in common)
    mean = {t: fmean(_rank(s) for s in common if s.tuning == t) for t in tunings}
    return sorted(tunings, key=mean.__getitem__, reverse=True)[:2]


def minus(one: Estimate, other: Estimate) -> Estimate:
    """The difference, as if the two were of different images."""
    return Estimate(one.mean - other.mean, (one.error**2 + other.error**2) ** 0.5)


def exact_changes(tried: Iterable[Setting]) -> dict[Setting, float]:
    """By how many points recomputed statistics raise the held-out accuracy."""
    pairs = {s: (s.held_out("exact"), s.held_out("running")) for s in tried}
    return {s: exact.mean - kept.mean for s, (exact, kept) in pairs.items() if exact and kept}


def exact_is_better(tried: Iterable[Setting], tuning: Tuning) -> bool:
    """Whether recomputed statistics raise the mean over methods under one setting."""
    return sum(exact_changes(s for s in tried if s.tuning == tuning).values()) > 0


def _rank(setting: Setting) -> float:
    held_out = setting.held_out("running")
    return held_out.mean if held_out else 0.0


def _over_domains(scores: Iterable[Mapping[str, int]]) -> Estimate:
    shares = [(score["correct"] / score["images"], score["images"]) for score in scores]
    variance = sum(p * (1 - p) / images for p, images in shares) / len(shares) ** 2
    return Estimate(100 * fmean(p for p, _ in shares), 100 * variance**0.5)


def tuning(record: Record) -> Tuning:
    """What a run varied."""
    train = record.settings["train"]
    optimiser, schedule = train["optimiser"], train["schedule"]
    extras = {
        "momentum": (optimiser["momentum"], 0),
        "weight decay": (optimiser["weight_decay"], 0),
        "head ×": (optimiser["head_factor"], 1),
        "clip": (optimiser["clip"], None),
    }
    words = [f"{_OPTIMISERS[optimiser['name']]} {number(optimiser['learning_rate'])}"]
    words += [f"{name} {number(v)}" for name, (v, usual) in extras.items() if v != usual]
    rest = difference(record)
    rest.pop("exact_statistics", None)  # without effect before the end, and both are recorded
    return Tuning(
        ", ".join(words),
        schedule["name"] + (f" {schedule['decay']}" if schedule["name"] == "exponential" else ""),
        train["epochs"],
        train["warm_up"],
        settings_text({k: v for k, v in rest.items() if not k.startswith(_SHOWN)}),
    )
