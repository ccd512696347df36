import hashlib
from pathlib import Path

import pytest

from bne.data.decoding import CHUNK, UNREADABLE, decode_to_file, digest_all
from bne.data.images import ImageFile, decode, resize
from bne.data.sources import open_images
from bne.errors import DataError
from tests.data.small import names, write


def unreadable() -> bytes:
    raise DataError("gone: it is not there.")


def nothing(done: int, total: int) -> None:
    pass


def test_every_row_is_its_own_file_over_several_chunks(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art photo", "cat dog", 10))
    files = open_images(tmp_path / "set").files
    assert len(files) > CHUNK
    seen = []
    results = decode_to_file(
        files, tmp_path / "out", 8, lambda done, total: seen.append((done, total))
    )
    expected = [resize(decode(file.read(), file.name), 8).tobytes() for file in files]
    assert len(set(expected)) == len(files)
    assert (tmp_path / "out").read_bytes() == b"".join(expected)
    assert [one.digest for one in results] == digest_all(files)
    assert seen[-1] == (40, 40)
    assert len(seen) > 1


def test_a_file_without_pixels_leaves_a_gap_and_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art", "cat", 1))
    (good,) = open_images(tmp_path / "set").files
    files = (
        ImageFile("a", 0, 0, unreadable, ""),
        ImageFile("b", 0, 0, bytes, ""),
        good,
    )
    results = decode_to_file(files, tmp_path / "out", 4, nothing)
    assert results[0] == (UNREADABLE, "gone: it is not there.")
    assert results[1].digest == hashlib.sha256(b"").hexdigest()
    assert results[1].problem is not None
    assert "b: the file is not a JPEG" in results[1].problem
    written = (tmp_path / "out").read_bytes()
    assert written[: 2 * 48] == bytes(2 * 48)
    assert written[2 * 48 :] == resize(decode(good.read(), ""), 4).tobytes()


def test_what_the_operating_system_says_in_a_worker_reaches_the_caller(tmp_path: Path) -> None:
    write(tmp_path / "set", *names("art", "cat", 1))
    files = open_images(tmp_path / "set").files
    with pytest.raises(FileNotFoundError):
        decode_to_file(files, tmp_path / "nowhere" / "out", 4, nothing)
