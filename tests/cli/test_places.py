"""Where results may be written, and what is shown where nothing can be."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bne.benchmark.records import append, read
from bne.report.run_page import write_report
from bne.training.events import Epoch, Score
from bne.training.files import write_json, write_tensors
from bne.training.folder import RunFolder, Training
from bne.training.listeners import TensorBoard
from tests.benchmark.examples import item, record
from tests.cli.command import SETTINGS, bne, full_disk, refusal

DEEPALL = (*SETTINGS, "--methods", "deepall")


def test_nothing_is_written_among_the_data(
    data: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(data, here / "data")
    monkeypatch.chdir(copy)
    for also in ([], ["--out", copy / "art"], ["--out", copy]):
        error = refusal("train", "--data", ".", "--target", "sketch", *SETTINGS, *also)
        assert error.startswith("Error: --out ")
        assert "lies within the data in .; " in error
    error = refusal("benchmark", "--data", copy, *DEEPALL)
    assert "--out runs/benchmark lies within the data" in error
    monkeypatch.setenv("BNE_CACHE", str(copy / "cache"))
    out = ("--out", here / "out")
    for verb in (("data", "prepare"), ("train", "--target", "art", *SETTINGS, *out, "--data")):
        assert f"--cache {copy / 'cache'} lies within the data" in refusal(*verb, copy)
    assert {path.name for path in copy.iterdir()} == {"art", "photo", "sketch"}


def test_a_finished_run_is_reported_from_where_nothing_can_be_written(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SETTINGS, "--out", "mine", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
        assert "--out mine cannot be written: you may not write to " in refusal(*command)
    ours = bne(*command).out
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert bne(*command).out == ours


def test_what_is_recorded_is_shown_without_the_data(data: Path, tmp_path: Path) -> None:
    command = ("benchmark", "--out", tmp_path, *DEEPALL, "--json")
    ours = bne(*command, "--data", data, "--targets", "photo, sketch").json
    assert bne(*command).json == ours
    assert {figure["column"] for figure in ours["figures"]} >= {"photo", "sketch"}


def test_what_is_recorded_needs_no_place_to_write(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path, *DEEPALL, "--targets", "photo")
    command = (*command, "--json")
    ours = bne(*command).out
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    assert bne(*command).out == ours
    assert f"--out {tmp_path} cannot be written" in refusal(*command, "--seeds", "2")
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK or place != tmp_path)
    records = tmp_path / "other.jsonl"
    error = refusal(*command, "--records", records, "--out", tmp_path.parent / "out")
    assert f"--records {records} cannot be written" in error


@pytest.mark.parametrize("records", ["/proc/records.jsonl", "/dev/null", "."])
def test_records_that_cannot_be_kept_stop_before_training(
    data: Path, here: Path, records: str
) -> None:
    command = ("benchmark", "--data", data, "--out", "out", *DEEPALL)
    assert records in refusal(*command, "--records", records)
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
        ("index.html", lambda folder: write_report(folder, None, TRAINING)),
        ("tensorboard", tensorboard),
    ],
)
def test_a_full_disk_names_the_file(
    name: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    with full_disk(), pytest.raises(OSError, match="too large") as caught:
        write(tmp_path)
    assert caught.value.filename == str(tmp_path / name)
    assert not list(tmp_path.glob(".*"))  # nothing half-written


def test_other_images_are_another_run(data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    command = ("benchmark", "--data", copy, "--out", tmp_path / "out", *DEEPALL, "--keep-models")
    command = (*command, "--targets", "photo")
    bne(*command)
    picture = next(copy.glob("photo/*/*.png"))
    shutil.copy(picture, picture.with_name("new.png"))
    bne(*command)
    records = read(tmp_path / "out/records.jsonl")
    first, second = [record.accuracy["last"]["photo"]["images"] for record in records]
    assert second == first + 1
