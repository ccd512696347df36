from pathlib import Path

import pytest

from bne.data.sources import open_images
from bne.errors import DataError
from tests.data.small import write


def table(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "images.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_paths_are_relative_to_the_table(tmp_path: Path, encoding: str) -> None:
    write(tmp_path, "pictures/1.png", "pictures/2.jpg")
    text = "class,path,weight,domain\r\ndog,pictures/1.png,3,b\r\n'cat',pictures/2.jpg,,a\r\n"
    images = open_images(table(tmp_path, text, encoding))
    assert images.domains == ("a", "b")
    assert images.classes == ("'cat'", "dog")
    assert [file.name for file in images.files] == [
        "a/'cat'/pictures/2.jpg",
        "b/dog/pictures/1.png",
    ]
    assert images.files[1].read() == (tmp_path / "pictures/1.png").read_bytes()


def test_stamp_changes_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, "1.png")
    path = table(tmp_path, "path,class,domain\n1.png,dog,a\n")
    before = open_images(path).files[0].stamp
    assert open_images(path).files[0].stamp == before
    (tmp_path / "1.png").write_bytes(b"longer than it was before" * 20)
    assert open_images(path).files[0].stamp != before


def test_a_missing_file_fails_when_it_is_read(tmp_path: Path) -> None:
    images = open_images(table(tmp_path, "path,class,domain\nno/1.png,dog,a\n"))
    with pytest.raises(DataError, match=r"no/1\.png: there is no such file"):
        images.files[0].read()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "file,label,domain\n1.png,dog,a\n",
            "needs the columns path, class, domain; found file",
        ),
        ("", "is empty, or its first line is; .* the columns path, class, domain"),
        ("\npath,class,domain\n1.png,dog,a\n", "is empty, or its first line is"),
        ("path,class,domain\n", "holds no images; add a line for each"),
        ("path,class,domain\n1.png,,a\n", "line 2: 'class' is empty"),
        ("path,class,domain\n\n1.png,dog\n", "line 3: 'domain' is empty"),
        ("path,class,domain\n/etc/1.png,dog,a\n", "line 2: the path '/etc/1.png' leads outside"),
        ("path,class,domain\na/../../1.png,dog,a\n", "line 2: .* leads outside"),
        (
            "path,class,domain\n1.png,dog,a\n2.png,dog,a\n1.png,dog,a\n",
            "lines 2 and 4: a/dog/1.png occurs twice; remove one",
        ),
        ("path;class;domain\n1.png;dog;a\n", "separated by semicolons; separate them by commas"),
        ("path,class,domain\n" + "x" * 200_000 + ",dog,a\n", "cannot be read as a UTF-8 CSV file"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        open_images(path)
    assert str(caught.value).startswith(str(path))


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "path,class,domain\né.png,dog,a\n", "latin-1")
    with pytest.raises(DataError, match="cannot be read as a UTF-8 CSV file"):
        open_images(path)
