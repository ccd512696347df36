"""DICOM files, written by pydicom and compared with what it makes of them."""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.pixels import apply_modality_lut, apply_voi_lut, convert_color_space
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

from bne.data.cache import prepare
from bne.data.check import check_path
from bne.data.images import Way, decode, pixels, read
from bne.data.sources import open_images
from bne.deploy.pictures import find_pictures
from bne.errors import DataError, MissingLibraryError
from tests.data.small import names, write

STORED = np.arange(256).reshape(16, 16) * 16  # 12 bits


def dicom(array: np.ndarray = STORED, signed: bool = False, **tags: object) -> bytes:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    color = array.ndim == 3
    bits = 8 if array.dtype == np.uint8 else 16
    file.Rows, file.Columns = array.shape[:2]
    file.SamplesPerPixel = 3 if color else 1
    file.PhotometricInterpretation = "RGB" if color else "MONOCHROME2"
    file.BitsAllocated, file.BitsStored, file.HighBit = bits, min(bits, 12), min(bits, 12) - 1
    file.PixelRepresentation = int(signed)
    if color:
        file.PlanarConfiguration = 0
    kind = np.uint8 if bits == 8 else np.int16 if signed else np.uint16
    file.PixelData = array.astype(kind).tobytes()
    for name, value in tags.items():
        setattr(file, name, value)
    buffer = io.BytesIO()
    file.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


WINDOW = {"WindowCenter": [1500, 700], "WindowWidth": [2000, 300]}
RESCALE = {"RescaleSlope": 2, "RescaleIntercept": -1024}


@pytest.mark.parametrize(
    ("tags", "full"),
    [
        ({}, (0, 4095)),
        (WINDOW, (0, 4095)),
        (RESCALE, (-1024, 2 * 4095 - 1024)),
        (WINDOW | RESCALE, (-1024, 2 * 4095 - 1024)),
        (WINDOW | {"VOILUTFunction": "SIGMOID"}, (0, 4095)),
        (WINDOW | {"PhotometricInterpretation": "MONOCHROME1"}, (0, 4095)),
    ],
)
def test_gray_is_shown_as_pydicom_windows_it(
    tags: dict[str, object], full: tuple[int, int]
) -> None:
    data = dicom(**tags)
    file = pydicom.dcmread(io.BytesIO(data))
    values = apply_voi_lut(apply_modality_lut(file.pixel_array, file), file)
    expected = np.rint((values - full[0]) * (255 / (full[1] - full[0])))
    if "PhotometricInterpretation" in tags:
        expected = 255 - expected
    seen = np.asarray(decode(data, "x"))
    assert (seen == expected[..., None]).all()
    assert seen.min() == 0 or "VOILUTFunction" in tags or not tags.get("WindowWidth")


def test_signed_values_and_a_range_of_ones_own() -> None:
    data = dicom(STORED - 2048, signed=True, **WINDOW, **RESCALE)
    measured = (STORED - 2048) * 2 - 1024
    seen = np.asarray(decode(data, "x", (-2000, 500)))[..., 0]
    assert (seen == np.interp(measured, (-2000, 500), (0, 255)).round()).all()
    turned = dicom(STORED - 2048, signed=True, PhotometricInterpretation="MONOCHROME1", **RESCALE)
    assert (255 - seen == np.asarray(decode(turned, "x", (-2000, 500)))[..., 0]).all()


def test_8_bits_are_inverted_and_windowed_too() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    data = dicom(ramp, PhotometricInterpretation="MONOCHROME1")
    assert (np.asarray(decode(data, "x"))[..., 0] == 255 - ramp).all()


def test_colors_stay_as_they_are() -> None:
    colors = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    assert (np.asarray(decode(dicom(colors), "x")) == colors).all()
    stored = convert_color_space(colors, "RGB", "YBR_FULL")
    seen = np.asarray(decode(dicom(stored, PhotometricInterpretation="YBR_FULL"), "x"))
    assert (seen == convert_color_space(stored, "YBR_FULL", "RGB")).all()
    assert pixels(dicom(colors), "x", Way(8, channels=1)).shape == (8, 8, 1)


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"NumberOfFrames": 3}, "a/b/scan: the DICOM file has 3 frames"),
        ({"PixelData": b"12"}, "a/b/scan: the DICOM file cannot be decoded"),
        ({"Rows": 60_000, "Columns": 60_000}, "a/b/scan: more than 64 megapixels"),
    ],
)
def test_what_is_no_single_image_is_refused(tags: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(dicom(**tags), "a/b/scan")
    assert "\n" not in str(caught.value)


def test_a_report_without_pixels_and_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    file = pydicom.dcmread(io.BytesIO(dicom()))
    del file.PixelData
    buffer = io.BytesIO()
    file.save_as(buffer)
    with pytest.raises(DataError, match=r"^a/b/scan: the DICOM file has no pixels; remove it\.$"):
        read(buffer.getvalue(), "a/b/scan")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'bne\[dicom\]'"):
        read(dicom(), "scan")


def test_a_window_of_dicom_may_clip(tmp_path: Path) -> None:
    """As that of a CT does, which shows one kind of tissue."""
    for name in ("a/x/1.dcm", "b/x/1.dcm"):
        (tmp_path / "data" / name).parent.mkdir(parents=True)
        (tmp_path / "data" / name).write_bytes(dicom(**RESCALE))
    prepared = prepare(open_images(tmp_path / "data"), tmp_path / "cache", 16, window=(0, 100))
    prepared.tally.check(prepared.window, ())
    assert prepared.notes == ()
    assert set(prepared.pixels.unique().tolist()) >= {0, 255}


def test_files_are_found_whatever_their_name(tmp_path: Path) -> None:
    """In folders, archives and tables: `.dcm`, no extension, or the numbers of a UID."""
    folder = write(tmp_path / "data", *names("a", "x", 1)) / "a" / "x"
    for name in ("one.dcm", "IM0001", "1.2.840.10008"):
        (folder / name).write_bytes(dicom())
    (folder / "README").write_text("no image")
    found = {"0.png", "one.dcm", "IM0001", "1.2.840.10008"}
    assert {file.name.split("/")[2] for file in open_images(tmp_path / "data").files} == found
    (note,) = (n for n in check_path(tmp_path / "data").notes if n.startswith("Passed"))
    assert note.endswith("none 1; 1 file.")
    assert {Path(p.name).name for p in find_pictures([folder])} == found
    for kind in ("tar", "zip"):
        (tmp_path / kind).mkdir()
    with tarfile.open(tmp_path / "tar/a.tar", "w") as tar:
        tar.add(folder, "x")
    with zipfile.ZipFile(tmp_path / "zip/a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.iterdir():
            archive.write(path, f"x/{path.name}")
    for kind in ("tar", "zip"):
        images = open_images(tmp_path / kind)
        assert {file.name.split("/")[2] for file in images.files} == found
        assert pixels(images.files[1].read(), "x", Way(16)).shape == (16, 16, 3)
    table = tmp_path / "data/table.csv"
    table.write_text("path,class,domain\na/x/IM0001,x,a\n")
    assert is_gray(open_images(table).files[0].read())


def is_gray(data: bytes) -> bool:
    return len(set(np.asarray(decode(data, "x")).reshape(-1, 3)[7])) == 1
