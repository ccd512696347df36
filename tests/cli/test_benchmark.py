import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bne.benchmark.records import read
from tests.benchmark.test_execute import write_pictures
from tests.benchmark.test_ray import figures
from tests.cli.test_data_check import bne

SMALL = (
    "backbone=small_cnn weights=null resize=32 per_domain=4 validation=0.2 head.epochs=1 "
    "train.epochs=1 train.warm_up=0"
)
SETTINGS = [part for setting in SMALL.split() for part in ("--set", setting)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_a_whole_benchmark(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", tmp_path / "out")
    command = ("benchmark", "--data", data, *out, *SETTINGS, "--methods", "deepall,bne")
    assert bne(*command, "--dry-run") == 0
    planned = capsys.readouterr().out
    assert "bne, sketch, seed 0\n6 runs, 6 to do, for how long is not known yet.\n" in planned
    assert not (tmp_path / "out").exists()

    assert bne(*command, "--limit", 2) == 0
    captured = capsys.readouterr()
    assert "6 runs, 2 to do" in captured.err
    assert "deepall, photo, seed 0: " in captured.err
    assert "…" in captured.out
    records = tmp_path / "out/records.jsonl"
    before = records.read_bytes()

    assert bne(*command, "--format", "csv") == 0
    captured = capsys.readouterr()
    assert "6 runs, 4 to do" in captured.err
    assert records.read_bytes().startswith(before)
    assert len(read(records)) == 6
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    cells = {(r["row"], r["rule"], r["column"]): r["mean"] for r in rows}
    mean = sum(float(cells["bne", "last", d]) for d in ("art", "photo", "sketch")) / 3
    assert float(cells["bne", "last", "average"]) == pytest.approx(mean)

    # Without data the table is of what is recorded.
    again = [*command[:1], *command[3:]]
    recorded = ("--targets", "photo", "--rule", "last", "--benchmark", "pacs")
    assert bne(*again, *recorded, "--format", "md") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = [line for line in captured.out.splitlines() if line.startswith("| ")]
    assert lines[-1].startswith(
        f"| bne | ours, last | {float(cells['bne', 'last', 'photo']):.1f} |"
    )

    assert bne(*command, "--seeds", 2, "--dry-run", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], len(report["to_do"])) == (12, 6)
    assert report["seconds"] > 0  # known from the first seed


def test_a_table_of_the_paper_beside_ours(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("benchmark", "--table", "ablation-pacs-resnet18", "--set", "weights=null")
    assert bne(*command, "--out", tmp_path, "--rule", "last", "--format", "md") == 0
    rows = [
        [text.strip() for text in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| ")
    ][2:]
    assert rows[0][:3] == ["DeepAll", "ours, last", "…"]
    assert rows[1] == ["", "paper", "75.8", "73.0", "94.4", "70.9", "–", "78.5", "–"]
    assert [row[0] for row in rows[::2]][-1] == "DNet (dt,warmup)"

    assert bne(*command, "--data", data, "--out", tmp_path) == 1
    assert "art_painting" in capsys.readouterr().err  # these pictures are not PACS


def test_a_report_of_what_is_recorded(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    file = tmp_path / "new" / "report.html"
    command = ("benchmark", "--out", tmp_path, *SETTINGS, "--report", file)
    assert bne(*command, "--data", data, "--targets", "photo,art", "--limit", 1) == 0
    assert f"{file}: the report.\n" in capsys.readouterr().err
    assert "4 runs; 1 of them are finished" in file.read_text()
    assert bne(*command, "--data", data, "--targets", "photo,art") == 0
    capsys.readouterr()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be trained")

    monkeypatch.setattr("bne.training.run.run", fail)
    wanted = ("--benchmark", "pacs", "--targets", "photo", "--json")
    assert bne(*command, *wanted) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    page = file.read_text()
    assert "2 runs, all of them finished" in page
    for rule in ("last", "validation", "oracle"):
        mean = next(f["mean"] for f in figures if (f["row"], f["rule"]) == ("bne", rule))
        assert f"<td>ours, {rule}" in page
        assert f"{mean:.1f}" in page
    assert bne(*command, *wanted, "--dry-run") == 0


def test_a_link_to_a_report_stays_one(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    link, file = tmp_path / "link.html", tmp_path / "report.html"
    link.symlink_to(file)
    table = ("--table", "similarity-pacs-resnet18-photo-unseen")
    assert bne("benchmark", "--out", tmp_path, *table, "--report", link) == 0
    assert link.is_symlink()
    assert file.read_text().startswith("<!doctype html>")


def test_a_narrow_terminal_cuts_no_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert bne("benchmark", "--out", tmp_path, "--table", "sota-pacs-resnet18") == 0
    masf = next(line for line in capsys.readouterr().out.splitlines() if "MASF" in line)
    cells = [cell.strip() for cell in masf.split("│")[1:-1]]
    assert cells == ["MASF", "paper", "80.3", "77.1", "94.99", "71.69", "79.2", "81.0", "1.01"]


def test_a_report_that_cannot_be_made_stops_before_training(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS, "--report")
    if importlib.util.find_spec("plotly"):
        assert bne(*command, tmp_path) == 1
        assert f"--report {tmp_path} is a folder; name a file" in capsys.readouterr().err
        os.mkfifo(tmp_path / "pipe")
        assert bne(*command, tmp_path / "pipe") == 1
        assert "pipe is no file; name a file, report.html for example." in capsys.readouterr().err
    for name in ("plotly", "plotly.offline", "plotly.offline.offline"):
        monkeypatch.setitem(sys.modules, name, None)
    assert bne(*command, tmp_path / "report.html") == 1
    assert "plotly is not installed; pip install" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert bne(*command[:1], *command[3:-1], "--benchmark", "pacs", "--targets", "photo") == 0


def test_a_failed_run_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[bold] no luck")

    monkeypatch.setattr("bne.training.run.run", fail)
    command = ("benchmark", "--data", data, "--out", tmp_path, *SETTINGS, "--targets", "photo")
    assert bne(*command, "--json") == 1
    captured = capsys.readouterr()
    assert "deepall, photo, seed 0 failed: [bold] no luck (see " in captured.err
    assert len(json.loads(captured.out)["failed"]) == 2


def test_a_run_that_diverges_is_told_in_a_sentence(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path, *SETTINGS, "--targets", "photo")
    wild = ("--set", "train.optimiser.learning_rate=1e6", "--set", "head.epochs=0")
    assert bne(*command, *wild, "--methods", "deepall", "--json") == 1
    (failed,) = json.loads(capsys.readouterr().out)["failed"]
    assert "not finite" in failed["problem"]
    assert "train.optimiser.clip" in failed["problem"]


def test_images_that_cannot_be_read_are_named_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pictures(tmp_path / "data")
    (data / "photo/cat/bad.png").write_bytes(b"no image")
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS)
    command = (*command, "--targets", "photo", "--methods", "deepall")
    assert bne(*command) == 1
    assert "photo/cat/bad.png" in capsys.readouterr().err
    assert bne(*command, "--skip-bad") == 0
    assert "Skipped: photo/cat/bad.png" in capsys.readouterr().err
    (record,) = read(tmp_path / "out/records.jsonl")
    assert record.accuracy["last"]["photo"]["images"] == 12


@pytest.mark.parametrize("how", ["absent", "skipped"])
def test_a_class_that_a_source_lacks_must_be_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    data = write_pictures(tmp_path / "data")
    if how == "absent":
        shutil.rmtree(data / "art/dog")
    for file in data.glob("art/dog/*"):
        file.write_bytes(b"no image")
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS, "--skip-bad")
    command = (*command, "--methods", "deepall", "--targets", "photo,art", "--rule", "last")
    assert bne(*command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert errors == [
        "Error: art has no images of dog to train on, though other source domains have; add some, "
        "or train with such gaps by allow_gaps=True (--allow-gaps)."
    ]
    assert not (tmp_path / "out").exists()
    # Whether images can be read is not known without reading them.
    assert bne(*command, "--dry-run") == (1 if how == "absent" else 0)
    captured = capsys.readouterr()
    assert captured.err.splitlines() == (errors if how == "absent" else [])
    assert bne(*command, "--dry-run", "--allow-gaps") == 0
    capsys.readouterr()
    assert bne(*command, "--allow-gaps", "--json") == 0
    captured = capsys.readouterr()
    notes = [line for line in captured.err.splitlines() if line.startswith("Note: ")]
    assert json.loads(captured.out)["failed"] == []
    assert notes == [
        "Note: art has no images of dog to train on; others have.",
        "Note: art, a target, has no images of dog; its accuracy is that on the other classes.",
    ]
    assert bne(*command) == 0  # all is recorded


def test_what_auto_came_to_is_recorded_and_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pictures(tmp_path / "data", 10)
    (data / "art").rename(data / "art_painting")
    shutil.copytree(data / "photo", data / "cartoon")
    lines = [
        f"{file.parts[-3]},{file.parent.name}/{file.name},"
        f"{'crossval' if file.stem == '0' else 'train'}"
        for file in data.glob("*/*/*.png")
    ]
    (data / "split.csv").write_text("\n".join(["domain,file,split", *lines]))
    settings = [*SETTINGS, "--set", "validation=auto", "--targets", "photo", "--rule", "last"]
    command = ("benchmark", "--out", tmp_path / "out", *settings, "--methods", "deepall", "--json")
    assert bne(*command, "--data", data) == 0
    captured = capsys.readouterr()
    start = "Held out for validation: source images,"
    assert captured.err.count(start) == 1
    assert f"{start} by the official split {data / 'split.csv'}.\n" in captured.err
    ours = json.loads(captured.out)
    (record,) = read(tmp_path / "out/records.jsonl")
    assert record.settings["validation"] == "official"
    assert {s["images"] for s in record.epochs[-1]["validation"].values()} == {2}
    assert bne(*command, "--benchmark", "pacs") == 0  # without data, as PACS is declared
    again = json.loads(capsys.readouterr().out)
    assert [f["mean"] for f in again["figures"]] == [f["mean"] for f in ours["figures"]]
    assert bne(*command) == 0  # as the records have it
    assert json.loads(capsys.readouterr().out) == ours

    (data / "split.csv").unlink()
    assert bne(*command, "--data", data) == 0
    said = capsys.readouterr().err
    assert "1 run, 1 to do" in said
    assert f"{start} 10 % of every class.\n" in said
    assert [r.settings["validation"] for r in read(tmp_path / "out/records.jsonl")] == [
        "official",
        0.1,
    ]


@pytest.mark.parametrize(
    ("setting", "option"),
    [("seed=4", "--seeds"), ("target=photo", "--targets"), ("method=bne", "--methods or --row")],
)
def test_what_differs_from_run_to_run_is_no_setting(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, option: str
) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path, *SETTINGS, "--set", setting)
    assert bne(*command) == 1
    assert f"differs from run to run; choose with {option} instead." in capsys.readouterr().err


def test_a_domain_named_like_a_column_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(data, tmp_path / "data")
    (copy / "art").rename(copy / "average")
    assert bne("benchmark", "--data", copy, "--out", tmp_path / "out", *SETTINGS) == 1
    assert "A domain is named 'average', as a column of the table is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "sota-pacs"], "The paper has no table 'sota-pacs'; the nearest is"),
        (["--methods", "depall", "--benchmark", "pacs"], "nearest is 'deepall'"),
        (["--recipe", "defualt"], "the nearest is 'default'"),
        ([], "name a --benchmark"),
        (["--benchmark", "pacs", "--set", "x"], "--set x"),
        (["--benchmark", "pacs", "--data", "nowhere"], "no such file or folder"),
    ],
)
def test_errors_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert bne("benchmark", "--out", tmp_path, *arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Error: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_single_domain_is_no_benchmark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(write_pictures(tmp_path / "all") / "art", tmp_path / "data/art")
    assert bne("benchmark", "--data", tmp_path / "data", "--out", tmp_path, *SETTINGS) == 1
    assert "Error: The data has one domain only, art;" in capsys.readouterr().err


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "bne", *map(str, arguments)],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
def test_a_benchmark_that_was_killed_goes_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    settings = [*SETTINGS, "--set", "train.epochs=15"]
    command = ("benchmark", "--data", data, "--out", tmp_path, *settings)
    with start(*command, "--parallel", 2) as process:
        while not read(records) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    before = records.read_bytes()
    done = {f"{r.row}_{r.settings['target'][0]}_{r.settings['seed']}" for r in read(records)}
    assert 1 <= len(done) < 6
    assert bne(*command, "--json") == 0
    assert f"6 runs, {6 - len(done)} to do" in capsys.readouterr().err
    assert records.read_bytes().startswith(before)
    assert len({record.digest for record in read(records)}) == len(read(records)) == 6
    left = [path for path in tmp_path.iterdir() if path != records]
    assert all(path.stem.rpartition("_")[0] in done for path in left)  # killed before removing them


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_local_ray_gives_the_same_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)  # relative paths mean this folder, wherever workers are
    data = write_pictures(Path("data"))
    (data / "photo/cat/bad.png").write_bytes(b"no image")  # which workers leave out too
    command = ("benchmark", "--data", data, "--targets", "photo", *SETTINGS, "--json")
    command = (*command, "--skip-bad")
    assert bne(*command, "--out", "ray", "--engine", "ray", "--device", "cpu") == 0
    ours = json.loads(capsys.readouterr().out)
    assert bne(*command, "--out", "local", "--device", "cpu") == 0
    assert json.loads(capsys.readouterr().out) == ours
    assert [path.name for path in Path("ray").iterdir()] == ["records.jsonl"]
    theirs = {record.row: figures(record) for record in read(Path("local/records.jsonl"))}
    records = read(Path("ray/records.jsonl"))
    assert len(records) == 2
    assert {record.row: figures(record) for record in records} == theirs

    # Nothing is left to do: no Ray is started.
    monkeypatch.setitem(sys.modules, "ray", None)
    assert bne(*command, "--out", "ray", "--engine", "ray") == 0
    assert json.loads(capsys.readouterr().out) == ours


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray-address", "auto"], "--ray-address is for Ray; add --engine ray"),
        (["--gpus-per-run", 0.25], "--gpus-per-run is for Ray; add --engine ray"),
        (["--engine", "ray", "--parallel", 2], "--parallel is for --engine local"),
    ],
)
def test_options_of_the_other_engine(
    arguments: list[object], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bne("benchmark", "--benchmark", "pacs", *arguments) == 1
    assert message in capsys.readouterr().err
