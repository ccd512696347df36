"""Hooks of mkdocs: the site's layout, and the pages that follow from the program itself.

The site has the repository's layout, README.md and docs/method.md where they stand, so that a link
from one page to another holds in both. The commands come from the command line itself and the
recipes from their files, so that neither page can fall behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import yaml
from mkdocs.structure.files import File, Files

from bne.benchmark.reference import tables
from bne.cli.app import app
from bne.recipes.files import Experiment, load_experiment, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "results/README.md",
    "results/notebook-2026-11-pacs-resnet18.md",
    "results/trials/digits.md",
    "results/trials/pacs.md",
    "benchmarks/README.md",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Gives every page its place in the repository, and adds those outside docs/."""
    pages: dict[str, dict[str, Any]] = {
        "docs/commands.md": {"content": commands_page()},
        "docs/recipes.md": {"content": recipes_page()},
    }
    for name in OUTSIDE:
        pages[name] = {"abs_src_path": str(ROOT / name)}
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
        pages[f"docs/{file.src_uri}"] = {"abs_src_path": file.abs_src_path}
    for name, source in pages.items():
        files.append(File.generated(config, name, **source))
    return files


def commands_page() -> str:
    """What `--help` says of every command."""
    lines = ["# Commands", "Every command has `--help`, which says what stands here.", ""]
    for name, command in _commands("bne", typer.main.get_command(app)):
        context = command.make_context(name, [], resilient_parsing=True)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f"## {name}", "", command.help or "", "", "```text", f"{name} {usage}", "```", ""]
        records = [parameter.get_help_record(context) for parameter in command.params]
        lines += ["| option | meaning |", "| --- | --- |"]
        lines += [f"| `{record[0]}` | {_cell(record[1])} |" for record in records if record]
        if command.epilog:
            example = command.epilog.removeprefix("Example: ")
            lines += ["", "For example:", "", "```bash", example, "```", ""]
    return "\n".join(lines)


def recipes_page() -> str:
    """What the recipes that come with the package are for, and their settings."""
    lines = [
        "# Recipes",
        "",
        "The recipes that come with the package. `bne train --recipe NAME` takes one, "
        "`bne benchmark --table NAME` runs a table of the paper. Settings that are not mentioned "
        "have the defaults of [Train](training.md#settings).",
        "",
    ]
    for name in names():
        lines += _recipe(load_experiment(name))
    return "\n".join(lines)


def _recipe(experiment: Experiment) -> Iterator[str]:
    yield f"## {experiment.name}"
    yield f"\n{experiment.title}.\n"
    if experiment.name in tables():
        yield f"A table of the paper: `bne benchmark --table {experiment.name}`.\n"
    if experiment.benchmark:
        targets = ", ".join(" + ".join(group) for group in experiment.targets)
        yield f"Benchmark `{experiment.benchmark}`; held out in turn: {targets}.\n"
    if experiment.rows:
        yield "| row | settings of its own |\n| --- | --- |"
        for row in experiment.rows:
            yield f"| {row.title} | `{_flow(row.settings)}` |"
        yield "\nSettings of all rows:\n"
    yield f"```yaml\n{yaml.safe_dump(dict(experiment.settings), sort_keys=False)}```\n"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands below one, by their full names."""
    for own, child in getattr(command, "commands", {}).items():
        yield from _commands(f"{name} {own}", child)
    if not hasattr(command, "commands"):
        yield name, command


def _cell(text: str) -> str:
    """Text for a table's cell, none of it markup."""
    for sign in "\\`*_<>|[]":
        text = text.replace(sign, f"\\{sign}")
    return text


def _flow(settings: Any) -> str:
    """Settings in one line of YAML."""
    return yaml.safe_dump(dict(settings), default_flow_style=True, width=1000).strip("{}\n")
