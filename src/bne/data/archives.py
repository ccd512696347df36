"""Images inside `.tar` and `.zip` archives, read in place: nothing is ever extracted."""

from __future__ import annotations

import stat
import struct
import tarfile
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bne.data.entries import MAX_BYTES, Entry, inner_path, is_image, read_slice, stamp_of
from bne.errors import DataError
from bne.words import readable_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path, PurePath

# A member that unpacks to this many times its size, and to more than a photograph, is an attack.
MAX_RATIO = 100
RATIO_MATTERS_FROM = 16_000_000


class Member(NamedTuple):
    """A file in an archive; `read` and `stamp` are an `ImageFile`'s."""

    path: PurePath
    read: Callable[[], bytes]
    stamp: str


def members(archive: Path) -> Iterator[Member]:
    """The images of a plain tar or a zip, wherever in it they lie; anything else is passed over.

    Raises:
        DataError: As `every_member`.
    """
    return (m for m in every_member(archive) if is_image(m.path, m.read))


def every_member(archive: Path) -> Iterator[Member]:
    """All files of a plain tar or a zip.

    Raises:
        DataError: The file is no uncompressed tar or zip, or is damaged; or a member is neither a
            file nor a folder, leads outside, is encrypted, is neither stored nor deflated, or
            unpacks to an absurd size.
    """
    found = _tar_members if archive.suffix.lower() == ".tar" else _zip_members
    return found(archive)


def list_archive(archive: Path, domain: str) -> Iterator[Entry]:
    """The images of a plain tar or a zip whose members are `class/image`.

    Raises:
        DataError: As `members`; also when a member is not `class/image`.
    """
    for path, read, stamp in members(archive):
        if len(path.parts) != 2:
            raise DataError(
                f"{archive}: the member {path.as_posix()!r} is not class/image; pack the class "
                "folders themselves, as by `tar -cf domain.tar -C domain .`."
            )
        yield Entry(domain, path.parts[0], path.parts[1], read, stamp)


def _tar_members(archive: Path) -> Iterator[Member]:
    stamp = stamp_of(archive)
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                path = inner_path(member.name, str(archive))
                if member.isdir():
                    continue
                if not member.isfile() or member.issparse():
                    raise _not_a_file(archive, member.name)
                read = partial(read_slice, str(archive), member.offset_data, member.size)
                yield Member(path, read, f"{stamp}:{member.offset_data}")
            _check_end(tar, archive)
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise DataError(f"{archive}: no plain tar or damaged ({error}); pack it anew.") from error


def _zip_members(archive: Path) -> Iterator[Member]:
    stamp = stamp_of(archive)
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise DataError(f"{archive}: no zip or damaged ({error}); pack it anew.") from error
    for member in members:
        path = inner_path(member.filename, str(archive))
        if member.filename.endswith("/"):
            continue
        _check_zip_member(archive, member)
        read = partial(read_zip_member, str(archive), member)
        yield Member(path, read, f"{stamp}:{member.header_offset}")


def read_zip_member(archive: str, member: zipfile.ZipInfo) -> bytes:
    """The bytes of one member, found without parsing the directory again, checked by their CRC."""
    header = read_slice(archive, member.header_offset, 30)
    name_length, extra_length = struct.unpack("<HH", header[26:])
    start = member.header_offset + 30 + name_length + extra_length
    data = read_slice(archive, start, member.compress_size)
    if member.compress_type == zipfile.ZIP_DEFLATED:
        try:  # never unpacks more than the size the directory promised
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            data = unpacker.decompress(data, member.file_size + 1)
        except zlib.error:
            data = b""
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise DataError(f"{archive}: the member {member.filename!r} is damaged; pack it again.")
    return data


def _check_zip_member(archive: Path, member: zipfile.ZipInfo) -> None:
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        raise _not_a_file(archive, member.filename)
    plain = not member.flag_bits & 1
    if not (plain and member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
        raise DataError(
            f"{archive}: the member {member.filename!r} is encrypted or packed by a rare method;"
            " pack it again, stored or deflated."
        )
    limit = max(RATIO_MATTERS_FROM, min(MAX_BYTES, MAX_RATIO * member.compress_size))
    if member.file_size > limit:
        raise DataError(
            f"{archive}: the member {member.filename!r} unpacks from"
            f" {readable_size(member.compress_size)} to {readable_size(member.file_size)}, which no"
            " photograph does; remove it."
        )


def _check_end(tar: tarfile.TarFile, archive: Path) -> None:
    """Refuses a tar that goes on after a damaged header, at which tarfile stops in silence."""
    with archive.open("rb") as file:
        file.seek(tar.offset)
        if any(file.read(tarfile.BLOCKSIZE)):
            raise DataError(f"{archive}: damaged at byte {tar.offset}; copy or pack it again.")


def _not_a_file(archive: Path, name: str) -> DataError:
    return DataError(
        f"{archive}: the member {name!r} is a link or a device, not a file; pack the file itself."
    )
