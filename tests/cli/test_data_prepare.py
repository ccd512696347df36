from pathlib import Path

import pytest

from tests.cli.command import bne, refusal
from tests.data.small import names, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "set", *names("art photo", "cat dog", 2))


def test_says_where_the_images_are_and_how_large(data: Path, tmp_path: Path) -> None:
    said = bne("data", "prepare", data, "--cache", tmp_path / "other").out
    (store,) = (tmp_path / "other").glob("images-*")
    assert said == f"8 images of 256x256 pixels, 1.57 MB, are ready in {store}\n"


def test_the_cache_can_come_from_the_environment(data: Path, here: Path) -> None:
    report = bne("data", "prepare", data, "--size", 16, "--json").json
    assert Path(report.pop("folder")).parent == here / "cache"
    ways = {key: report.pop(key) for key in ("fit", "range", "channels", "notes")}
    assert ways == {"fit": "squash", "range": "full", "channels": 3, "notes": []}
    assert report == {"images": 8, "size": 16, "bytes": 8 * 16 * 16 * 3, "skipped": []}


def test_images_may_keep_their_aspect(data: Path) -> None:
    command = ("data", "prepare", data, "--size", 16)
    bne(*command)
    assert bne(*command, "--fit", "letterbox", "--json").json["fit"] == "letterbox"
    assert "--fit crop is unknown; give squash or letterbox" in refusal(*command, "--fit", "crop")


def test_bad_images_fail_or_are_skipped(data: Path) -> None:
    (data / "art/cat/0.png").write_bytes(b"")
    command = ("data", "prepare", data, "--size", 16)
    errors = bne(*command, code=1).err
    assert errors.startswith("Error: 1 of 8 images cannot be read")
    assert "art/cat/0.png" in errors
    assert "Traceback" not in errors
    said = bne(*command, "--skip-bad")
    assert said.err.startswith("Skipped: art/cat/0.png")
    assert said.out.startswith("7 images of 16x16")
