from pathlib import Path

import pytest

from bne.deploy.pictures import find_pictures
from bne.errors import DataError
from tests.data.small import png, write
from tests.data.test_archives import pack


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "in/b/2.png", "in/1.JPG", "in/.hidden/3.png", "in/b/._2.png", "other/4.png")
    (tmp_path / "in/notes.txt").write_text("no image")
    for kind in ("tar", "zip"):
        files = {"x.png": png(), "deep/down/y.png": png(), "z.txt": b""}
        pack(tmp_path / f"a.{kind}", files)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/t.csv").write_text(f"id,photo\n1,../other/4.png\n2,{tmp_path}/in/1.JPG\n")
    return tmp_path


def names(*given: str, **options: object) -> list[str]:
    return [picture.name for picture in find_pictures(given, **options)]


def test_everything_that_holds_images_is_listed(place: Path) -> None:
    assert names("in") == ["in/1.JPG", "in/b/2.png"]
    assert names("in/b/2.png", "other") == ["in/b/2.png", "other/4.png"]
    assert names("**/*.png") == ["in/b/2.png", "other/4.png"]
    assert names("a.tar") == ["a.tar/x.png", "a.tar/deep/down/y.png"]
    assert names("a.zip") == ["a.zip/x.png", "a.zip/deep/down/y.png"]
    assert names("tables/t.csv", column="photo") == ["tables/../other/4.png", f"{place}/in/1.JPG"]
    assert names("-", names=["other/4.png\n", "\n", "absent.png\n"]) == [
        "other/4.png",
        "absent.png",
    ]
    (place / "notes.txt").write_bytes(png())
    assert names("notes.txt") == ["notes.txt"]  # its content decides
    every = find_pictures([".", "tables/t.csv"], column="photo")
    assert len(every) == 9
    assert all(picture.read()[:4] == b"\x89PNG" for picture in every)


def test_what_holds_no_images_is_named(place: Path) -> None:
    (place / "empty").mkdir()
    (place / "bad.zip").write_bytes(b"no zip")
    (place / "a.tar.gz").write_bytes(b"")
    for given, words in (
        ("absent", "absent: there is no such file"),
        ("*.jpg", "no such file"),
        ("empty", "empty: holds no JPEG, .* images"),
        ("bad.zip", "bad.zip: no zip or damaged"),
        ("a.tar.gz", "use a plain .tar"),
        ("tables/t.csv", "needs the columns path; found id, photo"),
        ("-", "-: holds no"),
    ):
        with pytest.raises(DataError, match=words):
            names("in", given)
    with pytest.raises(DataError, match="no images to predict"):
        names()
    (late,) = find_pictures(["-"], ["absent.png"])
    with pytest.raises(DataError, match=r"absent\.png: there is no such file"):
        late.read()
