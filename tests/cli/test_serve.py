"""`bne serve` as a process: it starts, takes a new model over, and answers all before it stops."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import bne as library
from tests.cli.command import bne, refusal

Runs = dict[str, Path]


def _no_files() -> None:
    """No file can be longer than the four bytes by which Python tries a folder."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))


@contextmanager
def serving(model: Path, *options: str, key: str | None = None):
    """A process, and a client of it."""
    command = [sys.executable, "-m", "bne", "serve", str(model), "--port", "0", *options]
    environment = {**os.environ, **({"BNE_API_KEY": key} if key else {})}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=_no_files
    )
    try:
        line = process.stderr.readline()
        address = re.search(r"answers at (http://127\.0\.0\.1:\d+)\.", line)
        assert address, line + process.stderr.read()
        with httpx.Client(base_url=address[1], timeout=30) as ask:
            yield process, ask
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_process_from_start_to_end(runs: Runs, tmp_path: Path) -> None:
    file = Path(shutil.copy(runs["bne"] / "model.bne", tmp_path))
    ids = [library.load(runs[name], "cpu").id for name in ("bne", "deepall")]
    data = next(runs["data"].glob("photo/cat/*.png")).read_bytes()
    form = [("images", ("big.png", data + bytes(1_500_000)))]  # more than forms keep in memory
    with serving(file, "--threads", "1", key="k3y") as (process, plain):
        assert plain.post("/predict", content=data).status_code == 401
        plain.headers["X-API-Key"] = "k3y"
        told = plain.post("/predict", files=form)
        assert (told.status_code, told.json()["model"]) == (200, ids[0])
        seen: list[tuple[int, str]] = []
        stop = threading.Event()

        def client() -> None:
            with httpx.Client(base_url=plain.base_url, headers=plain.headers) as own:
                while not stop.is_set():
                    answer = own.post("/predict", content=data)
                    seen.append((answer.status_code, answer.json()["model"]))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        while len(seen) < 150:
            time.sleep(0.01)
        memory = _memory(plain)
        shutil.copy(runs["deepall"] / "model.bne", tmp_path / "next")
        (tmp_path / "next").replace(file)
        until = time.monotonic() + 30
        while time.monotonic() < until and (seen[-1][1] != ids[1] or len(seen) < 500):
            time.sleep(0.01)
        stop.set()
        for one in clients:
            one.join()
        assert {code for code, _ in seen} == {200}
        assert {own for _, own in seen} == set(ids)
        assert _memory(plain) - memory < 40e6  # the second model's, and no image's
        _drains(process, plain, data)


def _memory(ask) -> float:
    """Of the server and of its network."""
    names = ("process_resident_memory_bytes", "bne_network_process_resident_memory_bytes")
    return sum(_metric(ask, name) for name in names)


def _metric(ask, name: str) -> float:
    return float(re.search(rf"^{name} (\S+)$", ask.get("/metrics").text, re.MULTILINE)[1])


def _drains(process, ask, data: bytes) -> None:
    """What was asked before the signal is answered, and the exit code is 0."""
    many = [("images", (str(n), data)) for n in range(64)]
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask.post("/predict", files=many).status_code)
    )
    asking.start()
    while _metric(ask, "bne_queue_images") == 0 and not answers:
        pass
    process.send_signal(signal.SIGTERM)
    asking.join()
    assert process.wait(30) == 0
    assert answers == [200]


def test_errors_are_one_sentence(runs: Runs, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "empty").write_text("\n")
    for arguments, words in (
        ((here / "absent.bne",), "no such file"),
        ((here,), "bne bundle"),
        ((runs["bne"], "--api-key-file", here / "empty"), "API key"),
        ((runs["bne"], "--max-images", 900), "room for 512"),
        ((runs["bne"], "--host", "no.such.host.invalid"), "cannot be listened at"),
        ((runs["deepall"], "--mix", "centre"), "has no branches"),
    ):
        assert words in refusal("serve", *arguments)
    monkeypatch.setenv("BNE_API_KEY", "two words")
    assert "one word" in refusal("serve", runs["bne"])
    assert "Invalid value" in bne("serve", runs["bne"], "--port", 70000, code=2).err
