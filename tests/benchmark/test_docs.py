"""What docs/benchmarks.md says is so."""

import re

import pytest
import typer

from bne.benchmark.reference import tables
from bne.cli.app import app
from bne.recipes.files import names
from bne.training.scores import RULES
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"


def test_every_option_exists() -> None:
    commands = typer.main.get_command(app).commands
    known = {
        option
        for verb in ("benchmark", "evaluate", "train")
        for parameter in commands[verb].params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    said = set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text()))
    assert said <= known
    assert len(said) > 15


def test_every_kind_of_table_is_named() -> None:
    kinds = re.findall(r"`([a-z-]+-)…`", PAGE.read_text())
    assert all(any(name.startswith(kind) for name in tables()) for kind in kinds)
    assert all(name.startswith(tuple(kinds)) for name in tables())
    assert tables().keys() <= set(names())


@pytest.mark.parametrize("page", ["benchmarks", "training"])
def test_every_rule_is_listed(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    listed = re.findall(r"^- (?:`|\*\*)(\w+)\b", text, re.MULTILINE)
    assert [name for name in listed if name in RULES] == list(RULES)
