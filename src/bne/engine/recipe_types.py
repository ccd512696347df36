"""What files and command lines give, as the types that settings are declared to have."""

from __future__ import annotations

import math
from collections.abc import Callable
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

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
        raise TypeError(describe(hint) + _nearest(hint, value))
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
    raise TypeError(describe(hint) + _nearest(hint, value))


def _nearest(hint: Any, value: Any) -> str:
    near = get_close_matches(str(value), _words(hint), n=1)
    return f"; the nearest is {near[0]!r}" if near else ""


def _words(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return [part for part in get_args(hint) if isinstance(part, str)]
    return [word for part in get_args(hint) for word in _words(part)]
