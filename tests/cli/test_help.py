"""What `--help` says, at 80 columns."""

import re
import subprocess
import sys

import pytest
import typer

from bne.cli.app import app
from tests.cli.command import bne

VERBS = typer.main.get_command(app).commands


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_fits_80_columns_and_has_every_option(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = bne(verb, "--help").out
    assert max(map(len, said.splitlines())) <= 80
    for option in VERBS[verb].params:
        for name in (*option.opts[:1], *option.secondary_opts[:1]):
            assert re.search(rf"{name.upper() if name[0] != '-' else name}\b", said), name


@pytest.mark.parametrize("verb", ["train", "predict", "benchmark", "evaluate", "data prepare"])
def test_common_options_come_first(verb: str) -> None:
    said = bne(*verb.split(), "--help").out
    titles = [line for line in said.splitlines() if re.match(r"\S.*:$", line)]
    assert titles[titles[0] == "Arguments:"] == "Common options:"
    assert len(titles) >= 3


def test_choices_and_defaults_are_named() -> None:
    said = " ".join(bne("benchmark", "--help").out.split())
    assert "--rule RULE last, validation, oracle, all." in said
    assert "[default: records.jsonl in --out]" in said


@pytest.mark.parametrize("group", [[], ["data"]])
def test_without_a_verb_the_help_is_shown(group: list[str]) -> None:
    assert bne(*group).out == bne(*group, "--help").out != ""


def test_arguments_have_one_name_in_help_and_errors() -> None:
    usage = bne("predict", "--help").out.splitlines()[0]
    assert "MODEL" in usage
    assert usage in bne("predict", code=2).err


def test_help_needs_nothing_slow() -> None:
    code = """
import sys
from bne.cli import main
try:
    main()
finally:
    print({"torch", "torchvision", "numpy", "PIL", "rich"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.endswith("set()\n"), done.stderr
    assert "analyze" in done.stdout
    assert "\x1b" not in done.stdout
