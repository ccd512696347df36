"""Prediction on a real Ray, of two workers on this machine."""

import os
import pickle
import re
import shutil
import signal
from pathlib import Path

import pytest

import bne
from bne.deploy.pictures import find_pictures
from bne.deploy.predict import predict
from bne.deploy.ray import Job, Stage, predict_on_ray
from bne.deploy.rows import rows
from tests.data.test_values import write_deep

COLUMNS = ("class", "probability", "nearest", "unusual")
COUNT = 3000


@pytest.fixture
def many(runs: dict[str, Path], tmp_path: Path) -> Path:
    """The same pictures under many names."""
    files = sorted(runs["data"].glob("*/*/*.png"))
    (tmp_path / "many").mkdir()
    for number in range(COUNT):
        os.link(files[number % len(files)], tmp_path / "many" / f"{number:05}.png")
    return tmp_path / "many"


def test_rows_are_those_of_one_machine_though_a_worker_dies(
    runs: dict[str, Path], many: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    shutil.copy(many / "00000.png", many / "bad.png")
    (many / "bad.png").write_bytes(b"no image")
    pictures = find_pictures([many])
    told, killed = [], 0
    for row, problem, _ in predict_on_ray(Job(runs["bne"] / "model.bne", "cpu", COLUMNS), pictures):
        told.append((row, problem))
        if not killed:
            killed = _kill_a_worker()
    assert killed
    model = bne.load(runs["bne"], "cpu")
    different = find_pictures([runs["data"]])
    expected = [
        row
        for part in predict(model.engine, model.info, different)
        for row in rows(part.names, part.answers, COLUMNS)
    ]
    found = [row for row, _ in told if row]
    assert [row["file"] for row in found] == [p.name for p in pictures if "bad" not in p.name]
    for number, own in enumerate(found):
        other = expected[number % len(expected)]
        assert (own["class"], own["nearest"]) == (other["class"], other["nearest"])
        assert own["probability"] == pytest.approx(other["probability"], rel=1e-4)
        assert own["unusual"] == pytest.approx(other["unusual"], abs=0.1)
    (problem,) = (problem for _, problem in told if problem)
    assert "bad.png" in problem
    said = capfd.readouterr().err  # of Ray, which has much to say of its plans and progress
    assert not re.search(r"\b(INFO|deprecated)\b", said)


def test_a_worker_says_what_images_of_more_than_8_bits_lose(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    pictures = find_pictures([runs["data"] / "art", write_deep(tmp_path / "dark")])
    batch = {"picture": [pickle.dumps(picture) for picture in pictures]}
    found = Stage(Job(runs["deepall"], "cpu", COLUMNS[:2]))(batch)
    assert len(found["row"]) == len(found["tally"]) == 12 + 48
    assert [sum(own) for own in zip(*found["tally"], strict=True)] == [48, 48, 0, 0]


def _kill_a_worker() -> int:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_text()
            mine = f"{os.getpid()}" in _ancestors(int(folder.name))
        except OSError:
            continue
        if name.startswith("ray::") and "MapWorker" in name and mine:
            os.kill(int(folder.name), signal.SIGKILL)
            return int(folder.name)
    return 0


def _ancestors(process: int) -> list[str]:
    """Of a process; others may run a Ray on this machine too."""
    found = []
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(str(process))
    return found
