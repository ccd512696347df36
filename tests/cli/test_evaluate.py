import json
import shutil
from pathlib import Path

import pytest

from bne.data.cache import prepare
from bne.data.sources import open_images
from tests.benchmark.test_execute import item, write_pictures
from tests.cli.test_benchmark import SETTINGS
from tests.cli.test_data_check import bne
from tests.training.small import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, int]]:
    """The pictures, the folder of a run on them, and its score on the target."""
    folder = tmp_path_factory.mktemp("evaluate")
    data = write_pictures(folder / "data")
    prepared = prepare(open_images(data), folder / "cache", 32)
    result = run(item("bne").recipe, prepared, folder / "run")
    score = result.accuracy["last"]["photo"]
    return data, folder / "run", {"correct": score.correct, "images": score.images}


@pytest.fixture(autouse=True)
def own_cache(trained: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNE_CACHE", str(trained[1].parent / "cache"))


@pytest.mark.parametrize("folder", [".", "model"])
def test_json_has_what_training_found(
    trained: tuple[Path, Path, dict[str, int]], folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run_folder, score = trained
    assert bne("evaluate", run_folder / folder, "--data", data, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["method"], report["trained_on"]) == ("bne", ["art", "sketch"])
    assert list(report["domains"]) == ["art", "photo", "sketch"]
    photo = report["domains"]["photo"]
    assert list(photo) == ["prediction", "nearest", "uniform", "branch art", "branch sketch"]
    found = photo["prediction"]["all classes"]
    assert found.items() >= score.items()
    assert found["low"] <= found["accuracy"] <= found["high"]
    assert list(photo["branch art"]) == ["all classes", "cat", "dog"]


def test_the_table_says_which_domains_were_seen(
    trained: tuple[Path, Path, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    data, run_folder, score = trained
    assert bne("evaluate", run_folder, "--data", data, "--domains", "photo,art") == 0
    output = capsys.readouterr().out
    assert "art, seen in training" in output
    assert "photo, seen" not in output
    assert "sketch, seen" not in output
    assert f"{100 * score['correct'] / score['images']:.1f}" in output
    assert "95 % bootstrap intervals" in output


def test_images_that_cannot_be_read_are_named_or_left_out(
    trained: tuple[Path, Path, dict[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run_folder, score = trained
    data = shutil.copytree(data, tmp_path / "data")
    (data / "art/cat/-.png").write_bytes(b"no image")
    command = ("evaluate", run_folder, "--data", data, "--json")
    assert bne(*command) == 1
    assert "art/cat/-.png" in capsys.readouterr().err
    assert bne(*command, "--skip-bad") == 0
    captured = capsys.readouterr()
    assert "Skipped: art/cat/-.png" in captured.err
    found = json.loads(captured.out)["domains"]
    assert found["art"]["prediction"]["all classes"]["images"] == 12
    assert found["photo"]["prediction"]["all classes"].items() >= score.items()


@pytest.mark.parametrize("verb", ["evaluate", "analyze"])
def test_only_the_domains_asked_for_must_fit(
    trained: tuple[Path, Path, dict[str, int]],
    verb: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, run_folder, score = trained
    data = shutil.copytree(data, tmp_path / "data")
    (data / "art/cat").rename(data / "art/ant")  # of which the model knows nothing
    run_folder = shutil.copytree(run_folder, tmp_path / "run")
    command = (verb, run_folder, "--data", data, "--json", "--domains")
    assert bne(*command, "photo,art") == 1
    assert "does not know the class 'ant'" in capsys.readouterr().err
    assert bne(*command, "photo") == 0
    report = json.loads(capsys.readouterr().out)
    if verb == "evaluate":
        assert report["domains"]["photo"]["prediction"]["all classes"].items() >= score.items()
    else:
        assert report["accuracy"]["prediction"]["photo"] == score


def test_errors_are_one_sentence(
    trained: tuple[Path, Path, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    data, run_folder, _ = trained
    for arguments, message in (
        ((data, "--data", data), "is no model folder"),
        ((run_folder / "recipe.yaml", "--data", data), "is no model folder"),
        ((run_folder, "--data", data, "--domains", "foto"), "There is no domain 'foto'"),
        ((run_folder, "--data", data / "nowhere"), "no such file or folder"),
    ):
        assert bne("evaluate", *arguments) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert captured.err.count("\n") == 1


def test_a_name_with_a_comma_is_one_name(
    trained: tuple[Path, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, run_folder = shutil.copytree(trained[0], tmp_path / "data"), tmp_path / "run"
    (copy / "sketch").rename(copy / "Oslo, North")
    command = ("train", "--data", copy, *SETTINGS, "--out", run_folder, "--target")
    assert bne(*command, "Oslo, North") == 0
    capsys.readouterr()
    for domains, expected in (("Oslo, North", {"Oslo, North"}), ("art, photo", {"art", "photo"})):
        assert bne("evaluate", run_folder, "--data", copy, "--domains", domains, "--json") == 0
        assert set(json.loads(capsys.readouterr().out)["domains"]) == expected
    assert bne(*command, "Oslo") == 1
    said = capsys.readouterr().err
    assert "target has 'Oslo', no domain of the data; there are Oslo, North, art, photo." in said
