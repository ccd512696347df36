import os
from pathlib import Path

import pytest

from bne.data import entries
from bne.data.entries import Entry, gather, printable, read_file
from bne.errors import DataError


def entry(domain: str, class_name: str, file: str) -> Entry:
    return Entry(domain, class_name, file, bytes, "stamp")


def test_domains_classes_and_files_are_in_alphabetical_order() -> None:
    images = gather(
        [entry("b", "dog", "2"), entry("b", "dog", "1"), entry("a", "yak", "3")], "here"
    )
    assert images.domains == ("a", "b")
    assert images.classes == ("dog", "yak")
    assert [(f.name, f.domain, f.label) for f in images.files] == [
        ("a/yak/3", 0, 1),
        ("b/dog/1", 1, 0),
        ("b/dog/2", 1, 0),
    ]


def test_nothing_and_twice_the_same_are_errors() -> None:
    with pytest.raises(DataError, match=r"^here: holds no images"):
        gather([], "here")
    with pytest.raises(DataError, match=r"^here: a/dog/1 occurs twice"):
        gather([entry("a", "dog", "1")] * 2, "here")


def test_names_are_safe_to_print() -> None:
    assert printable("déjà vu.png") == "déjà vu.png"
    assert printable("a\x1b[31m\n") == "a\\x1b[31m\\n"
    assert printable(os.fsdecode(b"\xff.png")) == "\\udcff.png"


def test_reading_a_missing_oversized_or_special_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"red\\x1b\[31m: there is no such file"):
        read_file(str(tmp_path / "red\x1b[31m"))  # and no control characters are shown
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="there is no such file"):
        read_file(str(tmp_path / "pipe"))
    monkeypatch.setattr(entries, "MAX_BYTES", 2_000_000)
    (tmp_path / "big").write_bytes(bytes(2_000_000))
    assert len(read_file(str(tmp_path / "big"))) == 2_000_000
    (tmp_path / "big").write_bytes(bytes(2_000_001))
    with pytest.raises(DataError, match=r"more than 2\.00 MB"):
        read_file(str(tmp_path / "big"))
