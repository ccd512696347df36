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
from tests.benchmark.test_execute import item, write_pictures
from tests.cli.test_data_check import bne
from tests.training.small import run

Trained = tuple[Path, Path, Result]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The pictures, the folder of a run on them, and its result."""
    folder = tmp_path_factory.mktemp("analyze")
    data = write_pictures(folder / "data")
    prepared = prepare(open_images(data), folder / "cache", 32)
    return data, folder / "run", run(item("bne").recipe, prepared, folder / "run", analyse=analyse)


@pytest.fixture(autouse=True)
def own_cache(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNE_CACHE", str(trained[1].parent / "cache"))


def test_the_folder_has_what_training_found(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder, result = trained
    out = tmp_path / "new" / "analysis"
    arguments = ("--data", data, "--out", out, "--layers", "bn1,bn3", "--json")
    assert bne("analyze", folder, *arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "analysis.json").read_text())
    recorded = result.analysis
    assert (
        report["accuracy"]["prediction"]["photo"]
        == recorded["target"]["accuracy"]["prediction"]["photo"]
    )
    # Where source domains lie is told from their training images, as when the run was recorded.
    sources = recorded["sources"]
    assert report["domain_accuracy"] == sources["domain_accuracy"]["train"]
    for source in ("art", "sketch"):
        assert report["similarity"][source] == pytest.approx(
            sources["similarity"][source], rel=1e-4
        )
    assert report["model"]["trained_on"] == report["branches"] == ["art", "sketch"]
    assert list(report["maps"]) == ["all layers", "bn1", "bn3"]
    assert report["images"]["art"] == {"used": 12, "held_out": 2, "there": 12}
    assert (out / "map-bn3.pdf").is_file()
    page = (out / "index.html").read_text()
    assert "tested on images of photo, which it never saw" in page
    assert f"{result.accuracy['last']['photo'].accuracy:.1f} %</b><span>correct on photo" in page
    assert "left-out" not in page


def test_by_default_it_writes_into_the_run(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder, _ = trained
    arguments = ("--data", data, "--domains", "photo", "--images", "5", "--seed", "3")
    assert bne("analyze", folder, *arguments) == 0
    page = folder / "analysis" / "index.html"
    assert capsys.readouterr().out.startswith(f"{page}: the page")
    assert page.is_file()
    report = json.loads((folder / "analysis" / "analysis.json").read_text())
    assert report["images"] == {"photo": {"used": 5, "held_out": 0, "there": 12}}
    assert report["seed"] == 3


def test_images_that_cannot_be_read_are_named_or_left_out(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder, _ = trained
    copy = shutil.copytree(data, tmp_path / "data")
    bad = copy / "art/cat/-.png"  # the first of all: the images after it have other numbers
    bad.write_bytes(b"no image")
    command = ("analyze", folder, "--json", "--out", tmp_path / "out")
    assert bne(*command, "--data", data) == 0
    sound = json.loads(capsys.readouterr().out)
    assert bne(*command, "--data", copy) == 1
    assert "art/cat/-.png" in capsys.readouterr().err
    assert bne(*command, "--data", copy, "--skip-bad") == 0
    captured = capsys.readouterr()
    assert "Skipped: art/cat/-.png" in captured.err
    assert json.loads(captured.out) == sound


def test_a_run_that_is_not_finished(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First without any network, then with the best one so far."""
    data, folder, _ = trained
    for name in ("recipe.yaml", "environment.json", "metrics.jsonl"):
        shutil.copy(folder / name, tmp_path)
    assert bne("analyze", tmp_path, "--data", data, "--json") == 0
    (sentence,) = json.loads(capsys.readouterr().out)["left_out"]
    page = (tmp_path / "analysis" / "index.html").read_text()
    assert sentence in page
    assert "The run is not finished: 3 epochs recorded so far." in page
    assert 'id="map"' not in page
    shutil.copytree(folder / "best", tmp_path / "best")
    assert bne("analyze", tmp_path, "--data", data, "--images", "4") == 0
    page = (tmp_path / "analysis" / "index.html").read_text()
    assert "is that of the epoch best on held-out source images." in page
    assert 'id="map"' in page


def test_a_model_without_its_run(trained: Trained, tmp_path: Path) -> None:
    data, folder, _ = trained
    shutil.copytree(folder / "model", tmp_path / "model")
    assert bne("analyze", tmp_path / "model", "--data", data, "--images", "4") == 0
    page = (tmp_path / "model" / "analysis" / "index.html").read_text()
    assert "how the model was trained is not known" in page


def test_errors_are_one_sentence(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder, _ = trained
    for arguments, message in (
        ((data, "--data", data), f"{data} is neither a run's folder nor a model's"),
        ((data / "none", "--data", data), "none is neither a run's folder nor a model's"),
        ((folder, "--data", data, "--domains", "foto"), "There is no domain 'foto'"),
        ((folder, "--data", data, "--layers", "bn9"), "--layers bn9: the model compares no such"),
        (
            (folder, "--data", data, "--out", data / "art/cat/0.png"),
            "0.png is a file; name a folder.",
        ),
        ((folder, "--data", data / "nowhere"), "no such file or folder"),
    ):
        assert bne("analyze", *arguments) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_the_example_names_this_command() -> None:
    assert analyze.EPILOG.startswith("Example: bne analyze ")
