import csv
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

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import append, read
from bne.benchmark.reference import SUMMARIES
from tests.benchmark.examples import record
from tests.benchmark.test_ray import figures
from tests.cli.command import SETTINGS, bne, refusal
from tests.docs.pages import ROOT
from tests.pictures import write_pictures


def test_a_whole_benchmark(data: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    command = ("benchmark", "--data", data, *out, *SETTINGS, "--methods", "deepall,bne")
    planned = bne(*command, "--dry-run").out
    assert "bne, sketch, seed 0\n6 runs, 6 to do, for how long is not known yet.\n" in planned
    assert not (tmp_path / "out").exists()

    said = bne(*command, "--limit", 2)
    assert "6 runs, 2 to do" in said.err
    assert "deepall, photo, seed 0: " in said.err
    assert "…" in said.out
    records = tmp_path / "out/records.jsonl"
    before = records.read_bytes()

    said = bne(*command, "--format", "csv")
    assert "6 runs, 4 to do" in said.err
    assert records.read_bytes().startswith(before)
    assert len(read(records)) == 6
    rows = list(csv.DictReader(io.StringIO(said.out)))
    cells = {(r["row"], r["rule"], r["column"]): r["mean"] for r in rows}
    mean = sum(float(cells["bne", "last", d]) for d in ("art", "photo", "sketch")) / 3
    assert float(cells["bne", "last", "average"]) == pytest.approx(mean)

    # Without data the table is of what is recorded.
    recorded = ("--targets", "photo", "--rule", "last", "--benchmark", "pacs")
    said = bne(*command[:1], *command[3:], *recorded, "--format", "md")
    assert said.err == ""
    (last,) = [line for line in said.out.splitlines() if line.startswith("| bne |")]
    assert last.startswith(f"| bne | ours, last | {float(cells['bne', 'last', 'photo']):.1f} |")

    # What to expect at a new domain is told to programs and to people.
    expected = {one["row"]: one for one in bne(*command, "--json").json["expected"]}
    assert expected["bne"]["accuracy"]["mean"] == pytest.approx(mean)
    base = sum(float(cells["deepall", "last", d]) for d in ("art", "photo", "sketch")) / 3
    assert expected["bne"]["gain"]["mean"] == pytest.approx(mean - base)
    assert expected["bne"]["sentence"] in " ".join(bne(*command).out.split())

    report = bne(*command, "--seeds", 2, "--dry-run", "--json").json
    assert (report["runs"], len(report["to_do"])) == (12, 6)
    assert report["seconds"] > 0  # known from the first seed


def test_a_table_of_the_paper_beside_ours(data: Path, tmp_path: Path) -> None:
    command = ("benchmark", "--table", "ablation-pacs-resnet18", "--set", "weights=null")
    command = (*command, "--out", tmp_path)
    lines = bne(*command, "--rule", "last", "--format", "md").out.splitlines()
    rows = [[text.strip() for text in line.split("|")[1:-1]] for line in lines if line[:2] == "| "]
    assert rows[2][:3] == ["DeepAll", "ours, last", "…"]
    assert rows[3] == ["", "paper", "75.8", "73.0", "94.4", "70.9", "–", "78.5", "–"]
    assert [row[0] for row in rows[2::2]][-1] == "DNet (dt,warmup)"
    assert "art_painting" in refusal(*command, "--data", data)  # these pictures are not PACS


def test_a_report_of_what_is_recorded(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "report.html"
    command = ("benchmark", "--out", tmp_path, *SETTINGS, "--report", file)
    both = ("--data", data, "--targets", "photo,art")
    assert f"{file}: the report.\n" in bne(*command, *both, "--limit", 1).err
    assert "4 runs; 1 of them are finished" in file.read_text()
    bne(*command, *both)

    monkeypatch.setattr("bne.training.run.run", None)  # nothing is to be trained
    wanted = ("--benchmark", "pacs", "--targets", "photo", "--json")
    figures = bne(*command, *wanted).json["figures"]
    page = file.read_text()
    assert "2 runs, all of them finished" in page
    for rule in ("last", "validation", "oracle"):
        mean = next(f["mean"] for f in figures if (f["row"], f["rule"]) == ("bne", rule))
        assert f"<td>ours, {rule}" in page
        assert f"{mean:.1f}" in page
    bne(*command, *wanted, "--dry-run")


def test_a_link_to_a_report_stays_one(tmp_path: Path) -> None:
    link, file = tmp_path / "link.html", tmp_path / "report.html"
    link.symlink_to(file)
    table = ("--table", "similarity-pacs-resnet18-photo-unseen")
    bne("benchmark", "--out", tmp_path, *table, "--report", link)
    assert link.is_symlink()
    assert file.read_text().startswith("<!doctype html>")


def test_a_narrow_terminal_cuts_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        table = ("--table", "sota-pacs-resnet18", "--rule", "last")
        said = bne("benchmark", "--out", tmp_path, *table).out
        lines = said.splitlines()
        assert max(map(len, lines)) <= width
        top = next(number for number, line in enumerate(lines) if "MASF" in line)
        end = lines[top].index("MASF") + len("MASF")
        masf = [line[:end].split()[-1] for line in lines[top + 2 : top + 16]]
        paper = ["80.3", "77.1", "94.99", "71.69", "79.2", "81.0", "1.01"]
        assert [one for one in masf if one not in "–…"] == paper


def test_tables_of_the_latent_space_fit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = ("--table", "similarity-pacs-resnet18-photo-unseen")
    lines = bne("benchmark", "--out", tmp_path, *table).out.splitlines()
    assert max(map(len, lines)) <= 40
    papers = [line.split()[1:] for line in lines if line.startswith("  paper")]
    assert papers == [["46.29", "30.06"], ["33.62", "35.87"], ["21.08", "24.40"]] + [
        [one] for one in ("23.65", "30.51", "54.52")
    ]


def test_other_settings_than_those_recorded_are_named() -> None:
    records = ROOT / "results/pacs-resnet18/tables.jsonl"
    command = ("benchmark", "--records", records)
    table = (*command, "--table", "ablation-pacs-resnet18", "--recipe", "pacs-resnet18-standard")
    said = refusal(*table)
    assert "none with these settings" in said
    assert "differ in weights alone; add --weights resnet18_imagenet.safetensors." in said
    weights = ("--weights", "resnet18_imagenet.safetensors")
    assert "76.2" in bne(*table, *weights).out
    said = refusal(*table, *weights, "--set", "per_domain=18", "--set", "accumulate=2")
    assert "differ in per_domain and accumulate alone; add --set per_domain=16 --set" in said
    assert "they are of bne" in refusal(*command, "--benchmark", "pacs", "--methods", "head-only")


def test_runs_that_undid_the_network_are_counted(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    command = ("benchmark", "--data", data, "--records", file, "--out", tmp_path, *SETTINGS)
    command += ("--set", "validation=0.5", "--methods", "deepall", "--targets", "photo")
    assert "Note" not in bne(*command).err
    known = json.loads(file.read_text())
    for one in known["epochs"]:
        for score in one["validation"].values():
            score["correct"] = score["images"] if one["phase"] == "head" else 0
        one["loss"] = 9.0
    file.write_text(json.dumps(known) + "\n")
    assert "In 1 of 1 run " in bne(*command).err


def test_recorded_runs_without_a_target_are_no_column(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    for one in plan(choose(methods=["bne"], held_out=[("a",), ()]), 1, {}):
        append(file, record(one, dict.fromkeys(one.recipe.target, 800)))
    found = bne("benchmark", "--records", file, "--json").json["figures"]
    assert {one["column"] for one in found} - {*SUMMARIES} == {"a"}


def test_recorded_runs_of_other_images_are_left_out_and_told(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    art, photo = plan(choose(methods=["bne"], held_out=[("art",), ("photo",)]), 1, {})
    for one, images, correct in ((art, "few", 100), (art, "many", 500), (photo, "many", 700)):
        append(file, record(one, correct, materials={"images": images}))
    said = bne("benchmark", "--records", file, "--json")
    assert "1 recorded run of other images left out" in said.err
    (mean,) = [
        one["mean"]
        for one in said.json["figures"]
        if (one["row"], one["column"], one["rule"]) == ("bne", "average", "last")
    ]
    assert mean == pytest.approx(60)  # of 50 and 70


def test_a_report_that_cannot_be_made_stops_before_training(data: Path, tmp_path: Path) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS, "--report")
    assert f"--report {tmp_path} is a folder" in refusal(*command, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is no file" in refusal(*command, tmp_path / "pipe")
    assert not (tmp_path / "out").exists()


def test_a_failed_run_is_told(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("benchmark", "--data", data, "--out", tmp_path, *SETTINGS, "--targets", "photo")
    wild = ("--set", "train.optimiser.learning_rate=1e6", "--set", "head.epochs=0")
    (failed,) = bne(*command, *wild, "--methods", "deepall", "--json", code=1).json["failed"]
    assert "not finite" in failed["problem"]
    assert "train.optimiser.clip" in failed["problem"]

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("[bold] no luck")

    monkeypatch.setattr("bne.training.run.run", fail)
    said = bne(*command, "--json", code=1)
    assert "deepall, photo, seed 0 failed: [bold] no luck (see " in said.err
    assert len(said.json["failed"]) == 2


def test_images_that_cannot_be_read_are_named_or_left_out(tmp_path: Path) -> None:
    data = write_pictures(tmp_path / "data")
    (data / "photo/cat/bad.png").write_bytes(b"no image")
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS)
    command = (*command, "--targets", "photo", "--methods", "deepall")
    assert "photo/cat/bad.png" in bne(*command, code=1).err
    assert "Skipped: photo/cat/bad.png" in bne(*command, "--skip-bad").err
    (record,) = read(tmp_path / "out/records.jsonl")
    assert record.accuracy["last"]["photo"]["images"] == 12


@pytest.mark.parametrize("how", ["absent", "skipped"])
def test_a_class_that_a_source_lacks_must_be_allowed(tmp_path: Path, how: str) -> None:
    data = write_pictures(tmp_path / "data")
    if how == "absent":
        shutil.rmtree(data / "art/dog")
    for file in data.glob("art/dog/*"):
        file.write_bytes(b"no image")
    command = ("benchmark", "--data", data, "--out", tmp_path / "out", *SETTINGS, "--skip-bad")
    command = (*command, "--methods", "deepall", "--targets", "photo,art", "--rule", "last")
    said = bne(*command, code=1)
    assert said.out == ""
    (error,) = [line for line in said.err.splitlines() if line.startswith("Error: ")]
    assert error.startswith("Error: art has no images of dog to train on, though other ")
    assert "--allow-gaps" in error
    assert not (tmp_path / "out").exists()
    # Whether images can be read is not known without reading them.
    said = bne(*command, "--dry-run", code=1 if how == "absent" else 0)
    assert said.err.splitlines() == ([error] if how == "absent" else [])
    bne(*command, "--dry-run", "--allow-gaps")
    said = bne(*command, "--allow-gaps", "--json")
    assert said.json["failed"] == []
    source, target = [line for line in said.err.splitlines() if line.startswith("Note: ")]
    assert source == "Note: art has no images of dog to train on; others have."
    assert target.startswith("Note: art, a target, has no images of dog; ")
    bne(*command)  # all is recorded


def test_what_auto_came_to_is_recorded_and_found_again(tmp_path: Path) -> None:
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
    said = bne(*command, "--data", data)
    start = "Held out for validation: source images,"
    assert said.err.count(start) == 1
    assert f"{start} by the official split {data / 'split.csv'}.\n" in said.err
    ours = said.json
    (record,) = read(tmp_path / "out/records.jsonl")
    assert record.settings["validation"] == "official"
    assert {s["images"] for s in record.epochs[-1]["validation"].values()} == {2}
    again = bne(*command, "--benchmark", "pacs").json  # without data, as PACS is declared
    assert [f["mean"] for f in again["figures"]] == [f["mean"] for f in ours["figures"]]
    assert bne(*command).json == ours  # as the records have it

    (data / "split.csv").unlink()
    said = bne(*command, "--data", data)
    assert "1 run, 1 to do" in said.err
    assert f"{start} 10 % of every class.\n" in said.err
    found = [r.settings["validation"] for r in read(tmp_path / "out/records.jsonl")]
    assert found == ["official", 0.1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "sota-pacs"], "The paper has no table 'sota-pacs'; the nearest is"),
        (["--methods", "depall", "--benchmark", "pacs"], "nearest is 'deepall'"),
        (["--recipe", "defualt"], "the nearest is 'default'"),
        ([], "name a --benchmark"),
        (["--benchmark", "pacs", "--set", "x"], "--set x"),
        (["--benchmark", "pacs", "--set", "seed=4"], "choose with --seeds instead"),
        (["--benchmark", "pacs", "--set", "target=photo"], "choose with --targets instead"),
        (["--benchmark", "pacs", "--set", "method=bne"], "choose with --methods or --row instead"),
        (["--benchmark", "pacs", "--data", "nowhere"], "no such file or folder"),
        (["--benchmark", "pacs", "--ray-address", "auto"], "--ray-address is for Ray"),
        (["--benchmark", "pacs", "--gpus-per-run", 0.25], "--gpus-per-run is for Ray"),
        (["--benchmark", "pacs", "--engine", "ray", "--parallel", 2], "--parallel is for --engine"),
    ],
)
def test_errors_are_one_sentence(tmp_path: Path, arguments: list[object], message: str) -> None:
    assert message in refusal("benchmark", "--out", tmp_path, *arguments)


def test_domains_that_make_no_table_are_refused(data: Path, tmp_path: Path) -> None:
    command = ("benchmark", "--data", tmp_path / "data", "--out", tmp_path / "out", *SETTINGS)
    shutil.copytree(data / "art", tmp_path / "data/art")
    assert "The data has one domain only, art;" in refusal(*command)
    shutil.copytree(data / "art", tmp_path / "data/average")
    assert "'average', as a column of the table is" in refusal(*command)


@pytest.mark.slow
def test_a_benchmark_that_was_killed_goes_on(data: Path, tmp_path: Path) -> None:
    records = tmp_path / "out" / "records.jsonl"
    settings = [*SETTINGS, "--set", "train.epochs=15"]
    command = ("benchmark", "--data", data, "--out", records.parent, *settings)
    program = [sys.executable, "-m", "bne", *map(str, command), "--parallel", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(program, start_new_session=True, env=threads, **quiet) as process:
        while not read(records) and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    before = records.read_bytes()
    done = {f"{r.row}_{r.settings['target'][0]}_{r.settings['seed']}" for r in read(records)}
    assert 1 <= len(done) < 6
    assert f"6 runs, {6 - len(done)} to do" in bne(*command, "--json").err
    assert records.read_bytes().startswith(before)
    assert len({record.digest for record in read(records)}) == len(read(records)) == 6
    left = [path for path in records.parent.iterdir() if path != records]
    assert all(path.stem.rpartition("_")[0] in done for path in left)  # killed before removing them


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_local_ray_gives_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    data = write_pictures(Path("data"))  # relative paths mean this folder, wherever workers are
    (data / "photo/cat/bad.png").write_bytes(b"no image")  # which workers leave out too
    command = ("benchmark", "--data", data, "--targets", "photo", *SETTINGS, "--json")
    command = (*command, "--skip-bad")
    ours = bne(*command, "--out", "ray", "--engine", "ray", "--device", "cpu").json
    assert bne(*command, "--out", "local", "--device", "cpu").json == ours
    assert [path.name for path in Path("ray").iterdir()] == ["records.jsonl"]
    theirs = {record.row: figures(record) for record in read(Path("local/records.jsonl"))}
    records = read(Path("ray/records.jsonl"))
    assert len(records) == 2
    assert {record.row: figures(record) for record in records} == theirs

    # Nothing is left to do: no Ray is started.
    monkeypatch.setitem(sys.modules, "ray", None)
    assert bne(*command, "--out", "ray", "--engine", "ray").json == ours
