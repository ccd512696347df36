"""The names of the methods."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from bne.methods.method import Method


@dataclass(frozen=True)
class Entry:
    """A method under its name.

    Attributes:
        name: as given on the command line and in recipes.
        method: the class.
        sentence: of the paper, what the method implements.
        presets: options that the name stands for.
    """

    name: str
    method: type[Method]
    sentence: str
    presets: Mapping[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """All options, with the values they have unless others are given."""
        return {**_options(self.method), **self.presets}


_REGISTRY: dict[str, Entry] = {}


def register(name: str, sentence: str, **presets: Any) -> Callable[[type[Method]], type[Method]]:
    """Decorator that makes a method available under a name; one class may have several.

    Args:
        name: of the method.
        sentence: of the paper, what the method implements.
        **presets: options that the name stands for.
    """

    def add(method: type[Method]) -> type[Method]:
        if name in _REGISTRY:
            raise ValueError(f"a method named {name!r} is registered already")
        _REGISTRY[name] = Entry(name, method, sentence, presets)
        return method

    return add


def find(name: str) -> Entry:
    """The method registered under a name.

    Raises:
        ValueError: There is none; the message names the nearest.
    """
    if name not in _REGISTRY:
        raise ValueError(f"method {name!r} is unknown; {did_you_mean(name, _REGISTRY)}")
    return _REGISTRY[name]


def entries() -> list[Entry]:
    """All registered methods."""
    return list(_REGISTRY.values())


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Checks the names of options before anything is built.

    Raises:
        ValueError: The method, or one of the options, is unknown; the message names the nearest.
    """
    known = find(name).options
    for key in options:
        if key not in known:
            raise ValueError(f"method {name!r} has no option {key!r}; {did_you_mean(key, known)}")


def create(
    name: str, model: nn.Module, domains: Sequence[str], options: Mapping[str, Any] | None = None
) -> Method:
    """Makes a method.

    Args:
        name: under which it is registered.
        model: the plain network; the method takes it over, as it is or converted.
        domains: the source domains' names.
        options: of the method.

    Raises:
        ValueError: The method, an option or an option's value is unknown.
    """
    options = options or {}
    check_options(name, options)
    entry = find(name)
    return entry.method(model, domains, **{**entry.presets, **options})


def _options(method: type[Any]) -> dict[str, Any]:
    """A class's options; where it passes others on, also those of the classes that get them."""
    found: dict[str, Any] = {}
    for owner in method.__mro__:
        constructor = vars(owner).get("__init__")
        if constructor is None:
            continue
        parameters = inspect.signature(constructor).parameters.values()
        named = [p for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
        found = {p.name: p.default for p in named} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found
