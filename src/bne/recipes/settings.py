"""Settings of a recipe as nested groups of plain values: checked, merged, made into a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bne.errors import DataError
from bne.recipes.schema import Recipe

_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "null",
}


def convert(hint: Any, value: Any) -> Any:
    """A value as the type it is declared to have.

    Types that have no check of their own pass as they are.

    Raises:
        TypeError: It is of another type; the message says what is expected.
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _first_that_fits(hint, value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(convert(get_args(hint)[0], item) for item in value)
    if not _fits(hint, value):
        raise TypeError(describe(hint) + _nearest_choice(hint, value))
    return value


def describe(hint: Any) -> str:
    """What a type means to somebody who writes a recipe."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(describe(part) for part in parts)
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin is tuple:
        return "a list"
    if origin is Callable:
        return "a function"
    return _NAMES.get(hint, "a group of settings")


def _fits(hint: Any, value: Any) -> bool:
    if get_origin(hint) is tuple:
        return False
    if get_origin(hint) is Callable:
        return callable(value)
    if isinstance(value, bool):  # which is a whole number to Python
        return hint is bool or (hint not in _NAMES and get_origin(hint) is not Literal)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return hint not in _NAMES or isinstance(value, hint)


def _first_that_fits(hint: Any, value: Any) -> Any:
    for choice in get_args(hint):
        try:
            return convert(choice, value)
        except TypeError:
            continue
    raise TypeError(describe(hint) + _nearest_choice(hint, value))


def _nearest_choice(hint: Any, value: Any) -> str:
    near = get_close_matches(str(value), _words(hint), n=1)
    return f"; the nearest is {near[0]!r}" if near else ""


def _words(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [part for part in get_args(hint) if isinstance(part, str)]
    return [word for part in get_args(hint) for word in _words(part)]


Settings = Mapping[str, Any]
Limit = tuple[Callable[[float], bool], str]

_ABOVE_ZERO: Limit = (lambda x: x > 0, "above 0")
_RATE: Limit = (lambda x: 0 < x <= 1e6, "above 0 and at most 1e6")
_FROM_ZERO: Limit = (lambda x: x >= 0, "at least 0")
_FROM_ONE: Limit = (lambda x: x >= 1, "at least 1")
_EPOCHS: Limit = (lambda x: 0 <= x <= 1e6, "at least 0 and at most 1,000,000")
_STEPS: Limit = (lambda x: 1 <= x <= 1e6, "at least 1 and at most 1,000,000")
_SHARE: Limit = (lambda x: 0 <= x < 1, "at least 0 and below 1")
_FACTOR: Limit = (lambda x: 0 < x <= 1, "above 0 and at most 1")
# Every number has one, by the last part of its key.
LIMITS = {
    "learning_rate": _RATE,
    "momentum": _SHARE,
    "weight_decay": _FROM_ZERO,
    "head_factor": _ABOVE_ZERO,
    "clip": _ABOVE_ZERO,
    "decay": _FACTOR,
    "tail": _FACTOR,
    "epochs": _EPOCHS,
    "warm_up": _EPOCHS,
    "seed": _FROM_ZERO,
    "per_domain": _FROM_ONE,
    "accumulate": _FROM_ONE,
    "epoch": _STEPS,
    "validation": _SHARE,
    "resize": _FROM_ONE,
    "patience": _FROM_ONE,
}


def checked(settings: Any, source: str = "", others: Iterable[str] = ()) -> Settings:
    """Some settings of a recipe, each of the type and within the limits that the recipe states.

    Args:
        settings: nested as the recipe is; any may be absent.
        source: where they stand, to begin an error with.
        others: keys that may stand beside them, for the advice on a misspelt one.

    Raises:
        DataError: A key is unknown, at any depth, or a value impossible; the message has the full
            dotted key and the nearest valid one.
    """
    try:
        return _checked_group(settings, Recipe, "", others)
    except DataError as error:
        raise DataError(f"{source}: {error}" if source else str(error)) from None


def nested(dotted: Settings) -> Settings:
    """`{"train.epochs": 20}` as `{"train": {"epochs": 20}}`."""
    result: Settings = {}
    for key, value in dotted.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merged(result, value)
    return result


def merged(settings: Settings, over: Settings) -> Settings:
    """Settings with others on top: groups are merged key by key, values and lists replaced."""
    result = dict(settings)
    for key, value in over.items():
        old = result.get(key)
        groups = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if groups else value  # type: ignore[arg-type]
    return result


def to_recipe(settings: Settings) -> Recipe:
    """The recipe of checked settings, the rest being its defaults.

    Raises:
        DataError: There is no method or no target.
    """
    for key in ("method", "target"):
        if not settings.get(key):
            raise DataError(f"{key} is missing; give it in the recipe or on the command line.")
    plain = Recipe(method=settings["method"], target=settings["target"])
    recipe: Recipe = _replaced(plain, settings)
    return recipe


def keys(kind: Any = Recipe, prefix: str = "") -> dict[str, Any]:
    """All settings by their dotted keys, with the types of their values."""
    found = {}
    for name, hint in _hints(kind).items():
        key = prefix + name
        found.update(keys(hint, f"{key}.") if is_dataclass(hint) else {key: hint})
    return found


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Mapping": Mapping})


def _checked_group(settings: Any, kind: Any, prefix: str, others: Iterable[str] = ()) -> Settings:
    if not isinstance(settings, Mapping):
        place = prefix.rstrip(".") or "the recipe"
        raise DataError(f"{place} is {settings!r}; it must be a group of settings.")
    known, result = _hints(kind), {}
    for name, value in settings.items():
        if name not in known:
            near = _nearest(str(name), prefix, [*known, *others])
            raise DataError(f"{prefix}{name} is no setting; {near}.")
        check = _checked_group if is_dataclass(known[name]) else _checked_value
        result[name] = check(value, known[name], f"{prefix}{name}.")
    return result


def _checked_value(value: Any, hint: Any, prefix: str) -> Any:
    key = prefix.rstrip(".")
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise DataError(f"{key} is {value!r}; it must be a group of settings.")
        return value
    try:
        result = convert(hint, value)
    except TypeError as error:
        raise DataError(f"{key} is {value!r}; it must be {error}.") from None
    if isinstance(result, int | float) and not isinstance(result, bool):
        within, words = LIMITS[key.split(".")[-1]]
        if not within(result):
            raise DataError(f"{key} is {value!r}; it must be {words}.")
    return result


def _nearest(name: str, prefix: str, siblings: Sequence[str]) -> str:
    near = get_close_matches(name, siblings, n=1)
    elsewhere = [key for key in keys() if key.split(".")[-1] == name]
    if elsewhere and not (near and prefix):
        return f"the nearest is {' or '.join(elsewhere)}"
    if near:
        return f"the nearest is {prefix}{near[0]}"
    return f"there are {', '.join(prefix + sibling for sibling in siblings)}"


def _replaced(group: Any, settings: Settings) -> Any:
    """A copy of a dataclass with some of its values replaced, groups value by value."""
    changes = {}
    for name, value in settings.items():
        old = getattr(group, name)
        changes[name] = _replaced(old, value) if is_dataclass(old) else value
    return replace(group, **changes)
