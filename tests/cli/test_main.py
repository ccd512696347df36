import subprocess
import sys
from pathlib import Path

import pytest

from bne import cli
from tests.cli.command import bne, refusal
from tests.data.small import names, write


@pytest.mark.parametrize("library", ["typer", "PIL"])  # needed at once, and by what is done
def test_a_library_that_is_missing_is_one_sentence(tmp_path: Path, library: str) -> None:
    write(tmp_path, *names("art photo", "cat dog", 1))
    code = f"import sys; sys.modules[{library!r}] = None; from bne.cli import main; main()"
    command = [sys.executable, "-c", code, "data", "check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == f"Error: {library} is not installed; pip install 'bne[cli]' brings it.\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["analyze", "run", "--data", "data", "--seed", 2**32], "--seed"),
        (["benchmark", "--seeds", 10**9, "--dry-run"], "--seeds"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused(arguments: list[object], named: str) -> None:
    assert f"Invalid value for '{named}'" in bne(*arguments, code=2).err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "--data", "data", "--out", "", "--dry-run"], "what follows --out"),
        (["train", "--data=", "--dry-run"], "--data"),
        (["data", "check", ""], "what follows check"),
    ],
)
def test_an_empty_argument_is_no_path(arguments: list[str], named: str) -> None:
    bne(*arguments, code=f"Error: {named} is empty; give a value, or leave it out.")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("yaml", "yaml"),
        ("torch", "torch"),
        ("safetensors.torch", "safetensors"),
        ("bne.nothing", ""),
        (None, ""),
    ],
)
def test_only_libraries_that_we_need_are_asked_for(name: str | None, library: str) -> None:
    assert cli._missing_library(ModuleNotFoundError(name=name)) == library
    assert cli._missing_library(ImportError(name=name)) == ""


def test_what_is_wrong_in_every_process_is_said_by_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ended(seconds: float) -> None:  # as by torchrun, when the first process has failed
        raise SystemExit(143)

    command = ("train", "--data", "nowhere", "--target", "sketch")
    monkeypatch.setattr(cli.time, "sleep", ended)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert refusal(*command).startswith("Error: nowhere")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert bne(*command, code=143).err == ""
    monkeypatch.setattr(cli.time, "sleep", lambda seconds: None)  # the first has not failed
    assert refusal(*command).startswith("Error: nowhere")


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["bne", "data", "check", "nowhere"])
    with pytest.raises(Exception, match="nowhere: there is no such file") as caught:
        cli.main()
    assert type(caught.value).__name__ == "DataError"


def test_version_and_help() -> None:
    assert bne("--version").out.startswith("bne 0.")
    help_text = bne("data", "check", "--help").out
    assert "Example: bne data check data/pacs --benchmark pacs" in help_text
