import contextlib
import io
import os
import pickle
import random
import tarfile
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from bne.data.archives import list_tar, list_zip
from bne.errors import DataError
from tests.data.small import png


def make_tar(path: Path, members: list[tarfile.TarInfo], data: bytes = b"", **options: int) -> Path:
    with tarfile.open(path, "w", **options) as tar:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))
    return path


def files(tmp_path: Path) -> dict[str, bytes]:
    long_name = "dog/" + "x" * 150 + ".png"  # needs an extended header
    wanted = {"cat/1.png": png(), "dog/2.png": png() * 50, long_name: png(), "./dog/é.JPG": png()}
    for i, data in enumerate(wanted.values()):
        (tmp_path / str(i)).write_bytes(data)
    return wanted


def add_clutter(tmp_path: Path) -> list[tuple[Path, str]]:
    (tmp_path / "clutter").write_bytes(b"not an image")
    names = [".DS_Store", "dog/._2.png", "dog/Thumbs.db", "__MACOSX/dog/2.png", "README.txt"]
    return [(tmp_path / "clutter", name) for name in names]


def packed(tmp_path: Path, kind: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What was packed, and what is read back, by the name of the file."""
    wanted = files(tmp_path)
    clutter = add_clutter(tmp_path)
    archive = tmp_path / "archive"
    if kind in ("gnu", "pax"):
        options = {"format": tarfile.GNU_FORMAT if kind == "gnu" else tarfile.PAX_FORMAT}
        with tarfile.open(archive, "w", **options) as tar:
            for i, name in enumerate(wanted):
                tar.add(tmp_path / str(i), name)
            for path, name in clutter:
                tar.add(path, name)
        entries = list(list_tar(archive, "photo"))
    else:
        method = zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(archive, "w", method) as file:
            file.mkdir("dog")
            for i, name in enumerate(wanted):
                file.write(tmp_path / str(i), name)
            for path, name in clutter:
                file.write(path, name)
        entries = list(list_zip(archive, "photo"))
    assert {entry.domain for entry in entries} == {"photo"}
    assert len({entry.stamp for entry in entries}) == len(entries)
    return (
        {name.removeprefix("./"): data for name, data in wanted.items()},
        {f"{entry.class_name}/{entry.file}": entry.read() for entry in entries},
    )


@pytest.mark.parametrize("kind", ["gnu", "pax", "stored", "deflated"])
def test_members_are_read_as_packed_and_clutter_is_passed_over(tmp_path: Path, kind: str) -> None:
    wanted, found = packed(tmp_path, kind)
    assert found == wanted


def test_reading_from_processes_and_threads(tmp_path: Path) -> None:
    contents = [png() * (i + 1) for i in range(40)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for i, data in enumerate(contents):
            file.writestr(f"dog/{i:02}.png", data)
    readers = [entry.read for entry in list_zip(tmp_path / "a.zip", "a")]
    assert pickle.loads(pickle.dumps(readers[3]))() == contents[3]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(_call, readers * 5)) == contents * 5
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as processes:
        assert list(processes.map(_call, readers)) == contents


def _call(read: object) -> bytes:
    return read()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (member("../dog/x.png"), "leads outside"),
        (member("dog/../../x.png"), "leads outside"),
        (member("/dog/x.png"), "leads outside"),
        (member("C:\\dog\\x.png"), "leads outside"),
        (member("..\\x.png"), "leads outside"),
        (member("c:..\\x.png"), "leads outside"),
        (member("\\\\server\\share\\x.png"), "leads outside"),
        (member("dog/x.png", tarfile.SYMTYPE, "/etc/passwd"), "is a link or a device"),
        (member("dog/x.png", tarfile.LNKTYPE, "dog/y.png"), "is a link or a device"),
        (member("dog/x.png", tarfile.CHRTYPE), "is a link or a device"),
        (member("dog/x.png", tarfile.FIFOTYPE), "is a link or a device"),
        (member("notes.txt", tarfile.SYMTYPE, "dog"), "is a link or a device"),
        (member("photo/dog/x.png"), "'photo/dog/x.png' is not class/image"),
        (member("x.png"), "'x.png' is not class/image"),
    ],
)
def test_bad_tar_members_are_refused(tmp_path: Path, bad: tarfile.TarInfo, message: str) -> None:
    archive = make_tar(tmp_path / "photo.tar", [member("dog/1.png"), bad], png())
    with pytest.raises(DataError, match=message) as caught:
        list(list_tar(archive, "photo"))
    assert str(caught.value).startswith(str(archive))


@pytest.mark.parametrize("name", ["../dog/x.png", "/dog/x.png", "dog/../../x.png", "C:/dog/x.png"])
def test_zip_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(name, png())
    with pytest.raises(DataError, match="leads outside"):
        list(list_zip(tmp_path / "a.zip", "a"))


@pytest.mark.skipif(os.name == "nt", reason="c: is a drive")
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_folder_may_have_a_name_that_is_a_drive_elsewhere(tmp_path: Path, kind: str) -> None:
    archive, data = tmp_path / f"a.{kind}", png()
    if kind == "tar":
        make_tar(archive, [member("c:d/e.png")], data)
    else:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("c:d/e.png", data)
    (entry,) = list_tar(archive, "a") if kind == "tar" else list_zip(archive, "a")
    assert (entry.class_name, entry.file, entry.read()) == ("c:d", "e.png", data)


def test_zip_links_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("dog/x.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        list(list_zip(tmp_path / "a.zip", "a"))


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dog/x.bmp", bytes(20_000_000))
    with pytest.raises(DataError, match=r"'dog/x.bmp' unpacks from 19\.\d\d kB to 20\.00 MB"):
        list(list_zip(tmp_path / "a.zip", "a"))


def test_a_zip_member_never_unpacks_beyond_its_declared_size(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dog/x.bmp", bytes(5_000_000))
        file.getinfo("dog/x.bmp").file_size = 1000  # the directory, written on closing, lies
    (entry,) = list_zip(tmp_path / "a.zip", "a")
    with pytest.raises(DataError, match=r"'dog/x.bmp' is damaged"):
        entry.read()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_zip_methods_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as file:
        file.writestr("dog/x.png", png())
    with pytest.raises(DataError, match="packed by a rare method"):
        list(list_zip(tmp_path / "a.zip", "a"))


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 and nothing more")
    with pytest.raises(DataError, match="no zip or damaged"):
        list(list_zip(tmp_path / "a.zip", "a"))
    (tmp_path / "a.tar").write_bytes(b"x" * 2000)
    with pytest.raises(DataError, match="no plain tar or damaged"):
        list(list_tar(tmp_path / "a.tar", "a"))


def test_a_tar_that_ends_or_breaks_half_way_is_refused(tmp_path: Path) -> None:
    whole = make_tar(
        tmp_path / "a.tar", [member(f"dog/{i}.png") for i in range(4)], b"1" * 1024
    ).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: 512 * 5])
    with pytest.raises(DataError, match="damaged"):
        list(list_tar(tmp_path / "cut.tar", "a"))
    broken = bytearray(whole)
    broken[512 * 3 : 512 * 3 + 8] = b"\xff" * 8  # the second header
    (tmp_path / "broken.tar").write_bytes(broken)
    with pytest.raises(DataError, match="damaged at byte 1536"):
        list(list_tar(tmp_path / "broken.tar", "a"))


def test_damaged_zip_members_are_found_on_reading(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("dog/x.png", png())
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[60] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    (entry,) = list_zip(tmp_path / "a.zip", "a")
    with pytest.raises(DataError, match=r"'dog/x\.png' is damaged"):
        entry.read()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_any_damage_is_a_data_error_or_does_no_harm(tmp_path: Path, kind: str) -> None:
    archive = tmp_path / f"a.{kind}"
    if kind == "tar":
        make_tar(archive, [member(f"dog/{i}.png") for i in range(3)], png())
    else:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            for i in range(3):
                file.writestr(f"dog/{i}.png", png())
    whole = archive.read_bytes()
    generator = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(3):
            data[generator.randrange(min(len(data), 4000))] = generator.randrange(256)
        archive.write_bytes(data)
        with contextlib.suppress(DataError):
            for entry in list_tar(archive, "a") if kind == "tar" else list_zip(archive, "a"):
                entry.read()
