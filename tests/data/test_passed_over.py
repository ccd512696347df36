import tarfile
import zipfile
from pathlib import Path

from bne.data.entries import count_passed_over, describe
from bne.data.sources import open_images
from tests.data.small import names, write

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


def test_the_sentence(tmp_path: Path) -> None:
    touch(tmp_path / "art")
    found = count_passed_over(tmp_path)
    assert describe(found) == (
        "5 files are passed over, by extension: none 1, .gif 2, .ppm 1, .txt 1."
    )
    one = type(found)({".gif": 1})
    assert describe(one) == "1 file is passed over, by extension: .gif 1."
