import json
import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from bne import cli
from bne.data.benchmarks import BENCHMARKS
from tests.data.small import names, write


def bne(*arguments: object) -> int:
    """Runs the command line as the console script does; returns the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bne", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    return caught.value.code or 0


def test_a_sound_copy_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *names("art photo", "cat dog", 3))
    assert bne("data", "check", tmp_path) == 0
    output = capsys.readouterr().out
    assert "12 images. All is well." in output
    row = next(line for line in output.splitlines() if "dog" in line)
    assert row.split()[1::2] == ["dog", "3", "3"]


def test_a_table_wider_than_the_terminal_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    domains = [f"location_{number}" for number in range(12)]
    write(tmp_path, *names(" ".join(domains), "cat dog", 1))
    assert bne("data", "check", tmp_path) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[1].split()[1::2] == ["class", *sorted(domains)]
    assert next(line for line in lines if "dog" in line).split()[1::2] == ["dog", *["1"] * 12]
    assert captured.err == ""  # no trace of a progress bar where there is no terminal


def test_what_is_wrong_is_printed_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *names("art photo", "cat [red]dog", 1))
    (tmp_path / "art/[red]dog/0.png").write_bytes(b"")
    assert bne("data", "check", tmp_path) == 1
    output = capsys.readouterr().out
    assert "Wrong: art/[red]dog/0.png: the file is not a JPEG" in output
    assert "1 problem." in output


def test_json_is_all_of_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *names("art photo", "cat dog", 1))
    assert bne("data", "check", tmp_path, "--json", "--benchmark", "pacs") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["counts"]["dog"] == {"art": 1, "photo": 1}
    assert "The domain sketch of PACS is missing." in report["errors"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder."),
        ([".", "--benchmark", "pcas"], "There is no benchmark 'pcas'; the nearest is 'pacs'"),
    ],
)
def test_json_also_says_why_nothing_was_checked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bne("data", "check", *arguments, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert len(report["errors"]) == 1
    assert report["errors"][0].startswith(message)


def test_one_class_is_nothing_to_learn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *names("art photo", "cat", 3))
    assert bne("data", "check", tmp_path) == 1
    assert "Wrong: There is one class only, cat;" in capsys.readouterr().out
    assert bne("train", "--data", tmp_path, "--target", "photo", "--set", "weights=null") == 1
    assert "Error: The data has one class only, cat;" in capsys.readouterr().err


def test_identical_images_are_named_but_not_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *names("art photo", "cat dog", 12))
    for number in range(12):
        shutil.copy(tmp_path / f"art/cat/{number}.png", tmp_path / f"art/cat/{number}b.png")
    assert bne("data", "check", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("Identical images:")
    assert lines[start + 1] == "  art/cat/0.png and art/cat/0b.png"
    assert lines[start + 11] == "  2 more"
    assert lines[start + 12].startswith("Note: ")
    assert lines[start + 12].endswith(" 12 images.")


@pytest.mark.filterwarnings("ignore")
def test_a_bomb_is_one_of_the_wrong_things(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *names("art photo", "cat", 1))
    Image.new("1", (10_000, 10_000)).save(tmp_path / "art/cat/big.png")
    assert bne("data", "check", tmp_path) == 1
    captured = capsys.readouterr()
    assert "Wrong: art/cat/big.png: more than 64 megapixels" in captured.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder."),
        ([".", "--benchmark", "pcas"], "There is no benchmark 'pcas'; the nearest is 'pacs'"),
        (["."], ".: holds no images; expected domain/class/image below it."),
    ],
)
def test_errors_are_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BNE_DEBUG", raising=False)
    assert bne("data", "check", *arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"Error: {message}")
    assert captured.err.count("\n") == 1


def test_debug_shows_where_an_error_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BNE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["bne", "data", "check", str(tmp_path / "nowhere")])
    with pytest.raises(Exception, match="nowhere: there is no such file") as caught:
        cli.main()
    assert type(caught.value).__name__ == "DataError"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert bne("--version") == 0
    assert capsys.readouterr().out.startswith("bne 0.")
    assert bne("data", "check", "--help") == 0
    assert "Example: bne data check data/pacs --benchmark pacs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("benchmark", "images"), [("pacs", 9991), ("office31", 4110), ("office_caltech", 2533)]
)
def test_the_paper_s_benchmarks_pass(
    shared: Path, capsys: pytest.CaptureFixture[str], benchmark: str, images: int
) -> None:
    path = shared / "data" / benchmark
    assert bne("data", "check", path, "--benchmark", benchmark, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["errors"] == []
    assert sum(sum(row.values()) for row in report["counts"].values()) == images


def test_files_that_are_passed_over_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *names("art photo", "cat dog", 1), "art/cat/a.jfif", "art/cat/b.JPE")
    for name in ("art/cat/1.gif", "photo/cat/plain"):
        (tmp_path / name).write_bytes(b"")
    assert bne("data", "check", tmp_path, "--json") == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert "none 1, .gif 1" in note
    assert bne("data", "check", tmp_path) == 0
    output = capsys.readouterr().out
    assert f"Note: {note}\n" in output
    assert "6 images." in output


@pytest.mark.parametrize("name", BENCHMARKS)
def test_where_a_benchmark_comes_from_is_said_when_it_is_not_all_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    declared = BENCHMARKS[name]
    assert bne("data", "check", tmp_path / "nowhere", "--benchmark", name) == 1
    message = capsys.readouterr().err
    assert "no such file or folder. " in message
    assert declared.origin in message
    assert declared.terms in message
    write(tmp_path, *names("art photo", "cat dog", 1))
    assert bne("data", "check", tmp_path, "--benchmark", name, "--json") == 1
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert note == f"{declared.title}: {declared.origin} (terms: {declared.terms})."
    assert bne("data", "check", tmp_path) == 0
    assert declared.terms not in capsys.readouterr().out


def test_a_missing_official_split_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, *names("art photo", "cat dog", 1))
    assert bne("data", "check", tmp_path, "--benchmark", "pacs") == 1
    output = capsys.readouterr().out
    assert "Wrong: The official split of PACS, split.csv, is missing; make it from" in output
    assert "Errno" not in output
