"""`bne analyze` on a run that takes a second."""

import json
from pathlib import Path

import pytest

from bne.cli import analyze
from bne.data.cache import prepare
from bne.data.sources import open_images
from bne.engine.run import run
from tests.cli.test_data_check import bne
from tests.evaluation.test_benchmark import item, write_pictures

Trained = tuple[Path, Path, dict[str, int]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The pictures, the folder of a run on them, and its score on the target."""
    folder = tmp_path_factory.mktemp("analyze")
    data = write_pictures(folder / "data")
    prepared = prepare(open_images(data), folder / "cache", 32)
    result = run(item("bne").recipe, prepared, folder / "run")
    score = result.accuracy["last"]["photo"]
    return data, folder / "run", {"correct": score.correct, "images": score.images}


@pytest.fixture(autouse=True)
def own_cache(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNE_CACHE", str(trained[1].parent / "cache"))


def test_the_folder_has_what_training_found(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder, score = trained
    out = tmp_path / "new" / "analysis"
    arguments = ("--data", data, "--out", out, "--layers", "bn1,bn3", "--json")
    assert bne("analyze", folder, *arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "analysis.json").read_text())
    assert report["accuracy"]["prediction"]["photo"] == score
    assert report["model"]["trained_on"] == report["branches"] == ["art", "sketch"]
    assert list(report["maps"]) == ["all layers", "bn1", "bn3"]
    assert report["images"]["art"] == {"used": 12, "there": 12}
    assert (out / "map-bn3.pdf").is_file()


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
    assert report["images"] == {"photo": {"used": 5, "there": 12}}
    assert report["seed"] == 3


def test_errors_are_one_sentence(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder, _ = trained
    for arguments, message in (
        ((data, "--data", data), "is no model folder"),
        ((folder, "--data", data, "--domains", "foto"), "There is no domain 'foto'"),
        ((folder, "--data", data, "--layers", "bn9"), "--layers bn9: the model compares no such"),
        ((folder, "--data", data, "--out", data / "art/cat/0.png"), "File exists"),
        ((folder, "--data", data / "nowhere"), "no such file or folder"),
    ):
        assert bne("analyze", *arguments) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_the_example_names_this_command() -> None:
    assert analyze.EPILOG.startswith("Example: bne analyze ")
