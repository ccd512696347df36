import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import typer

pytest.importorskip("sklearn")

import bne.demo
from bne.cli.app import app
from bne.demo import digits, experiment
from tests.cli.command import bne as command
from tests.cli.command import full_disk, refusal


class Here(ThreadPoolExecutor):
    """Does in a thread what processes would."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images, two steps, and no processes, which take long to start."""
    settings = bne.demo.Settings(warm_up_steps=1, distance_steps=1)
    monkeypatch.setattr(bne.demo, "Settings", lambda: settings)
    monkeypatch.setattr(digits, "load", partial(digits.load, per_domain=40))
    monkeypatch.setattr(experiment, "ProcessPoolExecutor", Here)


def test_prints_the_table_the_weights_and_the_report() -> None:
    said = command("demo", "--seeds", 1, "--out", "demo.html")
    for text in ("DeepAll", "BNE", "unseen:", "Weights of the known domains", "demo.html"):
        assert text in said.out + said.err
    assert Path("demo.html").read_text().startswith("<!doctype html>")


def test_json() -> None:
    runs = command("demo", "--seeds", 1, "--json", "--out", "new/demo.html").json["runs"]
    assert len(runs) == 12
    assert runs[0]["method"] == "DeepAll"
    assert runs[1]["examples"][0]["weights"]


def test_one_seed_alone_is_not_the_default() -> None:
    demo = typer.main.get_command(app).commands["demo"]
    assert next(option.default for option in demo.params if option.name == "seeds") > 1


def test_a_report_that_cannot_be_written_is_named_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is a folder" in refusal("demo", "--out", tmp_path)
    out = tmp_path / "kept" / "demo.html"
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK or place != tmp_path)
    expected = f"--out {out} cannot be written: you may not write to {tmp_path}."
    assert expected in refusal("demo", "--out", out)
    assert not out.parent.exists()


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bne.demo, "compare", lambda *_: [])
    monkeypatch.setattr("bne.demo.report.page", lambda *_: "a page")


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("seeds", [0, 1001])
def test_seeds_have_a_limit(seeds: int, here: Path) -> None:
    assert "'--seeds'" in command("demo", "--seeds", seeds, code=2).err
    assert not list(here.iterdir())


@pytest.mark.usefixtures("no_training")
def test_a_full_disk_names_the_report_and_leaves_nothing_half_written(
    here: Path,
) -> None:
    out = here / "demo.html"
    with full_disk():
        said = command("demo", "--out", out, code=1)
    assert f"Error: {out}: " in said.err
    assert not list(here.iterdir())
