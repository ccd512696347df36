"""An exported mixture of a small network; `benchmarks/zoo_export.py` has one of every family."""

import importlib
import json

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="session")
def zoo_export(_scripts):
    return importlib.import_module("zoo_export")


def test_exported_graphs_answer_as_the_network(zoo_export):
    for library in ("timm", "onnxscript", "onnxruntime"):
        pytest.importorskip(library)
    record = zoo_export.examine("timm/test_byobnet")
    assert record["result"] == "passed", record
    assert 0 < record["torch_export"] <= 1e-5
    assert 0 < record["onnx"] <= 1e-4


def test_a_failure_is_a_record(zoo_export, monkeypatch):
    monkeypatch.setattr(
        zoo_export, "differences", lambda *_: iter([("torch_export", 1.0), ("onnx", 0)])
    )
    record = zoo_export.examine("timm/any")
    assert (record["result"], record["torch_export"]) == ("failed", 1.0)
    monkeypatch.setattr(zoo_export, "differences", None)
    assert zoo_export.examine("timm/any")["result"] == "failed"


def test_rounding_excuses_what_float64_clears(zoo_export, monkeypatch):
    found = {"rounding": 1e-4, "torch_export": 0, "onnx": 9e-4, "onnx_float64": 1e-13}
    monkeypatch.setattr(zoo_export, "differences", lambda *_: found.items())
    assert zoo_export.examine("timm/any")["result"] == "passed"
    for key, value in (("onnx_float64", 1e-8), ("onnx", 2e-3)):
        wrong = found | {key: value}
        monkeypatch.setattr(zoo_export, "differences", lambda *_, wrong=wrong: wrong.items())
        assert f"{key} differs" in zoo_export.examine("timm/any")["reason"]


def test_every_family_that_converts_is_recorded_as_exported(zoo_export):
    pytest.importorskip("timm")
    names = zoo_export.families()
    passed = {
        r["name"]
        for r in map(json.loads, (ROOT / "results" / "zoo.jsonl").open())
        if r["result"] == "passed"
    }
    assert len(names) == len(set(names)) > 60
    assert set(names) <= passed
    last = {r["name"]: r for r in map(json.loads, zoo_export.RECORDS.open())}
    assert set(names) <= set(last)  # else: python benchmarks/zoo_export.py
    for record in last.values():
        assert record["result"] == "passed", record
        assert record["torch_export"] <= 1e-5
        assert record["onnx"] <= 1e-4
