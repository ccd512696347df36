import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from rich.cells import cell_len

import bne
from bne.cli.screen import WHOLE
from bne.deploy import rows
from bne.deploy.answers import Answers
from bne.errors import SettingsError
from tests.cli.command import full_disk

Runs = dict[str, Path]
LIKE = {"file": "", "class": ""}


@pytest.fixture(scope="module")
def answers(runs: Runs) -> Answers:
    model = bne.load(runs["bne"], "cpu")
    return model.predict(sorted(runs["data"].glob("photo/*/*.png")))


def test_every_kind_of_file_holds_the_same(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "GROUP", 5)
    # The first ones are all open: a file must not take the column for an empty one.
    answers = replace(answers, abstain=float(np.sort(answers.probabilities.max(1))[-1]))
    made = rows.rows([f"{n}.png" for n in range(12)], answers, rows.COLUMNS, top=2)
    order = sorted(range(12), key=lambda n: made[n]["class"] is not None)
    made = [made[n] for n in order]
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        like = rows.row_like(answers.model, rows.COLUMNS, 2)
        with rows.file_writer(tmp_path / name, like) as write:
            for start in range(0, 12, 4):
                write(made[start : start + 4])
            assert not (tmp_path / name).exists()
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == made
    flat = [rows.flat(row) for row in made]
    assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == flat
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in flat]
    one = flat[-1]
    assert one["class"] == one["class_1"]
    assert one["probability"] == one["probability_1"] > one["probability_2"]
    assert one["weight_art"] + one["weight_sketch"] == pytest.approx(1)
    nearer = one["distance_art"] < one["distance_sketch"]
    assert one["nearest"] == ("art" if nearer else "sketch")


@pytest.mark.parametrize("method", ["bne", "deepall"])
def test_a_table_without_rows_has_its_columns(runs: Runs, method: str, tmp_path: Path) -> None:
    model = bne.load(runs[method], "cpu")
    columns = rows.choose_columns(model.info, None, 2)
    like = rows.row_like(model.info, columns, 2)
    image = next(runs["data"].glob("photo/*/*.png"))
    (one,) = rows.rows([str(image)], model.predict(image), columns, 2)
    for name in ("a.csv", "a.parquet"):
        for made in ([], [one]):
            with rows.file_writer(tmp_path / f"{len(made)}{name}", like) as write:
                write(made)
    assert (tmp_path / "0a.csv").read_text() == ",".join(rows.flat(one)) + "\n"
    assert (tmp_path / "1a.csv").read_text().startswith((tmp_path / "0a.csv").read_text())
    kinds = {n: parquet.read_table(tmp_path / f"{n}a.parquet").schema for n in (0, 1)}
    assert kinds[0].names == list(rows.flat(one))
    assert kinds[0] == kinds[1]


def test_a_failure_leaves_no_file(answers: Answers, tmp_path: Path) -> None:
    def interrupted():
        yield from rows.rows(["a.png"] * 12, answers, ["class"])
        raise KeyboardInterrupt

    for name in ("a.csv", "a.jsonl", "a.parquet"):
        (tmp_path / name).write_text("before")
        with pytest.raises(KeyboardInterrupt), rows.file_writer(tmp_path / name, LIKE) as write:
            write(interrupted())
        assert (tmp_path / name).read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_full_disk_names_the_file(answers: Answers, name: str, tmp_path: Path) -> None:
    made = rows.rows(["a.png"] * 12, answers, ["class"])
    file = tmp_path / "new" / name
    with pytest.raises(OSError) as caught, full_disk(), rows.file_writer(file, LIKE) as write:  # noqa: PT011
        write(made)
    assert caught.value.filename == str(file)
    assert not list(file.parent.iterdir())


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_fits_the_terminal(answers: Answers, width: int) -> None:
    known = replace(answers.model, branches=("art", "a domain with a long name"))
    shown = replace(answers, model=known)
    columns = ("class", "probability", "top", "nearest", "weights", "unusual")
    names = ["photographs/of/many/things/" * 3 + f"{n}.png" for n in range(11)]
    names.append("写真/" * 20 + "11.png")  # letters that take two columns
    made = rows.rows(names, shown, columns, top=2)
    table = rows.Table(known, columns, names, width)
    lines = [table.head, *map(table.line, made)]
    assert max(map(cell_len, lines)) <= width
    for name, row, line in zip(names, made, lines[1:], strict=True):
        assert Path(name).name[-5:] in line
        assert row["class"] in line
        assert f"{row['probability']:.2f}" in line
        assert f"{row['top'][1]['class']} {row['top'][1]['probability']:.2f}" in line or width == 40
    whole = rows.Table(known, columns, names, WHOLE)
    assert names[0] in whole.line(made[0])
    assert f"{made[0]['weights']['art']:.2f}" in whole.line(made[0])


def test_columns_that_a_model_cannot_fill_are_refused(runs: Runs) -> None:
    models = {name: bne.load(runs[name], "cpu").info for name in ("bne", "deepall", "dnet")}
    assert "distances" not in rows.choose_columns(models["bne"], None, 1)
    assert rows.choose_columns(models["bne"], ["distances"], 1) == ("distances",)
    assert rows.choose_columns(models["bne"], ["file", "class"], 1) == ("class",)
    assert rows.choose_columns(models["bne"], ["file"], 1) == ()
    assert rows.choose_columns(models["deepall"], None, 2) == ("class", "probability", "top")
    centre = replace(models["bne"], mix="centre")
    assert rows.choose_columns(centre, None, 1) == ("class", "probability")
    bare = replace(models["bne"], calibration=type(models["bne"].calibration)())
    for model, column, words in (
        (models["bne"], "wights", "the nearest is 'weights'"),
        (models["deepall"], "weights", "has no branches"),
        (models["dnet"], "unusual", "weighed by distances"),
        (bare, "unusual", "not calibrated"),
        (replace(centre, branches=(), distance=None), "weights", "without --places"),
    ):
        with pytest.raises(SettingsError, match=words):
            rows.choose_columns(model, [column], 1)
