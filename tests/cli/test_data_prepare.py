import json
from pathlib import Path

import pytest

from tests.cli.test_data_check import bne
from tests.data.small import names, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "set", *names("art photo", "cat dog", 2))


def test_says_where_the_images_are_and_how_large(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bne("data", "prepare", data, "--cache", tmp_path / "cache") == 0
    (store,) = (tmp_path / "cache").glob("images-*")
    output = capsys.readouterr().out
    assert output == f"8 images of 256x256 pixels, 1.57 MB, are ready in {store}\n"


def test_the_cache_can_come_from_the_environment(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "other"))
    assert bne("data", "prepare", data, "--size", 16, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert Path(report.pop("folder")).parent == tmp_path / "other"
    assert report == {"images": 8, "size": 16, "bytes": 8 * 16 * 16 * 3, "skipped": []}


def test_bad_images_fail_or_are_skipped(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "art/cat/0.png").write_bytes(b"")
    command = ("data", "prepare", data, "--cache", tmp_path / "cache", "--size", 16)
    assert bne(*command) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("Error: 1 of 8 images cannot be read")
    assert "art/cat/0.png" in errors
    assert "Traceback" not in errors
    assert bne(*command, "--skip-bad") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("Skipped: art/cat/0.png")
    assert captured.out.startswith("7 images of 16x16")
