"""`benchmarks/speed.py` runs, and its figures are what they are called."""

import importlib
import json
import math
from dataclasses import replace

import pytest
import torch

from bne.methods import entries
from tests.docs.pages import ROOT

RECORDED = [json.loads(line) for line in (ROOT / "results" / "speed.jsonl").open()]
UNITS = ("ms", "MiB")
SMALL = ["--backbone", "small_cnn", "--device", "cpu", "--size", "16", "--batch", "2"]


def test_small_networks_on_the_cpu(speed, timing, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(timing, "LONG_ENOUGH", {"cpu": 1e-4})
    out, page = tmp_path / "speed.jsonl", tmp_path / "page.md"
    page.write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    speed.main([*SMALL, "--repeat", "1", "--methods", "bne,epi-fcr", "--out", str(out)])
    importlib.import_module("speed_tables").main(out, page)
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["part"] for line in records} == set(speed.PARTS)
    assert {frozenset(line) for line in records} == {frozenset(RECORDED[-1])}
    assert all(line["value"] > 0 for line in records)
    compared = [line for line in records if line["reference_is"] and line["unit"] == "ms"]
    assert len(compared) > 12
    assert all(math.isfinite(line["ratio"]) and line["ratio"] > 0 for line in compared)
    (one,) = [r for r in compared if (r["what"], r["images"]) == ("mixture", 1)]
    assert one["ratio"] == pytest.approx(one["to_plain"] / 4)
    steps = {(line["what"], line["unit"]) for line in records if line["part"] == "methods"}
    assert steps == {(name, unit) for name in ("deepall", "bne", "epi-fcr") for unit in UNITS}
    (epi,) = [r for r in records if (r["what"], r["unit"]) == ("epi-fcr", "MiB")]
    assert epi["ratio"] > 2  # a network of each domain, and one of all
    tables = capsys.readouterr().out
    assert page.read_text().startswith("before\n<!-- speed -->\ntrain: small_cnn at 16²")
    assert all(line in tables for line in page.read_text().splitlines()[2:-2])


def test_every_method_has_a_step(speed, small):
    assert {line.what for line in speed.methods(small)} == {entry.name for entry in entries()}


def test_the_page_has_the_tables_of_the_records(timing):
    page = (ROOT / "benchmarks" / "README.md").read_text()
    assert f"-->\n{timing.markdown(iter(RECORDED))}<!--" in page


def test_every_recorded_figure_is_still_measured(speed, small):
    names = {(line["part"], line["what"]) for line in RECORDED}
    gpu = replace(small, device=torch.device("cuda"))
    found = {(part, line.what) for part, lines in speed.PARTS.items() for line in lines(gpu)}
    assert {name for name in names if name[0] != "peers"} <= found


def test_the_reference_is_the_plain_networks_best_time(speed, timing, small):
    """From made-up times: 48 images take 5 ms, 192 of them 8."""
    gpu = replace(small, device=torch.device("cuda"), per_domain=16)
    lines = speed.train(gpu)
    times = {(48, 0): 5.0, (192, 0): 8.0, (48, 3): 9.0}
    timings = {
        line.case: timing.Timing([times[key], times[key], 90.0])
        for line in lines
        if line.case.work == "training" and (key := (line.case.images, line.case.domains)) in times
    }
    line = next(line for line in lines if line.what == "DT step" and line.case.images == 48)
    found = timing.record("train", line, timings, {})
    assert (found["value"], found["plain"], found["goal"]) == (9, 5, 1.15)
    assert found["reference"] == pytest.approx(48 * 4 * 8 / 192)
    assert found["ratio"] == pytest.approx(9 / 8)
    assert found["met"] is True
    missing = timing.record("train", line, {}, {})
    assert (missing["value"], missing["ratio"], missing["met"]) == (None, None, None)
