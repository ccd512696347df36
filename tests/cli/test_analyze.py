"""`bne analyze` on a run that takes a second."""

import json
import shutil
from pathlib import Path

import pytest

from bne.cli import analyze
from bne.data.cache import prepare
from bne.data.sources import open_images
from bne.inspection.analysis import analyse
from bne.training.folder import Result
from tests.benchmark.test_execute import item
from tests.cli.command import bne, refusal
from tests.training.small import run

Trained = tuple[Path, Result]
ONE_LAYER = ("--layers", "bn1")  # maps take time


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The folder of a run on the pictures, and its result."""
    folder = tmp_path_factory.mktemp("analyze")
    prepared = prepare(open_images(data), folder / "cache", 32)
    return folder / "run", run(
        item("bne", lean=0.0).recipe, prepared, folder / "run", analyse=analyse
    )


def test_the_folder_has_what_training_found(data: Path, trained: Trained, tmp_path: Path) -> None:
    folder, result = trained
    out = tmp_path / "new" / "analysis"
    arguments = ("--data", data, "--out", out, "--layers", "bn1,bn3", "--json")
    report = bne("analyze", folder, *arguments).json
    assert report == json.loads((out / "analysis.json").read_text())
    expected = result.analysis["target"]["accuracy"]["prediction"]["photo"]
    assert report["accuracy"]["prediction"]["photo"] == expected
    # Where source domains lie is told from their training images, as when the run was recorded.
    sources = result.analysis["sources"]
    assert report["domain_accuracy"] == sources["domain_accuracy"]["train"]
    for source in ("art", "sketch"):
        expected = pytest.approx(sources["similarity"][source], rel=1e-4)
        assert report["similarity"][source] == expected
    assert report["model"]["trained_on"] == report["branches"] == ["art", "sketch"]
    assert list(report["maps"]) == ["all layers", "bn1", "bn3"]
    assert report["images"]["art"] == {"used": 12, "held_out": 2, "there": 12}
    assert (out / "map-bn3.pdf").is_file()
    page = (out / "index.html").read_text()
    assert "tested on images of photo, which it never saw" in page
    kept = next(one for one in result.leaning if one.share == result.lean).target["photo"]
    assert f"never saw, {kept.accuracy:.1f}\u00a0% of 12 images" in page
    assert "left-out" not in page


def test_by_default_it_writes_into_the_run(data: Path, trained: Trained) -> None:
    folder = trained[0] / "analysis"
    arguments = ("--data", data, "--domains", "photo", "--images", "5", "--seed", "3")
    said = bne("analyze", folder.parent, *arguments).out
    assert said.startswith(f"{folder / 'index.html'}: the page")
    assert (folder / "index.html").is_file()
    report = json.loads((folder / "analysis.json").read_text())
    assert report["images"] == {"photo": {"used": 5, "held_out": 0, "there": 12}}
    assert report["seed"] == 3


def test_images_that_cannot_be_read_are_named_or_left_out(
    data: Path, trained: Trained, tmp_path: Path
) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    bad = copy / "art/cat/-.png"  # the first of all: the images after it have other numbers
    bad.write_bytes(b"no image")
    command = ("analyze", trained[0], "--json", "--out", tmp_path / "out", *ONE_LAYER, "--data")
    sound = bne(*command, data).json
    assert "art/cat/-.png" in bne(*command, copy, code=1).err
    said = bne(*command, copy, "--skip-bad")
    assert "Skipped: art/cat/-.png" in said.err
    assert said.json == sound


def test_a_run_that_is_not_finished(data: Path, trained: Trained, tmp_path: Path) -> None:
    """First without any network, then with the best one so far."""
    folder, _ = trained
    for name in ("recipe.yaml", "environment.json", "metrics.jsonl"):
        shutil.copy(folder / name, tmp_path)
    (sentence,) = bne("analyze", tmp_path, "--data", data, "--json").json["left_out"]
    page = (tmp_path / "analysis" / "index.html").read_text()
    assert sentence in page
    assert "The run is not finished: 3 epochs recorded so far." in page
    assert 'id="map"' not in page
    shutil.copytree(folder / "best", tmp_path / "best")
    bne("analyze", tmp_path, "--data", data, "--images", "4", *ONE_LAYER)
    page = (tmp_path / "analysis" / "index.html").read_text()
    assert "is that of the epoch best on held-out source images." in page
    assert 'id="map"' in page


def test_a_model_without_its_run(data: Path, trained: Trained, tmp_path: Path) -> None:
    model = shutil.copytree(trained[0] / "model", tmp_path / "model")
    bne("analyze", model, "--data", data, "--images", "4", *ONE_LAYER)
    page = (model / "analysis" / "index.html").read_text()
    assert "how the model was trained is not known" in page


def test_errors_are_one_sentence(data: Path, trained: Trained) -> None:
    folder, _ = trained
    file = data / "art/cat/0.png"
    for arguments, message in (
        ((data, "--data", data), f"{data} is neither a run's folder nor a model's"),
        ((data / "none", "--data", data), "none is neither a run's folder nor a model's"),
        ((folder, "--data", data, "--domains", "foto"), "There is no domain 'foto'"),
        ((folder, "--data", data, "--layers", "bn9"), "--layers bn9: the model compares no such"),
        ((folder, "--data", data, "--out", file), "0.png is a file; name a folder."),
        ((folder, "--data", data / "nowhere"), "no such file or folder"),
    ):
        assert message in refusal("analyze", *arguments)


def test_the_example_names_this_command() -> None:
    assert analyze.EPILOG.startswith("Example: bne analyze ")
