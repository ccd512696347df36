import contextlib
import io
import os
import pickle
import random
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bne.data.archives import list_archive, members
from bne.data.entries import Entry
from bne.errors import DataError
from tests.data.small import png

KINDS = ["tar", "zip"]


def pack(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED, **tar: int) -> Path:
    """Packs a tar or a zip, by the ending of the path."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.mkdir("dog")
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w", **tar) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def entries(archive: Path) -> list[Entry]:
    return list(list_archive(archive, "photo"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gnu.tar", {"format": tarfile.GNU_FORMAT}),
        ("pax.tar", {"format": tarfile.PAX_FORMAT}),
        ("stored.zip", {}),
        ("deflated.zip", {"method": zipfile.ZIP_DEFLATED}),
    ],
)
def test_members_are_read_as_packed_and_clutter_is_passed_over(
    tmp_path: Path, name: str, options: dict[str, int]
) -> None:
    long_name = "dog/" + "x" * 150 + ".png"  # needs an extended header in a tar
    wanted = {"cat/1.png": png(), "dog/2.png": png() * 50, long_name: png(), "./dog/é.JPG": png()}
    clutter = [".DS_Store", "dog/._2.png", "dog/Thumbs.db", "__MACOSX/dog/2.png", "README.txt"]
    files = {**wanted, **dict.fromkeys(clutter, b"not an image")}
    found = entries(pack(tmp_path / name, files, **options))
    assert {entry.domain for entry in found} == {"photo"}
    assert len({entry.stamp for entry in found}) == len(found)
    read = {f"{entry.class_name}/{entry.file}": entry.read() for entry in found}
    assert read == {name.removeprefix("./"): data for name, data in wanted.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_reading_from_threads_and_in_another_process(tmp_path: Path, kind: str) -> None:
    contents = [png() * (i + 1) for i in range(40)]
    files = {f"dog/{i:02}.png": data for i, data in enumerate(contents)}
    found = entries(pack(tmp_path / f"a.{kind}", files, zipfile.ZIP_DEFLATED))
    assert pickle.loads(pickle.dumps(found[3].read))() == contents[3]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda entry: entry.read(), found * 5)) == contents * 5


OUTSIDE = ["../dog/x.png", "dog/../../x.png", "/dog/x.png", "C:\\dog\\x.png", "..\\x.png"]
OUTSIDE += ["c:..\\x.png", "\\\\server\\share\\x.png", "C:/dog/x.png"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OUTSIDE)
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    archive = pack(tmp_path / f"a.{kind}", {"dog/1.png": png(), name: png()})
    with pytest.raises(DataError, match="leads outside") as caught:
        entries(archive)
    assert str(caught.value).startswith(str(archive))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["photo/dog/x.png", "x.png"])
def test_members_that_are_not_class_and_image_are_refused(
    tmp_path: Path, name: str, kind: str
) -> None:
    with pytest.raises(DataError, match=f"'{name}' is not class/image"):
        entries(pack(tmp_path / f"a.{kind}", {name: png()}))
    (member,) = members(tmp_path / f"a.{kind}")  # which is an image all the same
    assert (member.path.as_posix(), member.read()[:4]) == (name, b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("dog/x.png", tarfile.SYMTYPE, "/etc/passwd"),
        ("dog/x.png", tarfile.LNKTYPE, "dog/y.png"),
        ("dog/x.png", tarfile.CHRTYPE, ""),
        ("dog/x.png", tarfile.FIFOTYPE, ""),
        ("notes.txt", tarfile.SYMTYPE, "dog"),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(
    tmp_path: Path, name: str, kind: bytes, target: str
) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(info)
    with pytest.raises(DataError, match="is a link or a device"):
        entries(tmp_path / "a.tar")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("dog/x.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        entries(tmp_path / "a.zip")


@pytest.mark.skipif(os.name == "nt", reason="c: is a drive")
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_may_have_a_name_that_is_a_drive_elsewhere(tmp_path: Path, kind: str) -> None:
    data = png()
    (entry,) = entries(pack(tmp_path / f"a.{kind}", {"c:d/e.png": data}))
    assert (entry.class_name, entry.file, entry.read()) == ("c:d", "e.png", data)


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    bomb = pack(tmp_path / "a.zip", {"dog/x.bmp": bytes(20_000_000)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match=r"'dog/x.bmp' unpacks from 19\.\d\d kB to 20\.00 MB"):
        entries(bomb)


def test_a_zip_member_never_unpacks_beyond_its_declared_size(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("dog/x.bmp", bytes(5_000_000))
        file.getinfo("dog/x.bmp").file_size = 1000  # the directory, written on closing, lies
    (entry,) = entries(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"'dog/x.bmp' is damaged"):
        entry.read()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_zip_methods_are_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(DataError, match="packed by a rare method"):
        entries(pack(tmp_path / "a.zip", {"dog/x.png": png()}, method))


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    contents = {
        "a.zip": (b"PK\3\4 and nothing more", "no zip or damaged"),
        "a.tar": (b"x" * 2000, "no plain tar or damaged"),
    }
    whole = pack(tmp_path / "whole.tar", {f"dog/{i}.png": b"1" * 1024 for i in range(4)})
    contents["cut.tar"] = whole.read_bytes()[: 512 * 5], "damaged"
    broken = bytearray(whole.read_bytes())
    broken[512 * 3 : 512 * 3 + 8] = b"\xff" * 8  # the second header
    contents["broken.tar"] = bytes(broken), "damaged at byte 1536"
    for name, (content, message) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            entries(tmp_path / name)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_zip_members_are_found_on_reading(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as file:
        file.writestr("dog/x.png", png())
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[60] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(data)
    (entry,) = entries(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"'dog/x\.png' is damaged"):
        entry.read()


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_is_a_data_error_or_does_no_harm(tmp_path: Path, kind: str) -> None:
    files = {f"dog/{i}.png": png() for i in range(3)}
    archive = pack(tmp_path / f"a.{kind}", files, zipfile.ZIP_DEFLATED)
    whole = archive.read_bytes()
    generator = random.Random(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(3):
            data[generator.randrange(min(len(data), 4000))] = generator.randrange(256)
        archive.write_bytes(data)
        with contextlib.suppress(DataError):
            for entry in entries(archive):
                entry.read()
