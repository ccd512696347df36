"""What a converted network may be told, and what is refused."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

Domains = Tensor | Sequence[int] | Sequence[str]
"""The domains of N images: indices or names. Indices on a GPU are not checked."""

Mix = Literal["logits", "probabilities", "statistics", "centre"]
ONE_PASS = ("statistics", "centre")
"""What to mix if evaluation runs no branch, but one network between them."""
BranchStatistics = Literal["batch", "population"]

Lean = float | Mapping[str, float]
"""How far images lean on their own statistics, 0 to 1: everywhere, or by layer name."""

Layers = Iterable[str] | int | None
"""Layers by name, or the first so many; None for all."""

Output = str | int | Callable[[Any], Tensor] | None
"""Where the logits are in a network's output: an attribute or key, an index, or a function."""


def checked_domains(domains: Iterable[str]) -> tuple[str, ...]:
    """The names in their order.

    Raises:
        TypeError: They have no order.
        ValueError: There is none, or one is there twice.
    """
    if not isinstance(domains, Iterable) or isinstance(domains, set | frozenset):
        raise TypeError(f"domains must be names in an order, as a list has, not {domains!r}")
    names = (domains,) if isinstance(domains, str) else tuple(domains)
    if not names or len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"domains must be one or more different names, not {list(names)}")
    return names


def checked_limit(option: str, value: int | None) -> int | None:
    """The value, if it is a whole number of at least 1 or None; otherwise an error says so."""
    if value is not None and not (isinstance(value, int) and value >= 1):
        raise ValueError(f"the whole number {option} must be at least 1, not {value!r}")
    return value


def check_least(least: float, **values: float | None) -> None:
    """Refuses values below a limit, by their options' names; None is none of them."""
    for option, value in values.items():
        if value is not None and not value >= least:
            raise ValueError(f"{option} must be at least {least}, not {value}")


def check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{option} must be one of {list(choices)}, not {value!r}")


def checked_layers(layers: Layers, known: list[str]) -> tuple[str, ...] | None:
    """The layers' names; None for all.

    Args:
        layers: as they were given.
        known: the names of all layers whose statistics can be compared, in order.

    Raises:
        ValueError: There is no such layer, or none is named.
    """
    if layers is None:
        return None
    if isinstance(layers, int):
        if not 1 <= layers <= len(known):
            raise ValueError(f"layers must be 1 to {len(known)}, or names, not {layers}")
        return tuple(known[:layers])
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(f"no batch-norm layer is named {unknown}; there are {known}")
    return names


def lean_shares(lean: Lean, layers: Iterable[str]) -> dict[str, float]:
    """The share that each of a network's layers leans by, by name.

    Raises:
        ValueError: A share does not lie in 0 … 1, or there is no such layer.
    """
    names = list(layers)
    shares = dict(lean) if isinstance(lean, Mapping) else dict.fromkeys(names, lean)
    for share in shares.values():
        check_share("lean", share)
    check_names(shares, names)
    return {name: float(shares.get(name, 0.0)) for name in names}


def kept_lean(lean: Lean) -> Lean:
    """The same, as a copy: to change it later changes no network."""
    return dict(lean) if isinstance(lean, Mapping) else lean


def check_names(given: Iterable[str], names: list[str]) -> None:
    """Refuses names of layers that the network does not have."""
    if unknown := [name for name in given if name not in names]:
        raise ValueError(f"no batch-norm layer is named {unknown}; there are {names}")


def check_share(option: str, value: object) -> None:
    """Refuses what is no share from 0 to 1, by the option's name."""
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value <= 1:
        raise ValueError(f"{option} must be a share from 0 to 1, not {value!r}")
