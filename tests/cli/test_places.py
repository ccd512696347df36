"""Where results may be written, and what is shown where nothing can be."""

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from bne.speed import records as speed_records
from bne.training.tracking import TensorBoard

from bne.benchmark.records import append, read
from bne.report.run_page import write_report
from bne.training.events import Epoch, Score
from bne.training.files import write_json, write_tensors
from bne.training.folder import RunFolder, Training
from tests.benchmark.examples import item, record
from tests.benchmark.test_execute import write_pictures
from tests.cli.test_benchmark import SETTINGS
from tests.cli.test_data_check import bne


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_nothing_is_written_among_the_data(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(data, here / "data")
    monkeypatch.chdir(copy)
    for also in ([], ["--out", copy / "art"], ["--out", copy]):
        assert bne("train", "--data", ".", "--target", "sketch", *SETTINGS, *also) == 1
        captured = capsys.readouterr().err
        assert captured.startswith("Error: --out ")
        assert "lies within the data in .; name a folder elsewhere." in captured
    assert bne("benchmark", "--data", copy, "--methods", "deepall", *SETTINGS) == 1
    assert "--out runs/benchmark lies within the data" in capsys.readouterr().err
    monkeypatch.setenv("BNE_CACHE", str(copy / "cache"))
    out = ("--out", here / "out")
    for verb in (("data", "prepare"), ("train", "--target", "art", *SETTINGS, *out, "--data")):
        assert bne(*verb, copy) == 1
        assert f"--cache {copy / 'cache'} lies within the data" in capsys.readouterr().err
    assert {path.name for path in copy.iterdir()} == {"art", "photo", "sketch"}


def test_a_finished_run_is_reported_from_where_nothing_can_be_written(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SETTINGS, "--out", "mine", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
        assert bne(*command) == 1
        assert "--out mine cannot be written: you may not write to " in capsys.readouterr().err
    assert bne(*command) == 0
    ours = capsys.readouterr().out
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert bne(*command) == 0
    assert capsys.readouterr().out == ours


def test_what_is_recorded_is_shown_without_the_data(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("benchmark", "--out", tmp_path, *SETTINGS, "--methods", "deepall", "--json")
    assert bne(*command, "--data", data, "--targets", "photo, sketch") == 0
    ours = json.loads(capsys.readouterr().out)
    assert bne(*command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == ours
    assert {figure["column"] for figure in ours["figures"]} >= {"photo", "sketch"}


def test_what_is_recorded_needs_no_place_to_write(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path, *SETTINGS, "--methods", "deepall")
    command = (*command, "--targets", "photo", "--json")
    assert bne(*command) == 0
    ours = capsys.readouterr().out
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert bne(*command) == 0
    assert capsys.readouterr().out == ours
    assert bne(*command, "--seeds", "2") == 1
    assert f"--out {tmp_path} cannot be written" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK or place != tmp_path)
    records = ("--records", tmp_path / "other.jsonl", "--out", tmp_path.parent / "out")
    assert bne(*command, *records) == 1
    assert f"--records {tmp_path / 'other.jsonl'} cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("records", ["/proc/records.jsonl", "/dev/null", "."])
def test_records_that_cannot_be_kept_stop_before_training(
    data: Path, here: Path, records: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("benchmark", "--data", data, "--out", "out", *SETTINGS, "--methods", "deepall")
    assert bne(*command, "--records", records) == 1
    said = capsys.readouterr().err
    assert said.startswith("Error: ")
    assert records in said
    assert said.count("\n") == 1
    assert not list(here.iterdir())


EPOCH = Epoch("train", 1, "", 1, 1.0, 1.0, 1.0, 1.0, {"a": Score(1, 2)}, {"b": Score(1, 2)})
TRAINING = Training({}, {}, (EPOCH,), None, ())


def tensorboard(folder: Path) -> None:
    def full(_: str) -> None:  # the real one writes in a thread
        raise OSError(errno.EFBIG, "File too large")

    listener = TensorBoard()
    listener._module = SimpleNamespace(SummaryWriter=full)
    listener.started(SimpleNamespace(folder=folder))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("file", lambda folder: write_json(folder / "file", "text")),
        ("file", lambda folder: write_tensors(folder / "file", {"x": torch.zeros(9)})),
        ("metrics.jsonl", lambda folder: RunFolder(folder).record(EPOCH)),
        ("file", lambda folder: append(folder / "file", record(item("bne", "photo"), 1))),
        ("file", lambda folder: speed_records.append([{"a": 1}], folder / "file")),
        ("curves.png", lambda folder: write_report(folder, None, TRAINING)),
        ("tensorboard", tensorboard),
    ],
)
def test_a_full_disk_names_the_file(
    name: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))  # bytes
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / name)
    assert not list(tmp_path.glob(".*"))  # nothing half-written


def test_other_images_are_another_run(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    command = ("benchmark", "--data", copy, "--out", tmp_path / "out", *SETTINGS, "--keep-models")
    command = (*command, "--methods", "deepall", "--targets", "photo")
    assert bne(*command) == 0
    picture = next(copy.glob("photo/*/*.png"))
    shutil.copy(picture, picture.with_name("new.png"))
    assert bne(*command) == 0
    first, second = read(tmp_path / "out/records.jsonl")
    images = [record.accuracy["last"]["photo"]["images"] for record in (first, second)]
    assert images[1] == images[0] + 1
