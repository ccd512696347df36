import errno
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from bne.data import cache, decoding
from bne.data.cache import default_folder, prepare
from bne.data.images import ImageFile, ImageSet, decode, resize
from bne.data.sources import open_images
from bne.errors import DataError, SettingsError
from tests.data.small import names, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "set", *names("art photo", "cat dog", 3))
    return tmp_path / "set"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def reading(images: ImageSet, reads: list[str]) -> ImageSet:
    """The same images, whose reads are noted."""

    def noting(file: ImageFile) -> bytes:
        reads.append(file.name)
        return file.read()

    files = tuple(replace(file, read=partial(noting, file)) for file in images.files)
    return replace(images, files=files)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each preparation in this test has decoded."""
    counts: list[int] = []

    def counting(files, *rest):  # type: ignore[no-untyped-def]
        counts.append(len(files))
        return decoding.decode_to_file(files, *rest)

    monkeypatch.setattr(cache, "decode_to_file", counting)
    return counts


def stores(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("images-*")}


def test_pixels_are_those_of_decode_and_resize(data: Path, folder: Path) -> None:
    images = open_images(data)
    prepared = prepare(images, folder, 16)
    assert prepared.images == images
    assert prepared.pixels.shape == (12, 16, 16, 3)
    assert prepared.pixels.dtype == torch.uint8
    assert prepared.labels.tolist() == images.labels
    for row, file in zip(prepared.pixels, images.files, strict=True):
        expected = resize(decode(file.read(), file.name), 16).tobytes()
        assert bytes(row.flatten().tolist()) == expected


def test_opening_again_reads_nothing(data: Path, folder: Path, decodes: list[int]) -> None:
    first = prepare(open_images(data), folder, 16)
    reads: list[str] = []
    again = prepare(reading(open_images(data), reads), folder, 16)
    assert torch.equal(first.pixels, again.pixels)
    assert (reads, decodes) == ([], [12])


def test_new_stamps_with_old_contents_are_hashed_not_decoded(
    data: Path, folder: Path, decodes: list[int]
) -> None:
    first = prepare(open_images(data), folder, 16)
    os.utime(data / "art/cat/0.png", (1, 1))
    reads: list[str] = []
    again = prepare(reading(open_images(data), reads), folder, 16)
    assert (again.folder, decodes) == (first.folder, [12])
    assert len(reads) == 12
    prepare(reading(open_images(data), reads), folder, 16)
    assert len(reads) == 12


def test_a_changed_file_is_noticed(data: Path, folder: Path, decodes: list[int]) -> None:
    first = prepare(open_images(data), folder, 16)
    shutil.copy(data / "photo/dog/2.png", data / "art/cat/0.png")
    again = prepare(open_images(data), folder, 16)
    assert again.folder != first.folder
    assert decodes == [12, 12]
    assert torch.equal(again.pixels[0], again.pixels[-1])
    assert not torch.equal(first.pixels[0], first.pixels[-1])


def test_a_change_that_keeps_size_and_time_is_noticed(data: Path, folder: Path) -> None:
    """As archives and build systems leave files, which set the time themselves."""
    changed, other = data / "art/cat/0.png", data / "photo/dog/2.png"
    assert changed.stat().st_size == other.stat().st_size
    os.utime(changed, (0, 0))
    first = prepare(open_images(data), folder, 16)
    shutil.copy(other, changed)
    os.utime(changed, (0, 0))
    again = prepare(open_images(data), folder, 16)
    assert torch.equal(again.pixels[0], again.pixels[-1])
    assert not torch.equal(first.pixels[0], again.pixels[0])


def test_another_size_fit_or_decoder_is_another_store(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(open_images(data), folder, 16)
    prepare(open_images(data), folder, 17)
    assert len(stores(folder)) == 2
    assert prepare(open_images(data), folder, 17, fit="letterbox").fit == "letterbox"
    assert len(stores(folder)) == 3
    monkeypatch.setattr("PIL.__version__", "0.0")
    prepare(open_images(data), folder, 16)
    assert len(stores(folder)) == 4


def test_labels_come_from_the_caller_not_from_the_store(
    data: Path, folder: Path, decodes: list[int]
) -> None:
    images = open_images(data)
    prepare(images, folder, 16)
    relabelled = replace(images, files=tuple(replace(f, label=1) for f in images.files))
    assert prepare(relabelled, folder, 16).labels.tolist() == [1] * 12
    assert decodes == [12]


def test_writing_to_the_pixels_leaves_the_cache_alone(data: Path, folder: Path) -> None:
    prepared = prepare(open_images(data), folder, 16)
    before = (prepared.folder / "pixels.u8").read_bytes()
    prepared.pixels.zero_()
    assert (prepared.folder / "pixels.u8").read_bytes() == before


def test_all_bad_images_are_listed_and_nothing_stays(data: Path, folder: Path) -> None:
    (data / "art/cat/1.png").write_bytes(b"not an image")
    (data / "photo/dog/0.png").write_bytes(b"")
    with pytest.raises(DataError, match="2 of 12 images cannot be read") as caught:
        prepare(open_images(data), folder, 16)
    assert "art/cat/1.png" in str(caught.value)
    assert "photo/dog/0.png" in str(caught.value)
    assert stores(folder) == set()
    assert not (folder / "partial").exists()


def test_bad_images_can_be_skipped(data: Path, folder: Path, decodes: list[int]) -> None:
    good = prepare(open_images(data), folder, 16)
    (data / "art/cat/1.png").write_bytes(b"not an image")
    (data / "photo/dog/2.png").write_bytes(b"")
    prepared = prepare(open_images(data), folder, 16, skip_bad=True)
    kept = [0, *range(2, 11)]
    assert [f.name for f in prepared.images.files] == [good.images.files[i].name for i in kept]
    assert torch.equal(prepared.pixels, good.pixels[kept])
    skipped = [problem.split(":")[0] for problem in prepared.skipped]
    assert skipped == ["art/cat/1.png", "photo/dog/2.png"]
    again = prepare(open_images(data), folder, 16, skip_bad=True)
    assert (again.skipped, decodes) == (prepared.skipped, [12, 12])
    with pytest.raises(DataError, match="2 of 12 images cannot be read"):
        prepare(open_images(data), folder, 16)


def test_another_copy_shows_its_own_names(
    data: Path, folder: Path, tmp_path: Path, decodes: list[int]
) -> None:
    (data / "art/cat/1.png").write_bytes(b"not an image")
    (data / "photo/dog/2.png").unlink()
    (data / "photo/dog/2.png").symlink_to("nowhere")
    first = prepare(open_images(data), folder, 16, skip_bad=True)
    copy = tmp_path / "copy"
    shutil.copytree(data, copy, symlinks=True)
    (copy / "art").rename(copy / "bart")
    second = prepare(open_images(copy), folder, 16, skip_bad=True)
    assert decodes == [12]
    assert torch.equal(first.pixels, second.pixels)
    for prepared, bad in ((first, "art/cat/1.png"), (second, "bart/cat/1.png")):
        assert prepared.skipped[0].startswith(f"{bad}: the file is not a JPEG")
    assert second.skipped[1].startswith(f"{copy}/photo/dog/2.png: there is no such file")
    with pytest.raises(DataError, match=r"\n  bart/cat/1\.png: the file is not"):
        prepare(open_images(copy), folder, 16)


def test_an_unreadable_image_is_looked_for_again(data: Path, folder: Path) -> None:
    whole = open_images(data)

    def gone() -> bytes:
        raise DataError("art/cat/0.png: cannot be read.")

    broken = replace(whole, files=(replace(whole.files[0], read=gone), *whole.files[1:]))
    assert len(prepare(broken, folder, 16, skip_bad=True)) == 11
    assert len(prepare(whole, folder, 16)) == 12  # the same stamps


def test_only_bad_images_or_none_at_all_are_an_error(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in data.rglob("*.png"):
        path.write_bytes(b"")
    monkeypatch.setattr("bne.data.cache.MOST_LISTED", 3)
    message = (
        r"^12 of 12 images cannot be read; mend at least some.*(\n  .*png: .*){3}\n  and 9 more.$"
    )
    with pytest.raises(DataError, match=message):
        prepare(open_images(data), folder, 16, skip_bad=True)
    with pytest.raises(DataError, match="no images"):
        prepare(ImageSet(("a",), ("b",), ()), folder)


def test_an_interruption_leaves_nothing_and_leftovers_go(
    data: Path, folder: Path, decodes: list[int]
) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(open_images(data), folder, 16, progress=interrupt)
    assert {path.name for path in folder.iterdir()} <= {"lock"}
    (folder / "partial").mkdir()  # what a killed process leaves
    (folder / "partial" / "pixels.u8").write_bytes(b"half")
    assert len(prepare(open_images(data), folder, 16)) == 12
    assert not (folder / "partial").exists()
    assert decodes == [12, 12]


def flipped(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("pixels.u8", damage) for damage in (lambda old: old[:100], flipped)),
        *(("store.json", lambda _, new=new: new) for new in (b"", b"\xff", b"[]", b"[" * 10**5)),
        ("store.json", lambda old: old.replace(b'"gaps": []', b'"gaps": 7')),
        ("checked", lambda _: b"\xff"),
        ("../stamps/*", lambda _: b"\xff"),
    ],
)
def test_a_damaged_store_is_made_again(
    data: Path, folder: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    first = prepare(open_images(data), folder, 16)
    expected = first.pixels.clone()
    (path,) = first.folder.glob(name)
    times = path.stat()
    path.write_bytes(damage(path.read_bytes()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert torch.equal(prepare(open_images(data), folder, 16).pixels, expected)


def test_pixels_are_summed_up_only_when_their_file_is_another(
    data: Path, folder: Path, tmp_path: Path, decodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = []
    really = cache.checksum
    monkeypatch.setattr(cache, "checksum", lambda path: sums.append(path) or really(path))
    for place in (folder, folder, tmp_path / "moved", tmp_path / "moved"):
        if place != folder and not place.exists():
            shutil.copytree(folder, place)
        prepare(open_images(data), place, 16)
    assert (len(sums), decodes) == (2, [12])


def test_a_checksum_tells_the_place_of_blocks(tmp_path: Path) -> None:
    first, second = (bytes([number]) * cache.BLOCK for number in (1, 2))
    found = set()
    for content in (first + second, second + first, first, first + second[:-1]):
        (tmp_path / "file").write_bytes(content)
        found.add(cache.checksum(tmp_path / "file"))
    assert len(found) == 4


def test_the_stamp_of_other_images_is_not_followed(data: Path, folder: Path) -> None:
    prepare(open_images(data), folder, 16)
    (stamp,) = (folder / "stamps").iterdir()
    other = write(data.parent / "other", *names("art", "cat dog", 2))
    prepare(open_images(other), folder, 16)
    (theirs,) = set((folder / "stamps").iterdir()) - {stamp}
    shutil.copy(theirs, stamp)
    assert len(prepare(open_images(data), folder, 16).pixels) == 12


UNGUARDED = """
import multiprocessing, sys
from bne.data import open_images
from bne.data.cache import prepare

multiprocessing.set_start_method("spawn")  # as on systems without fork
print(len(prepare(open_images(sys.argv[1]), sys.argv[2], 16)))
"""


def test_a_script_needs_no_guard(data: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    command = [sys.executable, str(tmp_path / "script.py"), str(data), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr


SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background takes away
from bne.data.cache import prepare
from bne.data.images import ImageFile, ImageSet

def read():
    os.write(1, b"reading\\n")  # in one piece, though threads do it at once
    time.sleep(0.2)
    return b""

files = tuple(ImageFile(str(i), 0, 0, read, "") for i in range(10_000))
prepare(ImageSet(("a",), ("b",), files), sys.argv[1], 16)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_preparation_that_is_ended_does_not_block_the_next(
    data: Path, folder: Path, end: signal.Signals
) -> None:
    command = [sys.executable, "-c", SLOW, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        for _ in range(6):  # by then all threads have started, which Python cannot interrupt well
            assert victim.stdout.readline().startswith(b"reading")
        victim.send_signal(end)
        _, errors = victim.communicate(timeout=60)
    assert victim.returncode == -end
    assert (b"KeyboardInterrupt" in errors) is (end == signal.SIGINT)
    assert (folder / "partial").exists() is (end == signal.SIGKILL)
    following = multiprocessing.get_context("fork").Process(
        target=prepare, args=(open_images(data), folder, 16)
    )
    following.start()
    following.join(60)
    following.kill()
    assert following.exitcode == 0
    assert not (folder / "partial").exists()


def _prepare_in_process(data: Path, folder: Path, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    results.put(int(prepare(open_images(data), folder, 16).pixels.sum()))  # type: ignore[attr-defined]


def test_processes_at_once_make_one_sound_store(data: Path, folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(3), context.Queue()
    workers = [
        context.Process(target=_prepare_in_process, args=(data, folder, start, results))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    sums = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert sums == [int(prepare(open_images(data), folder, 16).pixels.sum())] * 3
    assert len(stores(folder)) == 1


def test_too_little_room_is_said_before_anything_is_decoded(
    data: Path, folder: Path, decodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
    with pytest.raises(DataError, match=r"cache: the disk is too full .* need 1\.97 GB"):
        prepare(replace(open_images(data), files=open_images(data).files * 835), folder)
    assert decodes == []


def test_a_disk_that_fills_up_is_one_clear_error(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(decoding, "resized", full)
    with pytest.raises(DataError, match="the disk is too full"):
        prepare(open_images(data), folder, 16)
    assert {path.name for path in folder.iterdir()} <= {"lock"}


def test_a_folder_that_cannot_be_made_is_one_clear_error(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/cache: the cache cannot be written .*BNE_CACHE"):
        prepare(open_images(data), tmp_path / "file" / "cache", 16)


def test_a_cache_that_cannot_be_written_serves_what_it_holds(
    data: Path, folder: Path, tmp_path: Path, decodes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(open_images(data), folder, 16)
    shutil.copytree(data, tmp_path / "copy")  # the same contents under new stamps
    write(tmp_path / "other", *names("art photo", "cat dog", 3))
    really_open = io.open

    def read_only(file, mode="r", *rest, **options):  # type: ignore[no-untyped-def]
        if Path(file).is_relative_to(folder) and set(mode) & set("wax+"):
            raise OSError(errno.EROFS, "Read-only file system")
        return really_open(file, mode, *rest, **options)

    monkeypatch.setattr(io, "open", read_only)  # a superuser may write to any folder
    again = prepare(open_images(tmp_path / "copy"), folder, 16)
    assert (again.folder, decodes) == (first.folder, [12])
    with pytest.raises(DataError, match=r"cannot be written \(Read-only file system\)"):
        prepare(open_images(tmp_path / "other"), folder, 16)


def test_a_size_must_be_positive(data: Path, folder: Path) -> None:
    with pytest.raises(SettingsError, match="size=0 is no size"):
        prepare(open_images(data), folder, 0)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BNE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "bne"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "bne"
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine"


def test_notes_are_plain_json(data: Path, folder: Path) -> None:
    prepared = prepare(open_images(data), folder, 16)
    notes = json.loads((prepared.folder / "store.json").read_text())
    assert (notes["files"], notes["gaps"]) == (12, [])
    assert "16x16" in notes["recipe"]
