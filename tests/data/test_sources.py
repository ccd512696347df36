import os
import shutil
import tarfile
from pathlib import Path

import pytest
from torchvision.datasets import ImageFolder

from bne.data.images import decode
from bne.data.sources import open_images
from bne.errors import DataError
from tests.data.small import names, png, write


def pack(root: Path, kind: str) -> None:
    """Packs every domain folder below `root` and removes it."""
    for domain in sorted(root.iterdir()):
        shutil.make_archive(str(domain), kind, domain)
        shutil.rmtree(domain)


def test_a_folder_is_what_torchvision_finds_in_each_domain(tmp_path: Path) -> None:
    write(tmp_path, *names("photo sketch", "cat dog", 3), "photo/dog/upper.PNG")
    images = open_images(tmp_path)
    for number, domain in enumerate(images.domains):
        theirs = ImageFolder(str(tmp_path / domain))
        ours = [images.files[i] for i in images.indices_of([domain])]
        assert list(images.classes) == theirs.classes
        assert [(str(tmp_path / file.name), file.label) for file in ours] == theirs.samples
        assert {file.domain for file in ours} == {number}
        for file, (picture, _) in zip(ours, theirs, strict=True):
            assert decode(file.read(), file.name).tobytes() == picture.tobytes()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_archives_hold_what_the_folder_held(tmp_path: Path, kind: str) -> None:
    write(tmp_path, *names("photo sketch", "cat dog", 3))
    before = {
        file.name: (file.label, file.domain, file.read()) for file in open_images(tmp_path).files
    }
    pack(tmp_path, kind)
    images = open_images(str(tmp_path))
    assert {f.name: (f.label, f.domain, f.read()) for f in images.files} == before


def test_stamp_changes_with_the_archive(tmp_path: Path) -> None:
    write(tmp_path, *names("photo", "cat", 2))
    pack(tmp_path, "tar")
    before = [file.stamp for file in open_images(tmp_path).files]
    assert [file.stamp for file in open_images(tmp_path).files] == before
    os.utime(tmp_path / "photo.tar", (1, 1))
    assert not set(before) & {file.stamp for file in open_images(tmp_path).files}


def test_hidden_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "a/dog/1.png", "b/dog/1.png")
    write(tmp_path, ".DS_Store", "split.csv", "preview.png", ".cache/dog/1.png")
    write(tmp_path / "a", ".DS_Store", "notes.txt", "dog/._1.png", "dog/Thumbs.db", "dog/1.txt")
    assert [file.name for file in open_images(tmp_path).files] == ["a/dog/1.png", "b/dog/1.png"]


def test_linked_folders_of_ones_own_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "real", "dog/1.png")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/photo").symlink_to(tmp_path / "real")
    assert [file.name for file in open_images(tmp_path / "root").files] == ["photo/dog/1.png"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([], ": holds no images"),
        (["readme.txt"], ": holds no images"),
        (["a/dog/1.png", "b/dog/1.txt"], "b: holds no JPEG, .* images; fill or remove it"),
        (["a/images/dog/1.png"], "a/images/dog: out of place"),
        (["a/dog/1.png", "a/2.png"], "a/2.png: out of place"),
        (["a/dog/1.png", "b.tar.gz"], "b.tar.gz: cannot be read in place"),
        (["a/dog/1.png", "b.tar"], "b.tar: no plain tar"),
        (["a/dog/1.png", "b.zip"], "b.zip: no zip"),
    ],
)
def test_what_is_no_dataset_is_refused(tmp_path: Path, written: list[str], message: str) -> None:
    write(tmp_path, *written)
    with pytest.raises(DataError, match=message):
        open_images(tmp_path)


def test_a_domain_given_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a/dog/1.png")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a/dog/1.png", "dog/1.png")
    with pytest.raises(DataError, match="the domain 'a' is there twice"):
        open_images(tmp_path)


def test_paths_that_are_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file or folder"):
        open_images(tmp_path / "nowhere")
    (tmp_path / "one.png").write_bytes(png())
    with pytest.raises(DataError, match="not a folder or a CSV file"):
        open_images(tmp_path / "one.png")
    with pytest.raises(DataError, match="an object of type int"):
        open_images(3)


def test_pacs_in_its_archives(shared: Path) -> None:
    images = open_images(shared / "data/pacs")
    assert images.domains == ("art_painting", "cartoon", "photo", "sketch")
    assert len(images) == 9991
    file = images.files[images.indices_of(["sketch"])[100]]
    domain, member = file.name.split("/", 1)
    with tarfile.open(shared / f"data/pacs/{domain}.tar") as tar:
        extracted = tar.extractfile(member)
        assert extracted is not None
        assert file.read() == extracted.read()


def test_a_broken_link_is_listed_and_fails_by_name(tmp_path: Path) -> None:
    write(tmp_path, "art/cat/0.png", "photo/cat/0.png")
    (tmp_path / "art/cat/1.png").symlink_to(tmp_path / "nowhere.png")
    broken = open_images(tmp_path).files[1]
    assert broken.name == "art/cat/1.png"
    with pytest.raises(DataError, match=r"1\.png: there is no such file"):
        broken.read()


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
    found = [file.name for file in images.files]
    assert found == ["a/'cat'/pictures/2.jpg", "b/dog/pictures/1.png"]
    assert images.files[1].read() == (tmp_path / "pictures/1.png").read_bytes()


def test_the_stamp_of_a_listed_file_changes_with_it(tmp_path: Path) -> None:
    write(tmp_path, "1.png")
    path = table(tmp_path, "path,class,domain\n1.png,dog,a\n")
    before = open_images(path).files[0].stamp
    assert open_images(path).files[0].stamp == before
    (tmp_path / "1.png").write_bytes(b"longer than it was before" * 20)
    assert open_images(path).files[0].stamp != before


def test_a_missing_listed_file_fails_when_it_is_read(tmp_path: Path) -> None:
    images = open_images(table(tmp_path, "path,class,domain\nno/1.png,dog,a\n"))
    with pytest.raises(DataError, match=r"no/1\.png: there is no such file"):
        images.files[0].read()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label,domain\n1.png,dog,a\n", "needs the columns path, class, domain; found file"),
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
