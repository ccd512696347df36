import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from bne.data.check import check_path
from bne.data.likeness import LEAST_CORRELATION, MOST_BITS, Sketch, alike, sketch
from bne.demo import digits
from tests.cli.command import bne


def photo(seed: int) -> Image.Image:
    """Blurred noise: structure at every scale, as photographs have."""
    noise = np.random.default_rng(seed).integers(0, 256, (96, 128, 3)).astype(np.uint8)
    blurred = Image.fromarray(noise).filter(ImageFilter.GaussianBlur(12))
    low, high = np.asarray(blurred).min(), np.asarray(blurred).max()
    return blurred.point(lambda value: (value - int(low)) * 255 // max(1, int(high - low)))


def jpeg(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=75)
    return Image.open(buffer)


def saved_again(image: Image.Image) -> Image.Image:
    return jpeg(image.resize((112, 84)))


def brute_force(sketches: list[Sketch]) -> list[list[int]]:
    """All pairs, one by one."""
    groups = [{place} for place in range(len(sketches))]
    for i, one in enumerate(sketches):
        for j, other in enumerate(sketches[:i]):
            bits = (one.hash ^ other.hash).bit_count()
            like = np.corrcoef(one.copy, other.copy)[0, 1] >= LEAST_CORRELATION
            if bits <= MOST_BITS and like:
                merged = groups[i] | groups[j]
                for place in merged:
                    groups[place] = merged
    return sorted({tuple(sorted(group)) for group in groups if len(group) > 1})


def test_copies_are_found_and_others_are_not() -> None:
    photos = [photo(seed) for seed in range(40)]
    again = [saved_again(photos[seed]) for seed in (3, 17, 29)]
    flat = [Image.new("RGB", (50, 50), (shade,) * 3) for shade in (10, 11, 200)]
    found = alike([sketch(image) for image in (*photos, *again, *flat)])
    assert found == [[3, 40], [17, 41], [29, 42]]
    assert alike([]) == []


def test_copies_of_grainy_images_are_found() -> None:
    """Their hashes differ in up to ten bits: in flat areas grain decides which place is darker."""
    drawn = digits.load(per_domain=50).images.files
    images = [Image.open(io.BytesIO(file.read())).convert("RGB") for file in drawn]
    again = [jpeg(image.resize((2 * image.width, 2 * image.height))) for image in images]
    found = alike([sketch(image) for image in (*images, *again)])
    assert found == [[place, place + len(images)] for place in range(len(images))]


def test_it_finds_what_comparing_all_pairs_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bne.data.likeness.BLOCK", 1_000)  # of 7 rows
    draw = np.random.default_rng(0)
    sketches = []
    for seed in range(30):
        start = sketch(photo(seed))
        for _ in range(5):  # hashes up to 16 bits apart, copies more or less alike
            bits = draw.choice(64, draw.integers(0, 9), replace=False)
            noise = draw.normal(0, draw.choice([2, 15]), start.copy.shape)
            copy = (start.copy + noise).clip(0, 255).astype(np.uint8)
            sketches.append(Sketch(start.hash ^ int(sum(1 << int(bit) for bit in bits)), copy))
    draw.shuffle(sketches)
    found = [tuple(group) for group in alike(sketches)]
    assert found == brute_force(sketches)
    assert len(found) > 10


@pytest.mark.parametrize("same", [False, True])
def test_many_images_are_like_no_other(same: bool) -> None:
    """Also if all hashes are one; pair by pair it would take hours."""
    draw = np.random.default_rng(0)
    copies = draw.integers(0, 256, (10_000, 256)).astype(np.uint8)
    hashes = [5] * len(copies) if same else draw.integers(0, 2**63, len(copies)).tolist()
    assert alike([Sketch(*one) for one in zip(hashes, copies, strict=True)]) == []


def test_the_check_reports_them_with_their_sides(tmp_path: Path) -> None:
    place = 0
    for domain in ("a", "b"):
        for name in ("cat", "dog"):
            (tmp_path / domain / name).mkdir(parents=True)
            for number in range(4):
                photo(100 + place).save(tmp_path / domain / name / f"{number}.png")
                place += 1
    saved_again(photo(100)).save(tmp_path / "a/cat/copy.png")
    saved_again(photo(105)).save(tmp_path / "b/dog/copy.png")
    rows = ["domain,file,split"]
    for path in sorted(tmp_path.rglob("*.png")):
        domain, name = path.relative_to(tmp_path).as_posix().split("/", 1)
        rows.append(f"{domain},{name},{'crossval' if 'copy' in name else 'train'}")
    (tmp_path / "split.csv").write_text("\n".join(rows))
    report = check_path(tmp_path)
    assert report.errors == report.duplicates == ()
    expected = (("a/cat/0.png", "a/cat/copy.png"), ("a/dog/1.png", "b/dog/copy.png"))
    assert report.near_duplicates == expected
    assert report.held_out == ("a/cat/copy.png", "b/dog/copy.png")
    assert "2 groups of images, 1 of them in several domains" in report.notes[0]
    assert "2 groups, the first a/cat/0.png and a/cat/copy.png" in report.notes[1]
    said = bne("data", "check", tmp_path, "--json").json
    assert said["near_duplicates"] == [list(group) for group in expected]
    assert "a/cat/0.png and a/cat/copy.png" in bne("data", "check", tmp_path).out
