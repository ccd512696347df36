"""Which settings a search may choose: ranges and lists, from a YAML file or around a recipe.

Or a list of whole settings, all of which are tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from bne.benchmark.plan import kind
from bne.errors import SettingsError, did_you_mean
from bne.methods.method import Method, find
from bne.recipes.checks import check_settings, option_types
from bne.recipes.files import dump, parse
from bne.recipes.schema import checked, convert, flat, merged, nested, to_recipe
from bne.training.identity import settings_of
from bne.training.scores import SHARES
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import optuna

    from bne.recipes.schema import Recipe

RANGE = {"low", "high", "log", "step"}
WHOLE = "settings"
"""The key of a list of whole settings."""
OF_A_RUN = {
    "target": "--target says which domain is set aside",
    "sources": "all domains that are not held out train",
    "seed": "--seeds says how many there are",
}
LEANED = tuple(share for share in SHARES if share <= 0.2)
"""Shares to lean by unless a space names others: larger ones cost some domains much."""
METHODS = ("deepall", "bne", "points")
RATES = 5.0  # times lower and higher than the recipe's, in the default space
WARM_UP = 0.3  # of the epochs, as in the recipe `default`


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones if both of these are.

    Attributes:
        low: smallest number.
        high: largest number.
        log: whether every factor is as probable as any other, for learning rates.
        step: distance of the numbers; None takes all.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def suggest(self, trial: optuna.trial.Trial, name: str) -> float:
        """A number that the sampler chooses."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = int(self.step or 1)
            return trial.suggest_int(name, self.low, self.high, step=step, log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    def decoded(self, value: Any) -> Any:
        """A value of the study, as recipes have it."""
        return value

    def encoded(self, value: Any) -> float | None:
        """A value as the study has it; None if it is outside or between two steps."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        steps = (value - self.low) / (self.step or 1)
        off = self.step is not None and abs(steps - round(steps)) > 1e-6
        return value if self.low <= value <= self.high and not off else None

    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible for all to be."""
        return (self.low, self.high)

    def to_plain(self) -> dict[str, Any]:
        """As the file has it."""
        fields = {"low": self.low, "high": self.high}
        more = {"log": True} if self.log else {}
        return {**fields, **more, **({} if self.step is None else {"step": self.step})}


@dataclass(frozen=True)
class Choice:
    """Some values: numbers, texts, true, false, null or lists; or whole settings by dotted key."""

    values: tuple[Any, ...]

    def suggest(self, trial: optuna.trial.Trial, name: str) -> Any:
        """A value that the sampler chooses."""
        return self.decoded(trial.suggest_categorical(name, [json.dumps(v) for v in self.values]))

    def decoded(self, value: Any) -> Any:
        """A value of the study, as recipes have it."""
        return json.loads(value)

    def encoded(self, value: Any) -> str | None:
        """A value as the study has it; None if it is not there."""
        return next((json.dumps(own) for own in self.values if own == value), None)  # 0 is 0.0

    def ends(self) -> tuple[Any, ...]:
        """Values that must be possible for all to be."""
        return self.values

    def to_plain(self) -> list[Any]:
        """As the file has it."""
        return list(self.values)


@dataclass(frozen=True)
class Space:
    """What a search may choose.

    Attributes:
        dimensions: ranges and choices by dotted key, the method first; or `WHOLE` alone.
        shares: to lean by, which need no run of their own: every run is scored at all of them.
    """

    dimensions: Mapping[str, Range | Choice]
    shares: tuple[float | str, ...] = LEANED

    def suggest(self, trial: optuna.trial.Trial, recipe: Recipe) -> dict[str, Any]:
        """One setting, by dotted key; without what its method does not heed.

        Args:
            trial: that the sampler chooses for.
            recipe: whose method is taken if the space has none.
        """
        found: dict[str, Any] = {}
        for key, dimension in self.dimensions.items():
            if heeds(found.get("method", recipe.method), key):
                found[key] = dimension.suggest(trial, key)
        return _opened(found)

    def decoded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """One setting, by dotted key, of what the study has."""
        known = {key: own for key, own in self.dimensions.items() if key in values}
        return _opened({key: own.decoded(values[key]) for key, own in known.items()})

    @property
    def whole(self) -> tuple[Mapping[str, Any], ...]:
        """The whole settings that are listed, the recipe's own first; empty if none are."""
        return self.dimensions[WHOLE].ends() if WHOLE in self.dimensions else ()

    def count(self, wanted: int) -> int:
        """How many settings are tried: those wanted, if there are so many; all that are listed."""
        if self.whole:
            return len(self.whole)
        own = self.dimensions.values()
        return min(wanted, prod(len(o.values) if isinstance(o, Choice) else wanted for o in own))

    def first(self, recipe: Recipe) -> list[dict[str, Any]]:
        """What is tried first, as the study has it.

        All that is listed; otherwise what of a recipe lies within the space.
        """
        if self.whole:
            return [{WHOLE: self.dimensions[WHOLE].encoded(one)} for one in self.whole]
        values = {key: value_in(recipe, key, recipe.method) for key in self.dimensions}
        found = {key: self.dimensions[key].encoded(value) for key, value in values.items()}
        return [{key: value for key, value in found.items() if value is not None}]

    def __str__(self) -> str:
        shown = {key: dimension.to_plain() for key, dimension in self.dimensions.items()}
        return dump({**shown, "lean": list(self.shares)})


def _opened(found: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted key, of which some may stand together under `WHOLE`."""
    return {**found.pop(WHOLE, {}), **found}


def heeds(method: str, key: str) -> bool:
    """Whether a setting makes a difference to a method: an option of its own, or a warm-up."""
    entry = find(method)
    if key.startswith("options."):
        return key.split(".")[1] in entry.options
    return key != "train.warm_up" or entry.method.begin_epoch is not Method.begin_epoch


def value_in(recipe: Recipe, key: str, method: str) -> Any:
    """A recipe's value of a setting; of an option that it does not name, the method's default."""
    if key.startswith("options."):
        name = key.split(".")[1]
        return recipe.options.get(name, find(method).options.get(name))
    value: Any = recipe
    for part in key.split("."):
        value = getattr(value, part)
    return value


def default_space(recipe: Recipe) -> Space:
    """A small space around a recipe: method, rate, warm-up, augmentation, averaging, distance."""
    epochs, rate = recipe.train.epochs, recipe.train.optimiser.learning_rate
    found: dict[str, Range | Choice] = {
        "method": Choice(tuple(dict.fromkeys((*METHODS, recipe.method)))),
        "train.optimiser.learning_rate": Range(rate / RATES, rate * RATES, log=True),
        "train.warm_up": Choice(tuple(dict.fromkeys((0, round(WARM_UP * epochs))))),
        "augmentation": Choice(("paper", "strong") if recipe.channels == 3 else ("paper",)),
        "averaging.name": Choice((None, "ema", "swa")),
        "options.distance": Choice(("wasserstein", "bhattacharyya", "uniform")),
    }
    return Space({key: own for key, own in found.items() if len(own.ends()) > 1})


def with_changes(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with other settings, by dotted key; options that its method lacks are left out.

    Raises:
        SettingsError: A setting is unknown, or impossible with the others.
    """
    settings = recipe.to_dict()
    try:
        known = find(changes.get("method", recipe.method)).options
    except ValueError as error:
        raise SettingsError(f"{error}.") from None
    settings["options"] = {key: own for key, own in recipe.options.items() if key in known}
    for key, value in changes.items():
        settings = dict(merged(settings, checked(nested(key, value))))
    changed = to_recipe(checked(settings))
    check_settings(changed)
    return changed


def read_space(path: Path, recipe: Recipe) -> Space:
    """The space of a file: a list of values or a range for each setting, nested or by dotted key.

    Or, under `settings`, a list of whole settings.

    Args:
        path: of a YAML file.
        recipe: that settings are put into.

    Raises:
        SettingsError: A key is unknown, a list or range is empty, or a value is impossible; the
            message has the key.
    """
    try:
        content = parse(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file of a space.") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: not in the YAML format: {error}.") from None
    if not isinstance(content, Mapping) or not content:
        raise SettingsError(f"{path}: must have settings, `key: [value, value]` for example.")
    return to_space(content, recipe, str(path))


def to_space(content: Mapping[str, Any], recipe: Recipe, source: str = "space") -> Space:
    """The space of what a file says; see `read_space`."""
    try:
        found: dict[str, Range | Choice] = {}
        whole = content.get(WHOLE)
        content = {key: own for key, own in content.items() if key != WHOLE}
        for key, dimension in _flat(content).items():
            name, own = _canonical(key, dimension)
            if name in found:
                raise SettingsError(f"{name} is there twice, once as {key}.")
            found[name] = own
        shares = found.pop("lean", None)
        method = found.pop("method", None)
        ordered = {**({"method": method} if method else {}), **found}
        if whole is None:
            methods = method.ends() if method else (recipe.method,)
            _check_values(ordered, recipe, methods)
            ordered = {key: _typed(key, own, methods) for key, own in ordered.items()}
        elif ordered:
            raise SettingsError(f"{listed(ordered)} must stand in each of the settings, or alone.")
        else:
            ordered = {WHOLE: Choice(_whole(whole, recipe))}
        return Space(ordered, _shares(shares) if shares else LEANED)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None


def _flat(content: Mapping[Any, Any], prefix: str = "") -> dict[str, Range | Choice]:
    found: dict[str, Range | Choice] = {}
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, list):
            if not value:
                raise SettingsError(f"{key} has no values; name some, or leave it out.")
            found[key] = Choice(tuple(value))
        elif isinstance(value, Mapping) and value and set(value) <= RANGE:
            found[key] = _range(key, value)
        elif isinstance(value, Mapping) and value and not set(value) & RANGE:
            found |= _flat(value, f"{key}.")
        else:
            raise SettingsError(
                f"{key} is {value!r}; it must be a list of values or a range, "
                "{low: 1e-4, high: 1e-2, log: true} for example."
            )
    return found


def _range(key: str, value: Mapping[str, Any]) -> Range:
    numbers = [value.get(name) for name in ("low", "high", "step") if name in value]
    if not {"low", "high"} <= set(value) or not all(
        isinstance(n, int | float) and not isinstance(n, bool) for n in numbers
    ):
        raise SettingsError(f"{key} is {dict(value)}; a range has numbers low and high.")
    low, high, log, step = (value.get(n) for n in ("low", "high", "log", "step"))
    if low >= high:  # type: ignore[operator]
        raise SettingsError(f"{key} has an empty range: low is {low} and high {high}.")
    if log not in (None, True, False):
        raise SettingsError(f"{key}: log is {log!r}; it must be true or false.")
    if log and (low <= 0 or step is not None):  # type: ignore[operator]
        raise SettingsError(f"{key}: a log range has low above 0, and no step.")
    if step is not None and not 0 < step <= high - low:  # type: ignore[operator]
        raise SettingsError(f"{key}: step is {step}; it must be above 0 and fit the range.")
    return Range(low, high, bool(log), step)  # type: ignore[arg-type]


def _canonical(key: str, dimension: Range | Choice) -> tuple[str, Range | Choice]:
    """The recipe's key that a key of the file stands for, and values of the type it has there."""
    if why := OF_A_RUN.get(key):
        raise SettingsError(f"{key} is not to be chosen: {why}.")
    names, values = set(), []
    for value in dimension.ends():
        if isinstance(value, Mapping):
            raise SettingsError(f"{key} has a group of settings; give each a line of its own.")
        ((name, converted),) = flat(checked(nested(key, value))).items()
        names.add(name)
        values.append(converted)
    (name,) = names
    if name.startswith("options."):  # whose types methods have, see `_typed`
        return name, dimension
    return name, _of(key, dimension, values)


def _of(key: str, dimension: Range | Choice, values: Sequence[Any]) -> Range | Choice:
    """The same, with its values of another type."""
    if isinstance(dimension, Choice):
        return Choice(tuple(values))
    step = dimension.step
    if step is not None:
        step = type(values[0])(step)
        if step != dimension.step:
            raise SettingsError(f"{key}: step is {dimension.step}; it must be a whole number.")
    return replace(dimension, low=values[0], high=values[1], step=step)


def _typed(key: str, dimension: Range | Choice, methods: Sequence[str]) -> Range | Choice:
    """The same, its values of the type that a method declares if they are of an option.

    Whole numbers alone would be tried between two that a file has without a point.
    """
    if not key.startswith("options."):
        return dimension
    hints = (option_types(find(method).method) for method in methods if heeds(method, key))
    hint = next(hints)[key.split(".")[1]]
    return _of(key, dimension, [convert(hint, value) for value in dimension.ends()])


def _whole(given: Any, recipe: Recipe) -> tuple[dict[str, Any], ...]:
    """Whole settings by dotted key, the recipe's own first, each once."""
    if not isinstance(given, list) or not given:
        raise SettingsError("settings is to be a list, `- {method: bne, lr: 0.01}` for example.")
    found: dict[str, dict[str, Any]] = {kind(settings_of(recipe)): {}}
    for number, one in enumerate(given, 1):
        try:
            changes = flat(checked(one))
            for key in changes:
                if why := {**OF_A_RUN, "lean": "name shares beside settings"}.get(key):
                    raise SettingsError(f"{key} is not to be chosen: {why}.")
            changed = with_changes(recipe, changes)
            _check_method(changed.method)
        except SettingsError as error:
            raise SettingsError(f"number {number} of settings: {error}") from None
        found.setdefault(kind(settings_of(changed)), changes)
    return tuple(found.values())


def _check_method(name: str) -> None:
    if find(name).method.uses_target:
        raise SettingsError(
            f"method {name} learns from the target's images, which a search must not see; leave it "
            "out."
        )


def _shares(dimension: Range | Choice) -> tuple[float | str, ...]:
    known = ("auto", *SHARES)
    for share in dimension.ends():
        if isinstance(dimension, Range) or share not in known:
            raise SettingsError(
                f"lean is to be a list of shares that runs are scored at: {list(known)}."
            )
    return dimension.ends()


def _check_values(
    dimensions: Mapping[str, Range | Choice], recipe: Recipe, methods: Sequence[Any]
) -> None:
    """Tries each value on the recipe, one at a time, with a method that heeds it."""
    for method in methods:
        with_changes(recipe, {"method": method})
        _check_method(method)
    for key, dimension in dimensions.items():
        heeding = [method for method in methods if heeds(method, key)]
        if not heeding:
            options = [f"options.{name}" for method in methods for name in find(method).options]
            near = did_you_mean(key, dict.fromkeys(options))
            raise SettingsError(f"{key} makes no difference to {listed(methods)}; {near}.")
        for value in () if key == "method" else dimension.ends():
            with_changes(recipe, {"method": heeding[0], key: value})
