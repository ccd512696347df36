import json
import os

import pytest
import typer
from typer.testing import CliRunner

pytest.importorskip("sklearn")

import bne.demo
from bne.cli.app import app


@pytest.fixture(autouse=True)
def two_steps(monkeypatch):
    quick = bne.demo.Settings(warm_up_steps=1, distance_steps=1)
    monkeypatch.setattr(bne.demo, "Settings", lambda: quick)


def test_prints_the_table_the_weights_and_the_report(tmp_path):
    out = tmp_path / "demo.html"
    result = CliRunner().invoke(app, ["demo", "--seeds", "1", "--out", str(out)])
    assert result.exit_code == 0, result.output
    for text in ("DeepAll", "BNE", "unseen:", "Weights of the known domains", "demo.html"):
        assert text in result.output
    assert out.read_text().startswith("<!doctype html>")


def test_json(tmp_path):
    out = tmp_path / "demo.html"
    result = CliRunner().invoke(app, ["demo", "--seeds", "1", "--json", "--out", str(out)])
    report = json.loads(result.stdout)
    assert len(report["runs"]) == 8
    assert report["runs"][0]["method"] == "DeepAll"
    assert report["runs"][1]["examples"][0]["weights"]


def test_one_seed_alone_is_not_the_default():
    demo = typer.main.get_command(app).commands["demo"]
    assert next(option.default for option in demo.params if option.name == "seeds") > 1


def test_a_folder_is_no_report(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "is a folder" in str(result.exception)


def test_a_file_that_cannot_be_written_is_named_before_any_training(tmp_path, monkeypatch):
    out = tmp_path / "kept" / "demo.html"
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK or place != tmp_path)
    result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert result.exit_code == 1
    assert f"--out {out} cannot be written: you may not write to {tmp_path}." in str(
        result.exception
    )
    assert not out.parent.exists()
