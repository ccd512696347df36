"""A network in a process of its own: it says what one in this process says, and may be killed."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from bne.errors import BneError, DataError
from bne.server import apart
from bne.server.app import Limits, Server
from bne.server.live import Live, Loaded
from bne.server.told import Asked

Runs = dict[str, Path]


def test_it_says_what_a_network_here_says(runs: Runs) -> None:
    file, mode = runs["bne"] / "model.bne", {"lean": 0.2}
    here, there = (load(file, "cpu", 1, **mode) for load in (Loaded.of, apart.load))
    assert (there.id, there.info) == (here.id, here.info)
    assert (there.way, there.batch) == (here.way, here.batch)
    assert there.pid != os.getpid()
    size = here.way.size
    pixels = np.random.default_rng(0).integers(0, 255, (5, size, size, 3), np.uint8)

    def begin(model, pixels, **asked):
        count = len(pixels)
        return model.begin(pixels, [str(n) for n in range(count)], [Asked(**asked)] * count)

    for asked in ({"top": 2}, {"places": False}):
        own, expected = (begin(model, pixels, **asked)() for model in (there, here))
        assert (own.classes, own.nearest) == (expected.classes, expected.nearest)
        assert own.unusual == pytest.approx(expected.unusual, abs=0.01)
        for row, same in zip(
            map(json.loads, own.rows), map(json.loads, expected.rows), strict=True
        ):
            assert list(row) == list(same)
            assert (row["name"], row["class"]) == (same["name"], same["class"])
            assert row["probability"] == pytest.approx(same["probability"], rel=1e-4)
            assert row.get("distances", {}) == pytest.approx(same.get("distances", {}), rel=1e-4)
    with pytest.raises(DataError, match="prepare them"):
        begin(there, pixels[:, :, :, :2])()
    with pytest.raises(RuntimeError, match="Traceback"):
        there.begin(None, [], [])()
    assert len(begin(there, pixels[:1])().rows) == 1  # an error does not end it
    questions = pixels[:2], pixels[:, :, :, :2], np.zeros((400, size, size, 3), np.uint8)
    heard = [begin(there, question) for question in questions]  # the last fills its pipe
    with pytest.raises(DataError, match="prepare them"):
        heard[1]()
    assert [len(heard[n]().rows) for n in (2, 0)] == [400, 2]  # in any order


def test_errors_are_those_of_a_model_here(
    runs: Runs, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.bne"
    damaged.write_bytes((runs["bne"] / "model.bne").read_bytes()[:-500])
    with pytest.raises(BneError) as here:
        Loaded.of(damaged, "cpu", 1)
    model = apart.Apart()
    with pytest.raises(BneError) as there:
        model.ask(damaged, "cpu", 1, {})()
    assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert model._process.wait(60) == 0
    assert "Traceback" not in capfd.readouterr().err


def test_a_process_that_ends_while_it_loads_is_one_sentence(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    with pytest.raises(DataError, match="the process that loads it has ended"):
        apart.load(runs["bne"] / "model.bne", "cpu", 1)


def test_one_that_is_killed_is_loaded_again_and_one_that_nobody_uses_ends(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    data = next(runs["data"].glob("photo/cat/*.png")).read_bytes()
    live = Live(runs["bne"], "cpu", 1, load=apart.load)
    with TestClient(Server(live, Limits(threads=1)).app) as ask:
        old = live.model.pid
        os.kill(old, signal.SIGTERM)  # which may be sent to all processes of a service
        assert ask.post("/predict", content=data).status_code == 200
        text = ask.get("/metrics").text
        os.kill(old, signal.SIGKILL)
        ask.post("/predict", files=[("images", (f"{n}.png", data)) for n in range(9)])
        while live.model.alive and live.model.pid == old:
            time.sleep(0.01)
        codes = set()
        until = time.monotonic() + 60
        while 200 not in codes and time.monotonic() < until:
            told = ask.post("/predict", content=data)
            codes.add(told.status_code)
            assert told.status_code == 200 or int(told.headers["Retry-After"]) >= 1
        assert codes <= {200, 503}
        assert 200 in codes
        assert ask.get("/readyz").status_code == 200
        new = live.model.pid
    assert "bne_network_process_resident_memory_bytes" in text
    assert new != old
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2  # no traceback per image
    assert said[0].startswith("The network's process has ended; ")
    assert said[1] == f"The model {live.model.id} answers from now on."
    caplog.clear()  # its records keep nothing alive
    del live.model
    for pid in (old, new):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
