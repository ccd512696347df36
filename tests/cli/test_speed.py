import json

import pytest
from typer.testing import CliRunner

from bne.cli.app import app
from bne.errors import DataError
from bne.speed import comparison

QUICK = ["speed", "--device", "cpu", "--backbone", "small_cnn", "--size", "16", "--repeat", "1"]
ONE_IMAGE = ["--backbone", "timm/test_byobnet", "--domains", 1, "--per-domain", 1]


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
    assert {"device", "torch", "precision", "per_domain", "batch", "threads"} <= names
    assert {"commit", "code_sha256"} <= names


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
        (["--out", "."], "--out . is a folder; name a file."),
        (["--out", "/dev/null/speed.jsonl"], "/dev/null is a file, not a folder."),
        (["--size", 1], "--size 1: small_cnn does not take images of 1 × 1 pixels"),
        (
            ["--backbone", "timm/test_vit", "--size", 160],
            "--backbone timm/test_vit: VisionTransformer has no batch-norm layer",
        ),
        (
            ["--backbone", "alexnet_bn", "--size", 32],
            "--size 32: alexnet_bn does not take images of 32 × 32 pixels",
        ),
        (["--size", 10**9], "--size 1000000000: small_cnn does not take"),
        (
            ONE_IMAGE,
            "--per-domain 1: timm/test_byobnet does not train on one image",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_timing(options, words, monkeypatch):
    monkeypatch.setattr(comparison, "time_cases", lambda *_: pytest.fail("something was timed"))
    result = run(*options)
    assert result.exit_code == 1
    assert isinstance(result.exception, DataError)
    assert words in str(result.exception)


def test_one_image_a_step_is_refused_only_where_a_step_has_one():
    assert run(*ONE_IMAGE, "--only", "inference").exit_code == 0
    assert run(*ONE_IMAGE, "--per-domain", 2, "--only", "train").exit_code == 0
