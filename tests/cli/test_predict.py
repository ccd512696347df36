import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bne as library
from bne.data.cache import prepare
from bne.data.sources import open_images
from tests.cli.command import Terminal, bne, refusal
from tests.data.test_archives import pack
from tests.data.test_values import write_deep

Runs = dict[str, Path]


def lines(said: str) -> list[dict]:
    return [json.loads(line) for line in said.splitlines()]


def test_json_says_what_the_library_says(runs: Runs) -> None:
    files = sorted(runs["data"].glob("photo/*/*.png"))
    expected = library.load(runs["bne"], "cpu").predict(files)
    found = lines(bne("predict", runs["bne"] / "model.bne", *files, "--json", "--top", 2).out)
    assert [row["file"] for row in found] == list(map(str, files))
    assert [row["class"] for row in found] == list(expected.classes)
    np.testing.assert_allclose(
        [[one["probability"] for one in row["top"]] for row in found],
        -np.sort(-expected.probabilities, 1),
        rtol=1e-4,
    )
    assert [row["nearest"] for row in found] == list(expected.nearest_domains)
    weights = [list(row["weights"].values()) for row in found]
    np.testing.assert_allclose(weights, expected.weights, rtol=1e-4)
    np.testing.assert_allclose([row["unusual"] for row in found], expected.unusual, atol=0.1)


def test_all_sources_in_one_table(runs: Runs, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = sorted(runs["data"].glob("photo/cat/*.png"))[:3]
    pack(here / "a.zip", {"in/it.png": one.read_bytes()})
    (here / "list.csv").write_text(f"path\n{two}\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{three}\n"))
    said = bne("predict", runs["deepall"], "a.zip", "list.csv", "-").out.splitlines()
    assert said[0].split() == ["file", "class", "prob."]
    assert [line.split()[0] for line in said[1:]] == ["a.zip/in/it.png", str(two), str(three)]


def test_json_on_a_terminal_is_json(runs: Runs) -> None:
    said = bne("predict", runs["deepall"], runs["data"] / "photo", "--json", on=Terminal)
    assert len(lines(said.out)) == 12
    assert said.err == ""


def test_without_standard_streams_what_is_asked_for_is_written(
    runs: Runs, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; from bne.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", runs["deepall"], runs["data"] / "photo"]
    closed = " ".join(map(shlex.quote, map(str, [*command, "--out", "x.csv"]))) + " <&- >&- 2>&-"
    assert subprocess.run(closed, shell=True).returncode == 0
    assert len((here / "x.csv").read_text().splitlines()) == 13
    monkeypatch.setattr(sys, "stdin", None)
    assert "-: holds no" in refusal("predict", runs["deepall"], "-")


@pytest.mark.parametrize("name", ["x.csv", "deep/x.parquet", "x.jsonl"])
def test_unreadable_files_are_told_and_the_rest_is_written(
    runs: Runs, here: Path, name: str
) -> None:
    (here / "bad.png").write_bytes(b"no image")
    said = bne("predict", runs["bne"], "bad.png", runs["data"] / "art", "--out", name, code=3)
    assert "Skipped: bad.png" in said.err
    assert "12 images" in said.err
    assert said.out == ""
    assert (here / name).stat().st_size > 100


def test_images_below_a_probability_stay_open(runs: Runs) -> None:
    command = ("predict", runs["bne"], runs["data"] / "photo", "--json", "--abstain")
    sure = [row["probability"] for row in lines(bne(*command, 0).out)]
    limit = sorted(sure)[6] + 1e-7
    found = lines(bne(*command, limit).out)
    assert [row["class"] is None for row in found] == [chance < limit for chance in sure]


def test_modes_are_those_of_the_library(runs: Runs) -> None:
    files = sorted(runs["data"].glob("photo/cat/*.png"))
    modes = {"lean": 0.2, "mix": "statistics"}
    expected = library.load(runs["bne"], "cpu", **modes).predict(files)
    command = ("predict", runs["bne"], *files, "--json", "--lean", 0.2, "--mix", "statistics")
    found = [row["probability"] for row in lines(bne(*command).out)]
    np.testing.assert_allclose(found, expected.probabilities.max(1), rtol=1e-4)


def test_one_domain_is_that_of_the_library(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(runs["data"].glob("photo/*/*.png"))
    expected = library.load(runs["bne"], "cpu", lean=0.2).predict(files, one_domain=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(str, files))))
    command = ("predict", runs["bne"], "-", "--json", "--lean", 0.2, "--one-domain")
    found = lines(bne(*command).out)
    np.testing.assert_allclose(
        [row["probability"] for row in found], expected.probabilities.max(1), rtol=1e-4
    )
    assert len({json.dumps(row["weights"]) for row in found}) == 1


def test_images_that_come_out_black_are_told_of_once(runs: Runs, here: Path) -> None:
    dark = write_deep(here / "dark", count=70)  # of 12 bits, and more than a batch
    command = ("predict", runs["deepall"], runs["data"] / "photo", "--json")
    said = bne(*command, dark)
    assert len(lines(said.out)) == 12 + 6 * 70
    (told,) = prepare(open_images(dark), here / "cache", 12).notes  # what training says of them
    assert [line for line in said.err.splitlines() if "Note" in line] == [f"Note: {told}"]
    bright = write_deep(here / "bright", most=65_535)
    assert "Note" not in bne(*command, bright).err


def test_errors_are_one_sentence_and_write_nothing(runs: Runs, here: Path) -> None:
    photos = runs["data"] / "photo"
    table = here / "mine.csv"
    table.write_text("path\n")
    for arguments, words in (
        ((here / "absent.bne", photos), "no such file or folder"),
        ((here / "absent.bne", photos, "--out", "new/x.csv"), "absent.bne: there is no such"),
        ((photos / "cat/0.png", photos), "is no model file"),
        ((runs["bne"], "absent.png"), "absent.png: there is no such file"),
        ((runs["bne"], photos, "--out", "x.txt"), "end the name in .csv"),
        ((runs["bne"], photos, table, "--out", table), "is a file to read; name another"),
        ((runs["bne"], photos, "--columns", "clas"), "the nearest is 'class'"),
        ((runs["deepall"], photos, "--columns", "weights"), "has no branches"),
        ((runs["deepall"], photos, "--mix", "centre"), "has no branches"),
        ((runs["bne"], photos, "--out", "x.csv", "--device", "tpu"), "--device tpu"),
        ((runs["bne"], photos, "--engine", "spark"), "choose local or ray"),
        ((runs["bne"], photos, "--ray-address", "auto"), "needs --engine ray"),
        ((runs["bne"], photos, "--one-domain", "--engine", "ray"), "leave --engine ray out"),
        ((runs["dnet"], photos, "--one-domain"), "answers image by image"),
    ):
        assert words in refusal("predict", *arguments)
    assert list(here.iterdir()) == [table]
    assert table.read_text() == "path\n"
