import subprocess
import sys
from pathlib import Path

import pytest

from bne import cli
from tests.cli.test_data_check import bne
from tests.data.small import names, write


@pytest.mark.parametrize("library", ["typer", "PIL"])  # needed at once, and by what is done
def test_a_library_that_is_missing_is_one_sentence(tmp_path: Path, library: str) -> None:
    write(tmp_path, *names("art photo", "cat dog", 1))
    code = f"import sys; sys.modules[{library!r}] = None; from bne.cli import main; main()"
    command = [sys.executable, "-c", code, "data", "check", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    sentence = f"Error: {library} is not installed; pip install 'bne[cli]' brings it.\n"
    assert done.stderr == sentence


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["analyze", "run", "--data", "data", "--seed", 2**32], "--seed"),
        (["benchmark", "--seeds", 10**9, "--dry-run"], "--seeds"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused_at_once(
    arguments: list[object], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bne(*arguments) == 2
    assert f"Invalid value for '{named}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train", "--data", "data", "--out", "", "--dry-run"], "what follows --out"),
        (["train", "--data=", "--dry-run"], "--data"),
        (["data", "check", ""], "what follows check"),
    ],
)
def test_an_empty_argument_is_no_path(arguments: list[str], named: str) -> None:
    assert bne(*arguments) == f"Error: {named} is empty; give a value, or leave it out."


@pytest.mark.parametrize(
    ("name", "library"),
    [("yaml", "yaml"), ("safetensors.torch", "safetensors"), ("bne.nothing", ""), (None, "")],
)
def test_only_libraries_that_we_need_are_asked_for(name: str | None, library: str) -> None:
    assert cli._missing_library(ModuleNotFoundError(name=name)) == library
    assert cli._missing_library(ImportError(name=name)) == ""


def test_what_is_wrong_in_every_process_is_said_by_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def ended(seconds: float) -> None:  # as by torchrun, when the first process has failed
        heard.append(capsys.readouterr().err)
        raise SystemExit(143)

    monkeypatch.setattr(cli.time, "sleep", ended)
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert bne("train", "--data", "nowhere", "--target", "sketch") == 1
    assert capsys.readouterr().err.startswith("Error: nowhere")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert bne("train", "--data", "nowhere", "--target", "sketch") == 143
    assert heard == [""]
    monkeypatch.setattr(cli.time, "sleep", lambda seconds: None)  # the first has not failed
    assert bne("train", "--data", "nowhere", "--target", "sketch") == 1
    assert capsys.readouterr().err.startswith("Error: nowhere")
