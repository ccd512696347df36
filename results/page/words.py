"""Markdown, and numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A pipe table.

    Args:
        head: of the columns.
        rows: of text.
        texts: how many columns, the first, are left-aligned.
    """
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def number(value: float) -> str:
    """As short as it can be: 3e-3, 0.9, 10."""
    small = 0 < abs(value) < 0.1
    return np.format_float_scientific(value, trim="-", exp_digits=1) if small else f"{value:g}"


def value_text(value: Any) -> str:
    """A setting's value as YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return number(value) if isinstance(value, int | float) else str(value)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings by dotted key, as `--set` takes them, joined by commas."""
    return ", ".join(f"`{key}={value_text(value)}`" for key, value in settings.items())


def listed(things: Iterable[str]) -> str:
    """Joined by commas, each once."""
    return ", ".join(dict.fromkeys(things))


def plural(count: int, thing: str) -> str:
    """1 seed, 2 seeds."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
