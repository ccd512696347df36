"""Settings and environments as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.report import parts
from bne.report.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {"platform": "system", "weights": "initial weights"}
SHOWN = 12  # characters of a checksum


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted key, their values as `--set` takes them."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            path = prefix + name == "weights" and value  # the folder it lay in says nothing
            found[prefix + name] = value_text(Path(value).name if path else value)
    return found


def value_text(value: Any) -> str:
    """A setting's value, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "[]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_text(own)}" for key, own in value.items()) or "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_table(caption: str, settings: Mapping[str, str]) -> str:
    """A table of flat settings, folded."""
    return parts.folded(caption, parts.table(caption, ("setting", "value"), settings.items()))


def environment_table(environments: Sequence[Mapping[str, Any]]) -> str:
    """What runs ran in; where they differ, how many had which.

    Args:
        environments: as `bne.engine.environment.describe` gives them, at least one.
    """
    names = dict.fromkeys(name for one in environments for name in one)
    rows = []
    for name in names:
        texts = [_environment_text(name, one.get(name)) for one in environments]
        kinds = {text: texts.count(text) for text in dict.fromkeys(texts)}
        told = [f"{text} ({counted(n, 'run')})" for text, n in kinds.items()]
        rows.append((NAMES.get(name, name), "; ".join(told) if len(kinds) > 1 else texts[0]))
    return parts.table("What it ran in", ("", ""), rows)


def _environment_text(name: str, value: Any) -> str:
    if name == "weights" and isinstance(value, Mapping):
        checksum = value.get("sha256")
        end = f", SHA-256 {str(checksum)[:SHOWN]}…" if checksum else ""
        return f"{value.get('name') or 'random'}{end}"
    return "not known" if value is None else value_text(value)
