"""The search for one target: which settings are tried, for how long, and with how many seeds.

Optuna chooses settings and stops those that trail; its study says what was tried. Scores are never
kept in it alone: they are always read from the records of runs.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.plan import Item, kind
from bne.errors import SettingsError, require
from bne.recipes.inputs import settled
from bne.training.environment import weights_sha256
from bne.training.identity import settings_of
from bne.tuning.objective import Candidate, Fold, changes_text, measure_of, score
from bne.tuning.space import value_in, with_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import optuna

    from bne.benchmark.records import Record
    from bne.recipes.schema import Recipe
    from bne.tuning.objective import Found, Question, Share
    from bne.tuning.space import Space

FACTOR = 3
"""Every third setting is trained on, three times as long."""

SAMPLERS = ("tpe", "gp", "random")
ATTEMPTS = 20  # at a setting that was not tried before
REPEATED = "repeated"


@dataclass(frozen=True)
class Budget:
    """How much is tried.

    Attributes:
        settings: number of settings.
        lengths: of training: 2 trains all settings for a third of the epochs, and about every third
            in full; 1 trains all in full.
        finalists: number of the best settings that get more seeds, as the recipe itself does.
        seeds: of finalists.
        sampler: Optuna's, one of `SAMPLERS`; None takes "tpe", or "random" for several targets, so
            that all of them try the same settings and share their runs.
        seed: of the sampler.
    """

    settings: int = 16
    lengths: int = 2
    finalists: int = 3
    seeds: int = 3
    sampler: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Start:
    """What a search starts from.

    Attributes:
        name: of the recipe.
        recipe: whose settings are changed.
        space: of changes.
        budget: how much is tried.
        images: digest of the names of all images that runs may see.
        official: whether an official split lies with them.
    """

    name: str
    recipe: Recipe
    space: Space
    budget: Budget
    images: str | None = None
    official: bool = False

    def runs(
        self,
        recipe: Recipe,
        targets: Sequence[tuple[str, ...]],
        seed: int = 0,
        in_full: Recipe | None = None,
    ) -> list[Item]:
        """One run for each target; `in_full` is the recipe that this one is a shorter form of."""
        materials = {"weights": _checksum(recipe.weights), "images": self.images}
        row = f"{recipe.method} {_kind(in_full or recipe)[:8]}"
        return [
            Item(self.name, row, replace(without(recipe, target), seed=seed), materials)
            for target in targets
        ]

    def listed(self, targets: Sequence[tuple[str, ...]], found: Found) -> list[Item]:
        """The next runs of a list of settings, as far as no figures decide which; no more of them.

        First all settings, for the fewest epochs; then more seeds, if all settings get them.
        """
        own, whole = self.budget, self.space.whole
        for seeds in (range(1), range(1, own.seeds)):
            items = [
                item
                for seed in seeds
                for changes in whole
                for recipe in [settled(with_changes(self.recipe, changes), official=self.official)]
                for item in self.runs(self.lengths(recipe)[0], targets, seed, in_full=recipe)
            ]
            if left := [item for item in items if found.of(item) is None]:
                return left
            if own.lengths > 1 or own.finalists < len(whole):
                break
        return []

    def lengths(self, recipe: Recipe) -> list[Recipe]:
        """The recipe for fewer epochs, then for more, at last as it is; warm-up in proportion."""
        found = {}
        for power in reversed(range(self.budget.lengths)):
            train = recipe.train
            epochs = max(1, round(train.epochs / FACTOR**power))
            warm_up = round(train.warm_up * epochs / train.epochs)
            found[epochs] = replace(recipe, train=replace(train, epochs=epochs, warm_up=warm_up))
        return list(found.values())

    @property
    def shares(self) -> tuple[Share, ...]:
        """The recipe's share to lean by, and those of the space."""
        return tuple(dict.fromkeys((self.recipe.lean, *self.space.shares)))

    def distance(self, changes: Mapping[str, Any], share: Share) -> int:
        """The number of settings in which changes differ from the recipe."""
        method = changes.get("method", self.recipe.method)
        differing = [key for key, own in changes.items() if own != self._own(key, method)]
        return len(differing) + (share != self.recipe.lean)

    def _own(self, key: str, method: str) -> Any:
        return value_in(self.recipe, key, method)


def without(recipe: Recipe, target: tuple[str, ...]) -> Recipe:
    """A recipe that holds out some domains, which are then no sources either."""
    sources = tuple(domain for domain in recipe.sources if domain not in target)
    return replace(recipe, target=target, sources=sources)


_checksum = cache(weights_sha256)


def _kind(recipe: Recipe) -> str:
    return kind(settings_of(recipe))


def study_file(file: Path) -> Any:
    """Optuna's storage in a SQLite file, which a killed process leaves whole.

    Raises:
        MissingLibraryError: Optuna is not installed.
        SettingsError: The file is something else.
    """
    optuna = require("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.storages.RDBStorage(f"sqlite:///{file.resolve()}")
    except Exception as error:  # SQLAlchemy's, alembic's or Optuna's own
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SettingsError(f"{file} is no study that can be used ({reason}).") from error


class Search:
    """The settings tried for one target."""

    def __init__(self, question: Question, start: Start, storage: Any) -> None:
        import optuna

        self.question, self.start = question, start
        self.problems: dict[str, str] = {}
        self._recipes: dict[str, Recipe] = {}
        self._runs: dict[tuple[str, int], list[Item]] = {}
        self._study = optuna.create_study(
            storage=storage,
            study_name=question.name,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.SuccessiveHalvingPruner(1, FACTOR),
        )
        self._check_same()
        if not self._study.get_trials(deepcopy=False):
            for own in start.space.first(start.recipe):
                self._study.enqueue_trial(own)

    def _check_same(self) -> None:
        """A study goes on only with what it was begun with; more may be tried than before."""
        budget = self.start.budget
        own = {
            "recipe": _kind(self.start.recipe),
            "space": str(self.start.space),
            "lengths": budget.lengths,
            "sampler": f"{budget.sampler} {budget.seed}",
            "images": self.start.images,
            "domains": [fold.domain for fold in self.question.folds],
        }
        known = self._study.user_attrs.get("search")
        if known is None:
            self._study.set_user_attr("search", own)
        elif differing := [key for key in own if own[key] != known.get(key)]:
            raise SettingsError(
                f"The study in --out was begun with another {differing[0]}; name another --out."
            )

    def wanted(self, found: Found, width: int) -> list[Item]:
        """The runs that are to be done next; none if the search is over.

        Args:
            found: finished runs.
            width: number of settings to try at a time.

        Raises:
            SettingsError: Runs that the study knows are not among the finished ones.
        """
        self._check_recorded(found)
        missing: list[Item] = []
        under_way = 0
        for running in self._running():
            items = self._advance(running, found)
            missing += items
            under_way += bool(items)
        while under_way < width and self._may_try_more and (trial := self._next()):
            items = self._advance(trial, found)
            missing += items
            under_way += bool(items)
        return missing or list(self._more_seeds(found))

    def _check_recorded(self, found: Found) -> None:
        """Without their records, settings would neither be chosen nor trained again."""
        for _, recipe in self._settings().values():
            if any(found.of(item) is None for item in self._items(recipe, 0)):
                raise SettingsError(
                    "The study in --out has settings whose runs, with these weights, are not "
                    "recorded; give the --records that they were added to, or another --out."
                )

    def over(self, found: Found) -> bool:
        """Whether nothing is left to run."""
        running = any(trial.state.name == "RUNNING" for trial in self._trials())
        return not (running or self._may_try_more or any(self._more_seeds(found)))

    @property
    def _may_try_more(self) -> bool:
        whole = self._study.user_attrs.get("whole space")
        return self.tried < self.start.budget.settings and self.tried != whole

    def failed(self, item: Item, problem: str) -> None:
        """Gives up the setting of a run that failed."""
        self.problems[item.digest] = problem

    @property
    def tried(self) -> int:
        """Settings that were begun."""
        return len(self._begun())

    def _begun(self) -> list[optuna.trial.FrozenTrial]:
        return [
            t for t in self._trials() if t.state.name != "WAITING" and REPEATED not in t.user_attrs
        ]

    @property
    def best(self) -> tuple[float, dict[str, Any]] | None:
        """The highest mean of the first seed, and its settings; None before there is one."""
        done = [trial for trial in self._trials() if trial.state.name == "COMPLETE"]
        if not done:
            return None
        one = max(done, key=lambda trial: trial.value or 0.0)
        return one.value or 0.0, self.start.space.decoded(one.params)

    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _running(self) -> Iterator[optuna.trial.Trial]:
        """Settings whose runs are not all finished, also those that a killed process left."""
        import optuna

        for frozen in self._trials():
            if frozen.state == optuna.trial.TrialState.RUNNING:
                self._seed(frozen.number)
                yield optuna.trial.Trial(self._study, frozen._trial_id)

    def _next(self) -> optuna.trial.Trial | None:
        """A setting that was not tried before; None if the space seems to have no other."""
        for attempt in range(ATTEMPTS):
            known = [trial.params for trial in self._begun()]
            number = sum(trial.state.name != "WAITING" for trial in self._trials())
            self._seed(number, "random" if attempt > ATTEMPTS // 4 else None)
            trial = self._study.ask()
            self.start.space.suggest(trial, self.start.recipe)
            if trial.params not in known:
                return trial
            trial.set_user_attr(REPEATED, True)
            self._study.tell(trial, state=_state("FAIL"))
        self._study.set_user_attr("whole space", self.tried)
        return None

    def _seed(self, number: int, sampler: str | None = None) -> None:
        """Makes the sampler anew for each setting, so that a killed search goes on as it would."""
        import optuna

        budget = self.start.budget
        kinds: dict[str, Any] = {
            "tpe": optuna.samplers.TPESampler,
            "gp": optuna.samplers.GPSampler,
            "random": optuna.samplers.RandomSampler,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.sampler = kinds[sampler or budget.sampler or "tpe"](
                seed=10_000 * budget.seed + number
            )

    def _advance(self, trial: optuna.trial.Trial, found: Found) -> list[Item]:
        """Tells the study what is known of a setting; returns the runs that it waits for."""
        start = self.start
        changes = start.space.suggest(trial, start.recipe)
        try:
            recipe = self._recipe(changes)
        except SettingsError as error:
            return self._give_up(trial, str(error))
        lengths = start.lengths(recipe)
        value = 0.0
        for rung, shorter in enumerate(lengths):
            items = start.runs(shorter, self.question.targets, in_full=recipe)
            for item in items:
                if problem := self.problems.get(item.digest):
                    return self._give_up(trial, problem)
            records = {item.recipe.target: found.of(item) for item in items}
            if missing := [item for item in items if records[item.recipe.target] is None]:
                return missing
            value = max(self._means(records).values())
            if FACTOR**rung not in self._trials()[trial.number].intermediate_values:
                trial.report(value, FACTOR**rung)
                # The recipe itself is trained in full.
                if trial.should_prune() and trial.number and rung < len(lengths) - 1:
                    self._study.tell(trial, state=_state("PRUNED"))
                    return []
        self._study.tell(trial, value)
        return []

    def _recipe(self, changes: Mapping[str, Any]) -> Recipe:
        key = json.dumps(changes)
        if key not in self._recipes:
            changed = with_changes(self.start.recipe, changes)
            self._recipes[key] = settled(changed, official=self.start.official)
        return self._recipes[key]

    def _give_up(self, trial: optuna.trial.Trial, problem: str) -> list[Item]:
        trial.set_user_attr("problem", problem)
        self._study.tell(trial, state=_state("FAIL"))
        return []

    def _means(self, records: Mapping[tuple[str, ...], Record | None]) -> dict[Share, float]:
        """Mean over the domains left out, by share."""
        values = self._values({0: records})
        return {share: fmean(own[0] for own in domains.values()) for share, domains in values}

    def _values(
        self, records: Mapping[int, Mapping[tuple[str, ...], Record | None]]
    ) -> list[tuple[Share, dict[str, dict[int, float]]]]:
        """Accuracy by domain and seed, for every share that all runs are scored at.

        Args:
            records: by seed and what was held out; a seed counts if no run of it is missing.
        """
        whole = {seed: own for seed, own in records.items() if None not in own.values()}
        known = [record for own in whole.values() for record in own.values() if record]
        measure, found = measure_of(known), []
        for share in self.start.shares:
            values: dict[str, dict[int, float]] = {}
            for fold in self.question.folds:
                figures = {
                    seed: score(record, fold, share, measure)
                    for seed, own in whole.items()
                    for record in [own[fold.target]]
                    if record is not None
                }
                values[fold.domain] = {s: v for s, v in figures.items() if v is not None}
            if all(len(own) == len(whole) for own in values.values()):
                found.append((share, values))
        return found

    def _settings(self) -> dict[str, tuple[dict[str, Any], Recipe]]:
        """What was trained in full, each setting once, by its digest, in the order it was tried."""
        found: dict[str, tuple[dict[str, Any], Recipe]] = {}
        for trial in self._trials():
            if trial.state.name == "COMPLETE":
                changes = self.start.space.decoded(trial.params)
                recipe = self._recipe(changes)
                found.setdefault(_kind(recipe), (changes, recipe))
        return found

    def candidates(self, found: Found) -> list[Candidate]:
        """What was trained in full, at every share, with the scores that are recorded."""
        start, result = self.start, []
        for digest, (changes, recipe) in self._settings().items():
            records = {
                seed: {item.recipe.target: found.of(item) for item in self._items(recipe, seed)}
                for seed in range(start.budget.seeds)
            }
            known = self._outer_records(recipe, found)
            for share, values in self._values(records):
                distance = start.distance(changes, share)
                outer = self._outer(known, share)
                result.append(Candidate(changes, share, values, distance, outer, digest))
        return result

    def in_full(self, found: Found) -> list[Record]:
        """The records of all settings that were trained in full."""
        items = (
            item
            for _, recipe in self._settings().values()
            for seed in range(self.start.budget.seeds)
            for item in self._items(recipe, seed)
        )
        return [record for item in items if (record := found.of(item)) is not None]

    def _items(self, recipe: Recipe, seed: int) -> list[Item]:
        """The runs of a setting in full, made once: their digests take time."""
        key = (_kind(recipe), seed)
        if key not in self._runs:
            self._runs[key] = self.start.runs(recipe, self.question.targets, seed)
        return self._runs[key]

    def _outer_records(self, recipe: Recipe, found: Found) -> dict[int, Record]:
        """Runs by seed that hold out the target alone, and train on all else."""
        known = {}
        for seed in range(self.start.budget.seeds if len(self.question.target) == 1 else 0):
            (item,) = self.start.runs(recipe, [self.question.target], seed)
            record = found.of(replace(item, materials={**item.materials, "images": None}))
            if record is not None:
                known[seed] = record
        return known

    def _outer(self, records: Mapping[int, Record], share: Share) -> dict[int, float]:
        """Accuracy on the target itself, by seed."""
        if not records:
            return {}
        fold = Fold(self.question.target[0], self.question.target)
        measure = measure_of(records.values())
        values = {seed: score(record, fold, share, measure) for seed, record in records.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def finalists(self, found: Found) -> list[str]:
        """Digests of the best settings by their first seed, and of the recipe if it was tried."""
        candidates = self.candidates(found)
        best: dict[str, float] = {}
        for one in candidates:
            mean = fmean(own[0] for own in one.values.values())
            best[one.digest] = max(mean, best.get(one.digest, mean))
        ranked = sorted(best, key=best.__getitem__, reverse=True)[: self.start.budget.finalists]
        own = [one.digest for one in candidates if one.distance == 0]
        return list(dict.fromkeys((*ranked, *own)))

    def _more_seeds(self, found: Found) -> Iterator[Item]:
        settings, finalists = self._settings(), self.finalists(found)
        for seed in range(1, self.start.budget.seeds):
            for digest in finalists:
                for item in self._items(settings[digest][1], seed):
                    if found.of(item) is None and item.digest not in self.problems:
                        yield item

    def importances(self) -> dict[str, float]:
        """How much each setting matters, in shares of 1, by Optuna's fANOVA.

        It goes by all settings after the shortest training. What only some methods heed is left
        out. Empty with fewer than four settings, of a list of them, or if all are as good.
        """
        import optuna

        trials = [trial for trial in self._trials() if 1 in trial.intermediate_values]
        values = [trial.intermediate_values[1] for trial in trials]
        if len(trials) < 4 or len(set(values)) < 2 or self.start.space.whole:
            return {}
        alone = optuna.create_study(direction="maximize")
        for trial, value in zip(trials, values, strict=True):
            alone.add_trial(
                optuna.trial.create_trial(
                    params=trial.params, distributions=trial.distributions, value=value
                )
            )
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        found = optuna.importance.get_param_importances(alone, evaluator=evaluator)
        return {key: float(share) for key, share in found.items()}

    def given_up(self) -> dict[str, str]:
        """Why settings failed, by the changes that they make."""
        failed = [trial for trial in self._begun() if trial.state.name == "FAIL"]
        return {
            changes_text(self.start.space.decoded(trial.params)): trial.user_attrs["problem"]
            for trial in failed
        }

    def stopped(self) -> dict[str, float]:
        """Settings that were not trained in full, with their mean after the shortest training."""
        return {
            changes_text(self.start.space.decoded(trial.params)): trial.intermediate_values[1]
            for trial in self._trials()
            if trial.state.name == "PRUNED"
        }

    def counts(self) -> dict[str, int]:
        """How many settings were tried, stopped early, and failed."""
        states = [trial.state.name for trial in self._begun()]
        stopped, failed = states.count("PRUNED"), states.count("FAIL")
        return {"tried": self.tried, "stopped": stopped, "failed": failed}


def _state(name: str) -> Any:
    import optuna

    return optuna.trial.TrialState[name]
