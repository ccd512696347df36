import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

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


def test_linked_folders_are_read_once(place: Path) -> None:
    (place / "links").mkdir()
    for name, target in (("far", "../other"), ("same", "../other"), ("up", "../links")):
        (place / "links" / name).symlink_to(target)
    assert names("links") == ["links/far/4.png"]


def test_a_damaged_archive_in_a_folder_is_one_unreadable_image(place: Path) -> None:
    (place / "in/cut.tar").write_bytes((place / "a.tar").read_bytes()[:1100])
    assert names("in") == ["in/1.JPG", "in/cut.tar", "in/b/2.png"]
    damaged = pickle.loads(pickle.dumps(find_pictures(["in"])[1]))
    with pytest.raises(DataError, match=r"in/cut\.tar: .*damaged"):
        damaged.read()
    with pytest.raises(DataError, match=r"in/cut\.tar: .*damaged"):
        names("in/cut.tar")


def test_tables_of_parquet_have_paths_or_images(place: Path) -> None:
    here = [png() for _ in range(5)]
    (place / "tables/one.png").write_bytes(here[4])
    images = [{"bytes": own, "path": "gone.png"} for own in here[:4]]
    images.append({"bytes": None, "path": "one.png"})
    write_parquet("tables/t.parquet", photo=["../other/4.png", f"{place}/in/1.JPG"])
    write_parquet("tables/same.parquet", photo=pa.array(["one.png"] * 3).dictionary_encode())
    write_parquet("tables/bytes.parquet", path=here)
    write_parquet("tables/hub.parquet", image=pa.array(images), label=range(5))
    assert names("tables/t.parquet", column="photo") == names("tables/t.csv", column="photo")
    assert names("tables/same.parquet", column="photo") == ["tables/one.png"] * 3
    for table, column in (("bytes", "path"), ("hub", "image")):
        found = find_pictures([f"tables/{table}.parquet"], column=column)
        assert [picture.name for picture in found] == [
            f"tables/{table}.parquet/{n}" for n in range(5)
        ]
        again = pickle.loads(pickle.dumps(found))  # as on its way to other machines
        assert [picture.read() for picture in reversed(again)] == here[::-1]
    write_parquet("tables/bytes.parquet", path=here[::-1])
    assert next(iter(find_pictures(["tables/bytes.parquet"]))).read() == here[4]


def test_what_a_parquet_lacks_is_named(place: Path) -> None:
    write_parquet("a.parquet", path=[1, 2])
    write_parquet("b.parquet", path=["in/1.JPG", None])
    write_parquet("c.parquet", path=[{"bytes": png(), "path": None}, {"bytes": None, "path": None}])
    Path("d.parquet").write_bytes(Path("c.parquet").read_bytes()[:-9])
    for given, words in (
        ("a.parquet", "neither paths nor encoded images, but int64"),
        ("b.parquet", "row 1: 'path' is empty"),
        ("d.parquet", r"d\.parquet: cannot be read"),
    ):
        with pytest.raises(DataError, match=words):
            names(given)
    with pytest.raises(DataError, match="needs the columns photo; found path"):
        names("a.parquet", column="photo")
    with pytest.raises(DataError, match=r"c\.parquet/1: there is no image"):
        find_pictures(["c.parquet"])[1].read()


def write_parquet(file: str, **columns: object) -> None:
    parquet.write_table(pa.table(columns), file, row_group_size=2)


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
