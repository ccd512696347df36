"""How good settings are for an unseen domain: accuracy on known domains, each left out in turn."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from bne.benchmark.records import finished
from bne.errors import SettingsError
from bne.methods.method import find
from bne.training.events import ACCURACY, BALANCED, Leaning, read_epochs, scores_from_dict
from bne.training.scores import choose_leaning, last
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.training.events import Measure, Scores

Share = float | str
"""How far a trained network leans, 0 to 1, or "auto": as `bne train` would choose it."""

FEWEST = 3  # source domains for leaving one out: the others are two branches
ROUNDING = 1e-9  # if settings differ on one domain alone, the gap is its own standard error


@dataclass(frozen=True)
class Fold:
    """One score of a setting.

    Attributes:
        domain: whose images are scored.
        target: the domains held out of the run.
    """

    domain: str
    target: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """For which unseen domain settings are wanted, and which scores tell.

    Attributes:
        target: domains set aside; none if the domain that matters is one that nobody has.
        folds: scores, one per domain.
        note: what is not as usual, in a sentence.
    """

    target: tuple[str, ...]
    folds: tuple[Fold, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """The target, or "new domain"."""
        return "+".join(self.target) or "new domain"

    @property
    def by_validation(self) -> bool:
        """Whether held-out images of the sources have to do."""
        return any(fold.domain not in fold.target for fold in self.folds)

    @property
    def targets(self) -> tuple[tuple[str, ...], ...]:
        """What runs hold out, each once."""
        return tuple(dict.fromkeys(fold.target for fold in self.folds))


def questions(
    domains: Sequence[str], target: Sequence[str] = (), *, every: bool = False
) -> list[Question]:
    """What is asked of the data.

    Every score for a target comes from a run that saw nothing of it. Runs for several targets
    are shared: one that holds out two domains scores the second for the first, and the other way
    round.

    Args:
        domains: that there are.
        target: set aside, and no part of any run.
        every: whether each domain is a target in turn.

    Raises:
        SettingsError: There are fewer than two source domains.
    """
    if not every:
        sources = [domain for domain in domains if domain not in target]
        folds = [Fold(domain, (domain,)) for domain in sources]
        return [_question(tuple(target), sources, folds, ())]
    pairs = {frozenset(pair): pair for pair in combinations(domains, 2)}
    found = []
    for one in domains:
        sources = [domain for domain in domains if domain != one]
        folds = [Fold(domain, pairs[frozenset((domain, one))]) for domain in sources]
        found.append(_question((one,), sources, folds, (one,)))
    return found


def _question(
    target: tuple[str, ...], sources: Sequence[str], folds: list[Fold], held_out: tuple[str, ...]
) -> Question:
    if len(sources) >= FEWEST:
        return Question(target, tuple(folds))
    if len(sources) < 2:
        raise SettingsError(
            f"Settings are compared on at least two source domains, and {listed(sources)} is one; "
            "add domains, or set none aside."
        )
    note = (
        f"{listed(sources)} are two sources: with one of them left out, a single branch would "
        "train. So settings are compared on held-out images of both, which say little of a new "
        "domain."
    )
    return Question(target, tuple(Fold(domain, held_out) for domain in sources), note)


def changes_text(changes: Mapping[str, Any]) -> str:
    """Settings in a line: `method=bne learning_rate=0.003 averaging.name=null`, or `as it is`."""
    texts = []
    for key, value in changes.items():
        short = key.removeprefix("train.").removeprefix("optimiser.").removeprefix("options.")
        shown = f"{value:.3g}" if isinstance(value, float) else value
        texts.append(f"{short}={shown if isinstance(shown, str) else json.dumps(shown)}")
    return " ".join(texts) or "as it is"


@dataclass
class Found:
    """Records by the digest of their settings, so that each run is found at once."""

    records: Iterable[Record]
    _by_digest: dict[str, list[Record]] = field(init=False)

    def __post_init__(self) -> None:
        self._by_digest = {}
        for record in self.records:
            self._by_digest.setdefault(record.digest, []).append(record)

    def of(self, item: Item) -> Record | None:
        """The record of a run, if it is finished."""
        return finished(self._by_digest.get(item.digest, ()), item)


def scores_at(record: Record, share: Share) -> tuple[Scores, Scores] | None:
    """Of the targets, and of held-out images of the sources, by the last epoch's network.

    None if the run has no scores at that share. A method that does not lean has those of share 0
    under "auto" too.
    """
    leanings = [Leaning.from_dict(one) for one in record.leaning]
    if leanings and share == "auto":
        one = choose_leaning(leanings, find(str(record.settings["method"])).method.most_lean)
        return one.target, one.validation
    for one in leanings:
        if one.share == share:
            return one.target, one.validation
    if leanings or share not in ("auto", 0):
        return None
    validation = last(read_epochs(record.epochs)).validation if record.epochs else {}
    return scores_from_dict(record.accuracy["last"]), validation


def measure_of(records: Iterable[Record]) -> Measure:
    """Balanced accuracy if classes of some scored domain are unbalanced, accuracy if not."""
    scored = [scores_at(record, "auto") for record in records]
    scores = [score for both in scored if both for own in both for score in own.values()]
    known = all(score.balanced is not None for score in scores)
    return BALANCED if known and any(score.unbalanced for score in scores) else ACCURACY


def score(record: Record, fold: Fold, share: Share, measure: Measure = ACCURACY) -> float | None:
    """One figure in percent: of a domain left out or, if it was not, of its held-out images."""
    both = scores_at(record, share)
    if both is None:
        return None
    target, validation = both
    own = (target if fold.domain in fold.target else validation).get(fold.domain)
    return own.by(measure) if own else None


@dataclass(frozen=True)
class Candidate:
    """A setting at one share, with its scores.

    Attributes:
        changes: settings by dotted key, over the recipe that the search started from.
        share: to lean by.
        values: accuracy in percent, by domain left out and seed; every domain has the first seed.
        distance: number of settings in which it differs from the recipe that was started from.
        outer: accuracy on the target itself by seed, where runs are recorded; never chosen by.
        digest: of the setting, without target and seed.
    """

    changes: Mapping[str, Any]
    share: Share
    values: Mapping[str, Mapping[int, float]]
    distance: int = 0
    outer: Mapping[int, float] = field(default_factory=dict)
    digest: str = ""

    @property
    def by_domain(self) -> dict[str, float]:
        """Mean over seeds, by domain left out."""
        return {domain: fmean(own.values()) for domain, own in self.values.items()}

    @property
    def mean(self) -> float:
        """Over the domains left out, each counting alike."""
        return fmean(self.by_domain.values())

    @property
    def error(self) -> float:
        """The standard error of the mean over domains."""
        return _error(list(self.by_domain.values()))

    @property
    def seeds(self) -> int:
        """How many every domain has."""
        return min(map(len, self.values.values()))

    def gaps(self, other: Candidate) -> list[float]:
        """By how much it exceeds another on each domain, over the seeds that both have.

        Some domains are harder than others for whatever settings, so only differences tell.
        """
        return [
            fmean(own[seed] - theirs[seed] for seed in own.keys() & theirs.keys())
            for domain, own in self.values.items()
            for theirs in [other.values[domain]]
        ]

    def lead(self, other: Candidate) -> tuple[float, float]:
        """By how much it exceeds another, and the standard error of that over domains."""
        gaps = self.gaps(other)
        return fmean(gaps), _error(gaps)


def _error(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Choice:
    """What to take, by two rules.

    Attributes:
        chosen: the setting nearest the recipe, of those within one standard error of the best.
        best: the one with the highest mean.
    """

    chosen: Candidate
    best: Candidate


def choose(candidates: Sequence[Candidate]) -> Choice:
    """The one-standard-error rule, and the highest mean beside it.

    Of settings that trail the best by no more than a standard error of the difference, the one
    with the fewest changes to the recipe is taken; of several, the one with the highest mean. An
    error above the median of all settings counts as that: few domains tell it only roughly, and a
    setting that is far worse on one of them would come within its own.
    """
    best = max(candidates, key=lambda one: (one.mean, -one.distance))
    leads = [(one, *best.lead(one)) for one in candidates if one is not best]
    usual = median(error for *_, error in leads) if leads else 0.0
    near = [best, *(one for one, behind, error in leads if behind <= min(error, usual) + ROUNDING)]
    return Choice(min(near, key=lambda one: (one.distance, -one.mean)), best)
