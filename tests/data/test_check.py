import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from bne.data.benchmarks import declare
from bne.data.check import check, check_path, count_passed_over
from bne.data.sources import open_images
from tests.data.small import names, write

FIELDS = {
    "title": "Toy",
    "domains": ["art", "photo"],
    "classes": ["cat", "dog"],
    "class_counts": {"art": [2, 2], "photo": [2, 2]},
    "origin": "",
    "terms": "",
}
TOY = declare("toy", FIELDS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of Toy with nothing wrong."""
    return write(tmp_path, *names("art photo", "cat dog", 2))


def test_a_sound_copy_passes(root: Path) -> None:
    seen = []
    report = check(open_images(root), TOY, lambda *done: seen.append(done))
    assert report.counts == {"cat": {"art": 2, "photo": 2}, "dog": {"art": 2, "photo": 2}}
    assert report.errors == report.notes == report.unreadable == report.duplicates == ()
    assert seen == [(done, 8) for done in range(1, 9)]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        (["-photo"], ["There is one domain only, art", "The domain photo of Toy is missing"]),
        (["+sea/cat/1.png", "+sea/dog/1.png"], ["The domain sea is no domain of Toy"]),
        (["-photo/cat/1.png"], ["photo: 3 images; Toy has 4 (cat 1, not 2)."]),
        (["+photo/cat/9.png"], ["photo: 5 images; Toy has 4 (cat 3, not 2)."]),
        (
            ["-photo/cat/1.png", "+photo/dog/9.png"],
            ["photo: 4 images; Toy has 4 (cat 1, not 2; dog 3, not 2)."],
        ),
        (["-art/cat"], ["art: without images of cat, which other", "art: 2 images; Toy has 4."]),
        (
            ["-art/cat", "-photo/cat", "+art/cow/1.png", "+art/cow/2.png", "+photo/cow/1.png"],
            ["The class cat of Toy is missing", "The class cow is no class", "photo: 3 images"],
        ),
    ],
)
def test_what_differs_from_the_declaration(
    root: Path, changes: list[str], errors: list[str]
) -> None:
    for change in changes:
        path = root / change[1:]
        if change.startswith("+"):
            write(root, change[1:])
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    report = check(open_images(root), TOY)
    assert len(report.errors) == len(errors)
    for found, expected in zip(report.errors, errors, strict=True):
        assert found.startswith(expected)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"classes": [], "class_count": 345, "class_counts": {}}, "2 classes; Toy has 345."),
        ({"class_counts": {}, "counts": {"art": 4, "photo": 5}}, "photo: 4 images; Toy has 5."),
    ],
)
def test_what_little_is_declared_is_compared(
    root: Path, changes: dict[str, object], error: str
) -> None:
    assert check(open_images(root), declare("toy", {**FIELDS, **changes})).errors == (error,)


def test_long_lists_are_cut_short(tmp_path: Path) -> None:
    classes = " ".join(f"c{number:02}" for number in range(30))
    write(tmp_path, *names("art", classes, 1), "photo/c00/0.png")
    for number in range(30):
        shutil.copy(tmp_path / "art/c00/0.png", tmp_path / f"photo/c00/copy{number:02}.png")
    alone, absent, repeated = check(open_images(tmp_path)).errors
    assert alone.startswith("There is one image only of c01 (art/c01/0.png), c02 (")
    assert "c11" not in alone
    assert absent.endswith("c09, c10 and 19 more, which other domains have.")
    assert "photo/c00/copy08.png and 21 more are the same" in repeated


def test_unreadable_images_are_named(root: Path) -> None:
    (root / "art/cat/0.png").write_bytes(b"no picture")
    data = (root / "photo/dog/1.png").read_bytes()
    (root / "photo/dog/1.png").write_bytes(data[:45])
    report = check(open_images(root), TOY)
    assert report.unreadable == ("art/cat/0.png", "photo/dog/1.png")
    assert [error.split(":")[0] for error in report.errors] == list(report.unreadable)


@pytest.mark.parametrize(
    ("copy", "error"),
    [
        ("art/cat/copy.bmp", None),
        ("art/dog/copy.bmp", "are the same image in different classes"),
        ("photo/cat/copy.bmp", "are the same image in different domains"),
        ("photo/dog/copy.bmp", "are the same image in different classes"),
    ],
)
def test_identical_pixels_are_found_whatever_the_format(
    root: Path, copy: str, error: str | None
) -> None:
    with Image.open(root / "art/cat/0.png") as picture:
        picture.save(root / copy)
    report = check(open_images(root))
    assert report.duplicates == (("art/cat/0.png", copy),)
    if error:
        assert report.notes == ()
        assert report.errors[0].startswith(f"art/cat/0.png and {copy} {error}")
    else:
        assert report.errors == ()
        assert report.notes[0].endswith(": 1 image.")


def test_same_bytes_in_another_shape_are_no_duplicates(tmp_path: Path) -> None:
    write(tmp_path, "a/x/1.png", "b/x/1.png")
    Image.new("RGB", (2, 8)).save(tmp_path / "a/x/wide.png")
    Image.new("RGB", (8, 2)).save(tmp_path / "a/x/high.png")
    assert check(open_images(tmp_path)).duplicates == ()


OTHERS = ("cat/1.gif", "cat/2.GIF", "dog/plain", "dog/3.ppm", "list.txt")
HIDDEN = (".DS_Store", "cat/._0.png", "__MACOSX/cat/x.txt")


def touch(folder: Path) -> None:
    for name in (*OTHERS, *HIDDEN):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_files_in_folders_and_archives_are_counted_alike(tmp_path: Path) -> None:
    write(tmp_path / "plain", *names("art", "cat dog", 1))
    touch(tmp_path / "plain/art")
    expected = {".gif": 2, "": 1, ".ppm": 1, ".txt": 1}
    assert count_passed_over(tmp_path / "plain") == expected
    for kind in ("tar", "zip"):
        (tmp_path / kind).mkdir()
    with tarfile.open(tmp_path / "tar/art.tar", "w") as tar:
        tar.add(tmp_path / "plain/art", ".")
    with zipfile.ZipFile(tmp_path / "zip/art.zip", "w") as archive:
        for file in (tmp_path / "plain/art").rglob("*"):
            archive.write(file, file.relative_to(tmp_path / "plain/art"))
    for kind in ("tar", "zip"):
        assert len(open_images(tmp_path / kind)) == 2
        assert count_passed_over(tmp_path / kind) == expected


def test_files_beside_the_domains_and_tables_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat", 1))
    (tmp_path / "README.md").write_text("")
    touch(tmp_path / ".git")
    table = tmp_path / "images.csv"
    table.write_text("path,class,domain\nart/cat/0.png,cat,art\n")
    assert not count_passed_over(tmp_path)
    assert not count_passed_over(table)


def test_the_note(root: Path) -> None:
    touch(root / "art")
    (note,) = check_path(root).notes
    assert note.endswith("none 1, .gif 2, .ppm 1, .txt 1; 5 files.")
