"""What docs/analysis.md says is so."""

import re

import typer

from bne.cli.app import app
from tests.docs.pages import ROOT
from tests.inspection.models import analysis

PAGE = ROOT / "docs" / "analysis.md"


def test_every_option_is_named_and_exists() -> None:
    command = typer.main.get_command(app).commands["analyze"]
    known = {option for parameter in command.params for option in parameter.opts}
    said = set(re.findall(r"--[a-z][a-z-]+", PAGE.read_text()))
    assert said == {option for option in known if option.startswith("--")}


def test_every_number_is_explained() -> None:
    _, found = analysis(images=3, layers=["bn1"])
    said = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert {*found.numbers, *found.numbers["accuracy"]} - {"accuracy"} <= said
