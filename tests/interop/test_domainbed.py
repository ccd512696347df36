"""Exported records, read by a stand-in of DomainBed's reader and its selection methods."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from bne.benchmark.records import Record, append, read
from bne.errors import DataError
from bne.interop.domainbed import export
from tests.benchmark.examples import item, record

RECORDED = Path(__file__).resolve().parents[2] / "results" / "pacs-resnet18"
Line = dict[str, Any]
SOURCES = ("cartoon", "photo", "sketch")


def load(folder: Path) -> dict[str, list[Line]]:
    """All lines, by run, of every subfolder's results.jsonl."""
    return {
        run.name: [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
        for run in sorted(folder.iterdir())
    }


def training_domain_validation(lines: list[Line]) -> float:
    """The target's in-split accuracy where the sources' out-splits do best, the later of equals."""

    def validation(line: Line) -> float:
        count = sum(f"env{n}_out_acc" in line for n in range(99))
        sources = [n for n in range(count) if n not in line["args"]["test_envs"]]
        return fmean(line[f"env{n}_out_acc"] for n in sources)

    best = max(reversed(lines), key=validation)
    return float(best[f"env{best['args']['test_envs'][0]}_in_acc"])


def oracle(lines: list[Line]) -> float:
    """The target's accuracy at the last step."""
    last = max(lines, key=lambda line: line["step"])
    return float(last[f"env{last['args']['test_envs'][0]}_in_acc"])


def epoch(number: int, target: str = "art_painting", **changes: Any) -> dict[str, Any]:
    return {
        "phase": "train",
        "epoch": number,
        "steps": 10,
        "loss": 0.5,
        "seconds": 20.0,
        "validation": {name: {"correct": 8, "images": 10} for name in SOURCES},
        "target": {target: {"correct": 3, "images": 4}},
        "statistics": "running",
    } | changes


def exported(tmp_path: Path, *records: Record) -> dict[str, list[Line]]:
    file = tmp_path / "records.jsonl"
    for one in records:
        append(file, one)
    export(file, tmp_path / "out")
    return load(tmp_path / "out")


@pytest.mark.parametrize("file", ["tables.jsonl", "search.jsonl"])
def test_recorded_runs_give_the_same_accuracy_there(tmp_path: Path, file: str) -> None:
    records = read(RECORDED / file)
    assert export(RECORDED / file, tmp_path / "out") == len(records)
    for run, one in zip(load(tmp_path / "out").values(), records, strict=True):
        (target,) = one.settings["target"]
        rules = {"validation": training_domain_validation(run), "last": oracle(run)}
        for rule, accuracy in rules.items():
            score = one.accuracy[rule][target]
            assert accuracy == pytest.approx(score["correct"] / score["images"])
        places = ["art_painting", "cartoon", "photo", "sketch"]
        assert {line["args"]["dataset"] for line in run} == {"PACS"}
        assert run[0]["args"]["test_envs"] == [places.index(target)]
        assert run[0]["args"]["trial_seed"] == one.settings["seed"]


def test_the_fields_of_a_line(tmp_path: Path) -> None:
    epochs = (epoch(1, phase="head"), epoch(1), epoch(2), epoch(2, statistics="exact"))
    (run,) = exported(tmp_path, record(item("bne", "art_painting", 3), 1, epochs=epochs)).values()
    assert [(line["step"], line["epoch"]) for line in run] == [(20, 1), (30, 2), (31, 2)]
    line = run[0]
    accuracies = {key: value for key, value in line.items() if key.endswith("_acc")}
    assert accuracies == {
        "env0_in_acc": 0.75,
        "env0_out_acc": 0.75,
        "env1_out_acc": 0.8,
        "env2_out_acc": 0.8,
        "env3_out_acc": 0.8,
    }
    assert (line["loss"], line["step_time"]) == (0.5, 2.0)
    wanted = {"algorithm": "bne", "dataset": "PACS", "test_envs": [0], "seed": 3, "trial_seed": 3}
    assert wanted.items() <= line["args"].items()
    assert line["args"]["task"] == "domain_generalization"
    assert {"lr": 1e-4, "weight_decay": 0.0, "batch_size": 16}.items() <= line["hparams"].items()


def test_other_settings_of_one_name_are_other_hyperparameters(tmp_path: Path) -> None:
    runs = exported(
        tmp_path,
        record(item("bne", "art_painting"), 1, epochs=(epoch(1),)),
        record(item("bne", "art_painting", per_domain=8), 1, epochs=(epoch(1),)),
        record(item("bne", "art_painting", 1), 1, epochs=(epoch(1),)),
        record(item("deepall", "art_painting", per_domain=8), 1, epochs=(epoch(1),)),
        record(item("bne", "art_painting"), 2, epochs=(epoch(1),)),  # the first once more
    )
    found = [
        tuple(r[0]["args"][k] for k in ("algorithm", "hparams_seed", "seed")) for r in runs.values()
    ]
    assert found == [("bne", 0, 0), ("bne", 1, 0), ("bne", 0, 1), ("deepall", 0, 0)]


def test_domains_of_no_benchmark_are_a_dataset_of_their_own(tmp_path: Path) -> None:
    runs = exported(
        tmp_path,
        record(
            item("bne", "ink", sources=("photo", "chalk")),
            1,
            epochs=(epoch(1, "ink", validation={}),),
        ),
    )
    ((line,),) = runs.values()
    assert (line["args"]["dataset"], line["args"]["test_envs"]) == ("chalk+ink+photo", [1])
    assert [key for key in line if key.endswith("_acc")] == ["env1_in_acc", "env1_out_acc"]


def test_what_cannot_be_exported_is_refused_and_nothing_written(tmp_path: Path) -> None:
    file, out = tmp_path / "records.jsonl", tmp_path / "out"
    with pytest.raises(DataError, match=r"records\.jsonl has no records"):
        export(file, out)
    append(file, record(item("bne", "art_painting"), 1, epochs=(epoch(1),)))
    append(file, record(item("bne", "photo"), 1))
    with pytest.raises(DataError, match="does not tell its source domains"):
        export(file, out)
    assert not out.exists()
    with pytest.raises(DataError, match="not an empty folder"):
        export(file, tmp_path)


def test_the_command(tmp_path: Path) -> None:
    append(tmp_path / "records.jsonl", record(item("bne", "art_painting"), 1, epochs=(epoch(1),)))
    command = [sys.executable, "-m", "bne.interop.domainbed", "records.jsonl", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1 runs are in out\n")
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 1
    assert again.stderr == "Error: out is there already and not an empty folder; name a new one.\n"
