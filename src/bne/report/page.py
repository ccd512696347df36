"""Pages that need nothing else: templates, and what all of them say in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bne.benchmark.tables import signed
from bne.recipes.schema import flat
from bne.report.charts import BARS, heaviest, mean_percent, percent
from bne.report.look import picture
from bne.training.scores import RULES, UNTESTED, pooled
from bne.words import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {"platform": "system", "weights": "initial weights"}
SHOWN = 12  # characters of a checksum


def render(template: str, content: object) -> str:
    """A whole page, which asks nothing of any network; every text in it is escaped.

    Args:
        template: its name.
        content: a dataclass, whose fields the template knows by name.
    """
    return _templates().get_template(f"{template}.html.jinja").render(vars(content))


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("bne.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compact = {"separators": (",", ":"), "ensure_ascii": False, "default": asdict}
    found.policies["json.dumps_kwargs"] = compact
    words = (counted, duration, listed, setting_texts, signed)
    numbers = (heaviest, mean_percent, percent, picture, pooled)
    found.filters |= {function.__name__: function for function in (*words, *numbers)}
    found.filters |= {"digit": "{:.1f}".format, "file_name": lambda path: Path(path).name}
    found.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")
    found.filters["named"] = lambda keys, names: [names[key] for key in keys]
    found.globals |= {"BARS": BARS, "RULES": RULES, "UNTESTED": UNTESTED}
    found.globals["file"] = _file
    return found


def _file(name: str) -> Markup:
    """A script or style of ours, as it is."""
    return Markup((resources.files("bne.report") / "templates" / name).read_text("utf-8"))  # noqa: S704


def setting_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings by dotted key, their values as `--set` takes them."""
    found = flat(settings)
    if weights := found.get("weights"):  # the folder it lay in says nothing
        found["weights"] = Path(weights).name
    return {key: value_text(own) for key, own in found.items()}


def value_text(value: Any) -> str:
    """A setting's value, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "[]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_text(own)}" for key, own in value.items()) or "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def environment_texts(environments: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What runs ran in; where they differ, how many had which.

    Args:
        environments: as `bne.training.environment.describe` gives them.
    """
    found = {}
    for name in dict.fromkeys(name for one in environments for name in one):
        texts = [_environment_text(name, one.get(name)) for one in environments]
        kinds = {text: texts.count(text) for text in dict.fromkeys(texts)}
        told = [f"{text} ({counted(n, 'run')})" for text, n in kinds.items()]
        found[NAMES.get(name, name)] = "; ".join(told) if len(kinds) > 1 else texts[0]
    return found


def _environment_text(name: str, value: Any) -> str:
    if name == "weights" and isinstance(value, Mapping):
        checksum = value.get("sha256")
        end = f", SHA-256 {str(checksum)[:SHOWN]}…" if checksum else ""
        return f"{value.get('name') or 'random'}{end}"
    return "not known" if value is None else value_text(value)
