import hashlib
import os
import threading
from pathlib import Path

import pytest

from bne.data.decoding import UNREADABLE, decode_to_file, digest_all, in_threads, usable_cores
from bne.data.images import ImageFile, Way, decode, resize
from bne.data.sources import open_images
from bne.errors import DataError
from tests.data.small import names, write


def unreadable() -> bytes:
    raise DataError("gone: it is not there.")


def nothing(done: int, total: int) -> None:
    pass


def test_every_row_is_its_own_file(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art photo", "cat dog", 20))
    files = open_images(tmp_path / "set").files
    seen = []
    digests, problems, _ = decode_to_file(
        files, tmp_path / "out", Way(8), lambda *done: seen.append(done)
    )
    expected = [resize(decode(file.read(), file.name), 8).tobytes() for file in files]
    assert len(set(expected)) == len(files)
    assert (tmp_path / "out").read_bytes() == b"".join(expected)
    assert digests == digest_all(files)
    assert problems == {}
    assert seen == [(done, 80) for done in range(1, 81)]


def test_a_file_without_pixels_leaves_a_gap_and_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art", "cat", 1))
    (good,) = open_images(tmp_path / "set").files
    bad = (ImageFile("a", 0, 0, unreadable, ""), ImageFile("b", 0, 0, bytes, ""))
    digests, problems, _ = decode_to_file((*bad, good), tmp_path / "out", Way(4), nothing)
    known = [hashlib.sha256(data).hexdigest() for data in (b"", good.read())]
    assert digests == [UNREADABLE, *known]
    assert problems.keys() == {0, 1}
    assert problems[0] == "gone: it is not there."
    assert problems[1].startswith("b: the file is not a JPEG")
    pixels = resize(decode(good.read(), ""), 4).tobytes()
    assert (tmp_path / "out").read_bytes() == bytes(2 * 48) + pixels


def test_what_the_operating_system_says_reaches_the_caller(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art", "cat", 1))
    files = open_images(tmp_path / "set").files
    with pytest.raises(FileNotFoundError):
        decode_to_file(files, tmp_path / "nowhere" / "out", Way(4), nothing)


def test_threads_work_at_once_in_order_and_not_without_end() -> None:
    barrier, taken = threading.Barrier(3, timeout=30), []

    def square(number: int) -> int:
        barrier.wait()  # passes only if three are at it
        return number**2

    results = in_threads(square, (taken.append(n) or n for n in range(300)), 3, ahead=5)
    assert taken == []
    assert next(results) == 0
    assert taken == list(range(6))
    assert list(results) == [number**2 for number in range(1, 300)]


@pytest.mark.parametrize("stop", ["error", "caller"])
def test_what_is_left_is_not_done_after_an_error_or_when_the_caller_stops(stop: str) -> None:
    done, go = [], threading.Event()

    def work(number: int) -> None:
        if stop == "error" and number == 1:
            raise OSError("full")
        if number > 1:
            go.wait(30)
        done.append(number)

    results = in_threads(work, range(20), 2, ahead=10)
    next(results)
    threading.Timer(0.5, go.set).start()
    if stop == "error":
        with pytest.raises(OSError, match="full"):
            next(results)
    else:
        results.close()
    assert 10 not in done  # the last that was handed to the threads


def test_only_the_cores_given_to_the_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
