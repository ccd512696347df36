"""Every kind of file becomes the RGB a person would see, as plain arithmetic says it should."""

import contextlib
import io
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms.v2 import functional as tv

from bne.data.images import (
    MAX_PIXELS,
    ImageFile,
    ImageSet,
    Way,
    decode,
    of_pillow,
    resize,
)
from bne.errors import DataError, SettingsError
from tests.data.small import encode, pixels

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLOURS = np.stack([RAMP, RAMP.T, 255 - RAMP], axis=2)
COLOURS_16 = COLOURS.astype(np.uint16) * 257


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[:, :, None], 3, axis=2).astype(int)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("WEBP", {"lossless": True})],
)
def test_lossless_formats_keep_every_pixel(kind: str, options: dict[str, bool]) -> None:
    data = encode(Image.fromarray(COLOURS), kind, **options)
    assert (pixels(decode(data, "x")) == COLOURS).all()


def test_jpeg_at_its_best_is_all_but_lossless() -> None:
    data = encode(Image.fromarray(COLOURS), "JPEG", quality=100, subsampling=0)
    assert np.abs(pixels(decode(data, "x")) - COLOURS).max() <= 4


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
def test_grey_fills_three_channels(kind: str) -> None:
    assert (pixels(decode(encode(Image.fromarray(RAMP), kind), "x")) == grey(RAMP)).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_and_not_clipped(kind: str) -> None:
    values = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    seen = pixels(decode(encode(Image.fromarray(values), kind), "x"))
    assert (seen == grey(np.rint(values / 257))).all()


@pytest.mark.parametrize("photometric", [0, 1])
@pytest.mark.parametrize("orientation", [1, 6])
def test_16_bit_tiff_looks_like_the_8_bit_one(photometric: int, orientation: int) -> None:
    """Also where zero is white, which Pillow minds with 8 bits and forgets with 16."""
    eight = _tiff(RAMP.tobytes(), 8, photometric, orientation)
    sixteen = _tiff((RAMP.astype("<u2") * 257).tobytes(), 16, photometric, orientation)
    seen = pixels(decode(sixteen, "x"))
    assert (seen == pixels(decode(eight, "x"))).all()
    assert seen.min() == 0
    assert seen.max() == 255


def test_12_bit_tiff_is_scaled() -> None:
    first, second = np.rint(RAMP.reshape(-1, 2) * (4095 / 255)).astype(int).T
    packed = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1)
    seen = pixels(decode(_tiff(packed.astype(np.uint8).tobytes(), 12, 1), "x"))
    assert (seen == grey(RAMP)).all()


def _tiff(
    data: bytes,
    bits: int,
    photometric: int,
    orientation: int = 1,
    planes: int | None = None,
    order: str = "<",
) -> bytes:
    """16 x 16 pixels; written by hand, since PIL makes black zero and keeps channels together."""
    count = planes or 1
    values = {256: 16, 257: 16, 259: 1, 262: photometric, 274: orientation, 277: count}
    tags = {tag: [value] for tag, value in values.items()}
    if planes:
        tags[284] = [2]
    start = 8 + 2 + (len(tags) + 3) * 12 + 4  # of what does not fit into an entry
    size = len(data) // count
    first = start + (12 * count if count > 1 else 0)
    tags[258] = [bits] * count
    tags[273] = [first + plane * size for plane in range(count)]
    tags[279] = [size] * count
    entries, beyond = b"", b""
    for tag in sorted(tags):
        content = struct.pack(f"{order}{len(tags[tag])}I", *tags[tag])
        if len(content) > 4:
            content, beyond = struct.pack(f"{order}I", start + len(beyond)), beyond + content
        entries += struct.pack(f"{order}HHI", tag, 4, len(tags[tag])) + content
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(tags))
    return head + entries + bytes(4) + beyond + data


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_with_a_plane_for_each_channel(order: str) -> None:
    planes = COLOURS.transpose(2, 0, 1).tobytes()
    assert (pixels(decode(_tiff(planes, 8, 2, planes=3, order=order), "x")) == COLOURS).all()


@pytest.mark.parametrize(("bits", "photometric", "planes"), [(16, 2, 3), (8, 0, 1), (4, 1, 1)])
def test_planes_that_pillow_misreads_are_refused(bits: int, photometric: int, planes: int) -> None:
    data = _tiff(bytes(16 * 16 * bits // 8 * planes), bits, photometric, planes=planes)
    with pytest.raises(DataError, match=r"^x: .*TIFF"):
        decode(data, "x")


def test_a_loaded_tiff_with_planes_is_left_as_it_is() -> None:
    planes = COLOURS.transpose(2, 0, 1).tobytes()
    with Image.open(io.BytesIO(_tiff(planes, 8, 2, planes=3))) as image:
        image.load()
        assert (pixels(of_pillow(image, "x")) == COLOURS).all()


def test_a_kind_of_tiff_that_pillow_cannot_read_is_said_to_be_rare() -> None:
    data = _tiff(bytes(512), 16, 0, order=">")
    with pytest.raises(DataError, match=r"^x: the file is not .* or a rare kind of one; save it"):
        decode(data, "x")


def test_16_bit_colour_is_scaled() -> None:
    assert (pixels(decode(_png(COLOURS_16, 16, 2), "x")) == COLOURS).all()


@pytest.mark.parametrize("bits", [1, 8, 16])
def test_transparent_grey_is_white(bits: int) -> None:
    most = 2**bits - 1
    stored = (RAMP % 7).clip(max=most) if bits < 16 else RAMP.astype(int) * 257
    expected = np.where(stored == 1 if bits < 16 else stored == 771, 255, stored * (255 / most))
    colour = struct.pack(">H", 1 if bits < 16 else 771)
    seen = pixels(decode(_png(stored, bits, 0, colour), "x"))
    assert (seen == grey(np.rint(expected))).all()


def test_transparent_colour_is_white() -> None:
    seen = pixels(decode(_png(COLOURS, 8, 2, COLOURS[3, 5].astype(">u2").tobytes()), "x"))
    expected = np.where((COLOURS[3, 5] == COLOURS).all(2, keepdims=True), 255, COLOURS)
    assert (seen == expected).all()
    assert (seen != COLOURS).any()


def _png(values: np.ndarray, bits: int, kind: int, transparent: bytes | None = None) -> bytes:
    """Written by hand, since PIL cannot write all of these; `kind` 0 is grey and 2 is RGB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    height, width = values.shape[:2]
    flat = values.reshape(height, -1).astype(">u2")
    spread = np.unpackbits(flat.view(np.uint8).reshape(height, -1, 2), axis=2)[:, :, -bits:]
    rows = b"".join(b"\0" + row.tobytes() for row in np.packbits(spread.reshape(height, -1), 1))
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    colour = chunk(b"tRNS", transparent) if transparent else b""
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + colour + data + chunk(b"IEND", b"")


def test_palette_shows_its_colours() -> None:
    palette = np.arange(768, dtype=np.uint8).reshape(256, 3)[::-1]
    image = Image.fromarray(RAMP)
    image.putpalette(palette.tobytes())
    assert (pixels(decode(encode(image), "x")) == palette[RAMP]).all()


def test_transparent_palette_entry_is_white() -> None:
    image = Image.fromarray(RAMP % 2)
    image.putpalette([10, 20, 30, 40, 50, 60])
    expected = np.where((RAMP % 2 == 1)[:, :, None], [40, 50, 60], 255)
    assert (pixels(decode(encode(image, transparency=0), "x")) == expected).all()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_alpha_is_composited_on_white(kind: str) -> None:
    alpha = RAMP[::-1, :, None]
    image = Image.fromarray(np.concatenate([COLOURS, alpha], axis=2))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    share = alpha / 255
    expected = COLOURS * share + 255 * (1 - share)
    assert np.abs(pixels(decode(encode(image, kind, **options), "x")) - expected).max() <= 1


def test_grey_with_alpha_is_composited_on_white() -> None:
    image = Image.fromarray(np.stack([RAMP, RAMP.T], axis=2), mode=None)
    assert image.mode == "LA"
    share = RAMP.T / 255
    expected = grey(np.rint(RAMP * share + 255 * (1 - share)))
    assert np.abs(pixels(decode(encode(image), "x")) - expected).max() <= 1


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_is_ink_on_white_paper(kind: str) -> None:
    inks = {  # cyan, magenta, yellow, black
        (255, 0, 0, 0): (0, 255, 255),
        (0, 255, 0, 0): (255, 0, 255),
        (0, 0, 255, 0): (255, 255, 0),
        (0, 0, 0, 255): (0, 0, 0),
        (0, 0, 0, 0): (255, 255, 255),
    }
    for ink, colour in inks.items():
        options = {"quality": 100} if kind == "JPEG" else {}
        seen = pixels(decode(encode(Image.new("CMYK", (8, 8), ink), kind, **options), "x"))
        assert np.abs(seen - colour).max() <= 2


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda stored: stored),
        (2, lambda stored: stored[:, ::-1]),
        (3, lambda stored: stored[::-1, ::-1]),
        (4, lambda stored: stored[::-1]),
        (5, lambda stored: stored.transpose(1, 0, 2)),
        (6, lambda stored: np.rot90(stored, -1)),
        (7, lambda stored: np.rot90(stored, 2).transpose(1, 0, 2)),
        (8, lambda stored: np.rot90(stored, 1)),
    ],
)
def test_exif_rotation_is_applied_once(kind: str, orientation: int, upright: object) -> None:
    stored = COLOURS[:8]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    seen = decode(encode(Image.fromarray(stored), kind, exif=exif, **options), "x")
    assert (pixels(seen) == upright(stored)).all()


def test_exif_rotation_of_jpeg() -> None:
    stored = np.full((8, 16, 3), 255, dtype=np.uint8)
    stored[:, :8] = 0  # the left half is dark, so upright the top half is
    exif = Image.Exif()
    exif[0x0112] = 6
    seen = pixels(decode(encode(Image.fromarray(stored), "JPEG", exif=exif), "x"))
    assert seen.shape == (16, 8, 3)
    assert seen[:6].max() < 20
    assert seen[10:].min() > 235


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_exif_block_hides_no_image(kind: str) -> None:
    data = encode(Image.new("RGB", (4, 2), "red"), kind, exif=b"Exif\0\0this is no TIFF header")
    assert decode(data, "x").size == (4, 2)


def test_an_exif_block_that_cannot_be_written_again_still_turns_the_image() -> None:
    negative = struct.pack("<HHIi", 0x0106, 9, 1, -5)  # of a tag that has no negative values
    entries = negative + struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)
    data = encode(Image.new("RGB", (4, 2), "red"), "JPEG", exif=exif)
    assert decode(data, "x").size == (2, 4)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bit_pixels_are_refused(mode: str) -> None:
    with pytest.raises(DataError, match=r"d/c/x\.tif: signed, 32-bit or float"):
        decode(encode(Image.new(mode, (4, 4)), "TIFF"), "d/c/x.tif")


@pytest.mark.parametrize("side", [8001, 10_000, 20_000])
def test_a_bomb_is_refused_before_it_is_decoded(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Image.new("1", (side, side)))
    assert side * side > MAX_PIXELS
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("decoded"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(DataError, match=r"^d/c/big\.png: more than 64 megapixels"):
            decode(data, "d/c/big.png")


@pytest.mark.parametrize("data", [b"", b"no image at all", b"GIF89a" + bytes(40)])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^d/c/x\.jpg: the file is not a JPEG, PNG"):
        decode(data, "d/c/x.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
def test_damaged_files_are_refused_by_name(kind: str) -> None:
    generator = np.random.default_rng(0)
    noise = Image.fromarray(generator.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    data = encode(noise, kind)
    with pytest.raises(DataError, match=r"^d/c/x\.any: the "):
        decode(data[: len(data) // 2], "d/c/x.any")


@pytest.mark.filterwarnings("ignore")
def test_any_bytes_decode_or_raise_data_error() -> None:
    generator = np.random.default_rng(1)
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF"):
        good = encode(Image.fromarray(COLOURS), kind)
        for _ in range(60):
            data = bytearray(good)
            for place in generator.integers(0, min(len(data), 400), 4):
                data[place] = generator.integers(256)
            with contextlib.suppress(DataError):
                assert decode(bytes(data), "x").mode == "RGB"


def test_resizes_any_aspect_to_a_square_as_torchvision_does_by_default() -> None:
    for width, height in ((90, 40), (20, 70)):
        image = Image.effect_noise((width, height), 50).convert("RGB")
        ours = resize(image, 64)
        assert ours.size == (64, 64)
        assert torch.equal(tv.pil_to_tensor(ours), tv.pil_to_tensor(tv.resize(image, [64, 64])))


@pytest.mark.parametrize(("width", "height"), [(90, 40), (21, 70), (64, 64), (500, 1)])
def test_a_letterbox_keeps_the_aspect_between_black_borders(width: int, height: int) -> None:
    image = Image.effect_noise((width, height), 50).convert("RGB")
    across, down = (max(1, round(64 * side / max(width, height))) for side in (width, height))
    left, top = (64 - across) // 2, (64 - down) // 2
    whole = tv.pad(
        tv.resize(image, [down, across]), [left, top, 64 - across - left, 64 - down - top]
    )
    assert torch.equal(tv.pil_to_tensor(resize(image, 64, "letterbox")), tv.pil_to_tensor(whole))


def test_the_recipe_names_size_and_decoder() -> None:
    ways = [
        Way(64),
        Way(65),
        Way(64, "letterbox"),
        Way(64, window=(0, 4095)),
        Way(64, window=(0, 4096)),
        Way(64, channels=1),
    ]
    assert len(set(map(str, ways))) == len(ways)
    assert Image.__version__ in str(Way(64))


def test_nothing_is_left_of_domains_that_are_left_out() -> None:
    labels = {"a": (0, 2), "b": (0, 1, 2), "c": (2, 0)}  # class 1 is of b alone
    files = tuple(
        ImageFile(f"{domain}/{label}", label, place, bytes, "")
        for place, (domain, own) in enumerate(labels.items())
        for label in own
    )
    images = ImageSet(("a", "b", "c"), ("cat", "dog", "elk"), files)
    left = images.without(["b"])
    assert (left.domains, left.classes) == (("a", "c"), ("cat", "elk"))
    assert [file.name for file in left.files] == ["a/0", "a/2", "c/2", "c/0"]
    assert (left.labels, left.domain_ids) == ([0, 1, 1, 0], [0, 0, 1, 1])
    assert images.without([]) is images


def test_select_and_indices() -> None:
    files = tuple(ImageFile(f"{i}", i % 2, i // 2, io.BytesIO().read, "") for i in range(6))
    images = ImageSet(("a", "b", "c"), ("cat", "dog"), files)
    assert images.labels == [0, 1, 0, 1, 0, 1]
    assert images.domain_ids == [0, 0, 1, 1, 2, 2]
    assert images.indices_of(["c", "a"]) == [0, 1, 4, 5]
    chosen = images.select([5, 0])
    assert [file.name for file in chosen.files] == ["5", "0"]
    assert (chosen.domains, chosen.classes) == (images.domains, images.classes)
    with pytest.raises(SettingsError, match="no domain 'd' in the data; there are a, b, c"):
        images.indices_of(["a", "d"])
