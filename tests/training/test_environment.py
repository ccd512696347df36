import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import bne
from bne.training import environment
from bne.training.environment import SIGNALS, describe, noticed


def git(folder: Path, *arguments: str) -> str:
    identity = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for role in ("AUTHOR", "COMMITTER"):
        identity |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.org"}
    command = ["git", "-C", folder, *arguments]
    return subprocess.check_output(command, text=True, env={**os.environ, **identity}).strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one commit, with bne where ours has it; bne is taken to lie there."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "checkout" / "src" / "bne"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(tmp_path / "checkout", "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=one")
    monkeypatch.setattr(bne, "__file__", str(folder / "__init__.py"))
    return folder


def test_versions_are_those_that_run() -> None:
    found = describe("cpu", None)
    assert found["python"] == sys.version.split()[0]
    assert torch.__version__.startswith(found["torch"].partition("+")[0])
    assert found["bne"] == bne.__version__
    assert found["device"] in (platform.processor(), platform.machine())
    assert json.loads(json.dumps(found)) == found


def test_the_commit_says_when_files_were_changed(package: Path) -> None:
    commit = git(package, "rev-parse", "HEAD")
    git(package, "tag", "v1")
    assert describe("cpu", None)["commit"] == commit
    (package / "__init__.py").write_text("changed = True")
    assert describe("cpu", None)["commit"] == f"{commit}-dirty"


def test_the_commit_of_something_else_is_not_ours(package: Path, monkeypatch) -> None:
    installed = package.parents[1] / ".venv" / "bne"
    installed.mkdir(parents=True)
    monkeypatch.setattr(bne, "__file__", str(installed / "__init__.py"))
    assert describe("cpu", None)["commit"] is None


def test_without_git_or_a_checkout_there_is_no_commit(package, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        assert describe("cpu", None)["commit"] is None
    shutil.rmtree(package.parents[1] / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert describe("cpu", None)["commit"] is None


def test_a_checksum_of_the_code_tells_versions_apart_without_git(package, monkeypatch) -> None:
    (package / "b").mkdir()
    (package / "b" / "code.py").write_text("x = 1\n")
    (package / "b.yaml").write_text("y: 2\n")
    (package / "notes.txt").write_text("no code")
    with_git = describe("cpu", None)
    monkeypatch.setenv("PATH", "")
    without = describe("cpu", None)
    assert (with_git["commit"] is None, without["commit"] is None) == (False, True)
    # As `find`, `sort` and `sha256sum` of GNU have it.
    assert with_git["code_sha256"] == without["code_sha256"] == "d310b5f0734c59ec"
    (package / "b" / "code.py").rename(package / "code.py")
    moved = describe("cpu", None)["code_sha256"]
    (package / "code.py").write_text("x = 2\n")
    assert len({"d310b5f0734c59ec", moved, describe("cpu", None)["code_sha256"]}) == 3


def test_weights_are_named_by_file_and_checksum_not_by_path(tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    file.write_bytes(b"abc")
    found = describe("cpu", str(file))
    # The checksum of "abc" as FIPS 180-2 gives it.
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["weights"] == {"name": "net.safetensors", "sha256": digest}
    assert str(tmp_path) not in json.dumps(found)
    assert describe("cpu", "torchvision")["weights"] == {"name": "torchvision", "sha256": None}
    assert describe("cpu", None)["weights"] == {"name": None, "sha256": None}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc alone is told")
@pytest.mark.parametrize(("variables", "kept"), [({}, True), ({"MALLOC_TOP_PAD_": "4096"}, False)])
def test_freed_memory_is_kept_for_the_next_tensor(variables: dict[str, str], kept: bool) -> None:
    program = """
import ctypes, resource
from bne.training.environment import keep_memory
keep_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def fill():
    place = libc.malloc(ctypes.c_size_t(2**28))
    ctypes.memset(place, 1, 2**28)
    libc.free(ctypes.c_void_p(place))
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    others = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    command = [sys.executable, "-c", program]
    faults = int(subprocess.check_output(command, env={**others, **variables}, text=True))
    assert (faults < 100) == kept


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_a_later_one_does_what_it_did(number, monkeypatch) -> None:
    seen = []
    before = signal.signal(number, lambda *_: seen.append(number))
    try:
        with noticed() as interruption:
            assert not interruption.wanted
            os.kill(os.getpid(), number)
            assert interruption.wanted
            os.kill(os.getpid(), number)
            assert seen == []  # so soon it is the same one, passed on by torchrun
            monkeypatch.setattr(environment, "ECHO", 0.0)
            os.kill(os.getpid(), number)
            assert seen == [number]
        os.kill(os.getpid(), number)
        assert seen == [number, number]
    finally:
        signal.signal(number, before)


def test_other_threads_change_no_signals() -> None:
    found = []

    def work() -> None:
        with noticed() as interruption:
            found.append((interruption.wanted, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
