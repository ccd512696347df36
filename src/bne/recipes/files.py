"""Recipes in YAML files: those of the package, one per table of the paper, and others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from bne.data.benchmarks import find_benchmark
from bne.errors import SettingsError, did_you_mean
from bne.recipes.checks import check_settings
from bne.recipes.schema import Settings, checked, convert, merged, nested, to_recipe

if TYPE_CHECKING:
    from bne.recipes.schema import Recipe


class _Loader(yaml.SafeLoader):
    """Plain values only; a key that stands twice is an error instead of hiding the first."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a text", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would take for something else."""


# PyYAML takes 1e-4, which has no point, for a text.
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
    )


def parse(text: str | bytes) -> Any:
    """The numbers, texts, lists and groups that a text stands for.

    Raises:
        ValueError: It is not YAML, or has a key twice; the message says where.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def dump(content: object) -> str:
    """The text that `parse` reads the same content from."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


FOLDER = Path(__file__).parent
Analysis = Literal["closest-domain-accuracy", "domain-accuracy", "similarity"]


@dataclass(frozen=True)
class Row:
    """One line of a table: its name, which of several of that name, and settings of its own."""

    name: str
    variant: str
    settings: Settings

    @property
    def title(self) -> str:
        """Name and variant together."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


@dataclass(frozen=True)
class Experiment:
    """What a file describes: a table of the paper, or, without rows, a single recipe.

    Attributes:
        name: the file's, without its ending; that of the table.
        title: what it is, in a line.
        settings: of the recipe, common to all rows.
        benchmark: its name, see `bne.data.find_benchmark`; None for any data.
        targets: the groups of domains held out, one run each; the benchmark's own unless the file
            names some of them.
        analysis: what the table shows of the trained networks; None for their accuracy.
        rows: the lines of the table, in its order.
    """

    name: str
    title: str
    settings: Settings
    benchmark: str | None
    targets: tuple[tuple[str, ...], ...]
    analysis: Analysis | None
    rows: tuple[Row, ...]

    def recipe(self, overrides: Settings, row: Row | None = None) -> Recipe:
        """The recipe of one run of a row, or of what is common to all, complete and checked.

        Args:
            overrides: settings by dotted key, `{"target": ["sketch"], "train.epochs": 20}`; of
                two that mean the same the last counts.
            row: of the table.

        Raises:
            SettingsError: A setting is unknown, impossible or missing; the message names it.
        """
        settings = merged(self.settings, row.settings if row else {})
        try:
            for key, value in overrides.items():
                settings = merged(settings, checked(nested(key, value)))
            recipe = to_recipe(settings)
            check_settings(recipe)
        except SettingsError as error:
            raise SettingsError(f"recipe {self.name}: {error}") from None
        return recipe


def names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name_or_path: str | Path, overrides: Settings) -> Recipe:
    """One recipe: that of a file without rows, or what is common to those of a table.

    Args:
        name_or_path: one of `names`, or a file that ends in `.yaml`.
        overrides: settings by dotted key; the target, if the file has none.

    Raises:
        SettingsError: There is no such recipe, or something in it is wrong.
    """
    return load_experiment(name_or_path).recipe(overrides)


def load_experiment(name_or_path: str | Path) -> Experiment:
    """What a file that ends in `.yaml`, or one of `names`, describes, every key and value checked.

    Raises:
        SettingsError: There is no such file, or something in it is wrong; the message says what.
    """
    path = _find(str(name_or_path), Path())
    content = _read(path, ())
    about = {key: content[key] for key in _ABOUT if key in content}
    benchmark = find_benchmark(about["benchmark"]) if "benchmark" in about else None
    return Experiment(
        name=path.stem,
        title=about.get("title", path.stem),
        settings={key: value for key, value in content.items() if key not in _ABOUT},
        benchmark=about.get("benchmark"),
        targets=about.get("targets", benchmark.targets if benchmark else ()),
        analysis=about.get("analysis"),
        rows=about.get("rows", ()),
    )


# What a file says besides settings of the recipe.
_ABOUT: dict[str, Any] = {
    "base": str,
    "title": str,
    "benchmark": str,
    "targets": tuple[tuple[str, ...], ...],
    "analysis": Analysis,
    "rows": tuple[Mapping[str, Any], ...],
}


def _find(name: str, folder: Path) -> Path:
    """The file of that name; a path is relative to `folder`."""
    if name.endswith((".yaml", ".yml")):
        if not (folder / name).is_file():
            raise SettingsError(f"{folder / name}: there is no such recipe file.")
        return folder / name
    if name not in names():
        advice = did_you_mean(name, names())
        raise SettingsError(
            f"There is no recipe {name}; {advice}; a file's name must end in .yaml."
        )
    return FOLDER / f"{name}.yaml"


def _read(path: Path, above: tuple[Path, ...]) -> Settings:
    """A file's content, checked, over that of the file it is based on."""
    if path in above:
        raise SettingsError(f"{path}: base leads back to this file; remove one of them.")
    content = _checked_file(_parse(path), str(path))
    if "base" not in content:
        return content
    return merged(_read(_find(content["base"], path.parent), (*above, path)), content)


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        content = parse(path.read_bytes())
    except ValueError as error:
        raise SettingsError(f"{path}: not in the YAML format: {error}.") from None
    if not isinstance(content, Mapping):
        raise SettingsError(f"{path}: must hold settings, one `key: value` per line.")
    return content


def _checked_file(content: Mapping[str, Any], source: str) -> Settings:
    about = {key: content[key] for key in _ABOUT if key in content}
    for key, value in about.items():
        try:
            about[key] = convert(_ABOUT[key], value)
        except TypeError as error:
            raise SettingsError(f"{source}: {key} is {value!r}; it must be {error}.") from None
    if "rows" in about:
        about["rows"] = tuple(_row(row, source) for row in about["rows"])
    rest = {key: value for key, value in content.items() if key not in _ABOUT}
    return {**about, **checked(rest, source, _ABOUT)}


def _row(row: Any, source: str) -> Row:
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        raise SettingsError(f"{source}: rows has {row!r}; each row must have a name.")
    here = f"{source}, row {row['name']}"
    variant = row.get("variant", "")
    if not isinstance(variant, str):
        raise SettingsError(f"{here}: variant is {variant!r}; it must be a text.")
    about = ("name", "variant")
    rest = {key: value for key, value in row.items() if key not in about}
    return Row(row["name"], variant, checked(rest, here, about))
