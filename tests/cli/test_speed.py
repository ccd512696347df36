import json

import pytest
from typer.testing import CliRunner

from bne.cli.app import app

QUICK = ["speed", "--device", "cpu", "--backbone", "small_cnn", "--size", "16", "--repeat", "1"]


def run(*options):
    return CliRunner().invoke(app, [*QUICK, *map(str, options)], env={"COLUMNS": "160"})


def test_prints_the_table_and_records_every_measurement(tmp_path):
    out = tmp_path / "speed.jsonl"
    result = run("--out", out)
    assert result.exit_code == 0, result.output
    for text in ("train: small_cnn at 16²", "DT step, nearest=4", "mixed statistics", "≤ 1.15"):
        assert text in result.output
    records = list(map(json.loads, out.read_text().splitlines()))
    assert {line["part"] for line in records} == {"train", "inference", "memory", "growth"}
    names = set(records[0])
    for line in records:
        assert set(line) == names
        assert line["value"] is None or line["low"] <= line["value"] <= line["high"]
        assert (line["value"] is None) == bool(line["note"])
        if line["reference"]:
            assert line["ratio"] == pytest.approx(line["value"] / line["reference"])
    assert {"device", "torch", "precision", "per_domain", "batch", "commit", "threads"} <= names


def test_json_of_one_part(tmp_path):
    result = run("--only", "inference", "--domains", 2, "--batch", 3, "--json")
    records = json.loads(result.stdout)
    assert {line["part"] for line in records} == {"inference"}
    assert {line["images"] for line in records} == {1, 3}
    assert {line["domains"] for line in records} == {0, 2, 64}
    assert list(tmp_path.iterdir()) == []


def test_records_are_added_to(tmp_path):
    out = tmp_path / "speed.jsonl"
    out.write_text("{}\n")
    assert run("--only", "memory", "--out", out).exit_code == 0
    assert out.read_text().startswith("{}\n{")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "train,speed"], "--only speed: there is no such part"),
        (["--backbone", "resnet19"], "unknown backbone 'resnet19'"),
        (["--device", "tpu"], "--device tpu"),
        (["--out", "nowhere/speed.jsonl"], "nowhere/speed.jsonl: cannot be written"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_timing(options, words):
    result = run(*options)
    assert result.exit_code == 1
    assert words in str(result.exception)
