"""Images whose domain changes on the way, watched from the command line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bne as library
from tests.cli.command import bne, refusal
from tests.deploy.models import watching
from tests.report.pages import HOSTILE, Reader, fits, opened, told

Runs = dict[str, Path]


def noise(count: int, lightest: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, lightest, (count, 40, 40, 3), np.uint8)


@pytest.fixture(scope="module")
def folder(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows dark noise; 48 images of it, then 32 of bright noise, an hour apart."""
    folder = tmp_path_factory.mktemp("watched")
    model = watching(library.load(runs["bne"], "cpu"), {"dark": noise(60, 80, 1)})
    model.save(folder / "model.bne")
    pictures = [*noise(48, 80, 2), *noise(32, 255, 3)]
    (folder / "images").mkdir()
    for number, pixels in enumerate(pictures):
        # Names in another order than times.
        path = folder / "images" / f"{(number * 37) % 80:02}.png"
        Image.fromarray(pixels).save(path)
        os.utime(path, (1.8e9 + 3600 * number,) * 2)
    return folder


def test_windows_are_told_in_the_order_of_time(folder: Path) -> None:
    words = (folder / "model.bne", folder / "images", "--time", "mtime", "--window", 16)
    lines = [json.loads(line) for line in bne("monitor", *words, "--json").out.splitlines()]
    windows = [line["window"] for line in lines if "window" in line]
    assert [one["alarm"] for one in windows] == [False] * 3 + [True] * 2
    assert [one["first"] for one in windows] == [0, 16, 32, 48, 64]
    assert windows[0]["begin"] == "2027-01-15 08:00:00"
    images = [line for line in lines if "file" in line]
    assert len(images) == 80
    assert np.mean([one["p_value"] for one in images[:48]]) > 0.3
    assert max(one["p_value"] for one in images[48:]) < 0.1
    said = bne("monitor", *words, "--fail", code=4)
    assert said.err == ""
    assert said.out.count("ALARM") == 2
    assert "at image 49 (2027-01-17 08:00):" in said.out


def test_windows_may_mix_known_domains_if_one_says_so(runs: Runs, here: Path) -> None:
    model = watching(
        library.load(runs["bne"], "cpu"), {"dark": noise(60, 80, 1), "bright": noise(60, 255, 4)}
    )
    model.save(here / "model.bne")
    (here / "images").mkdir()
    for number, pixels in enumerate([*noise(24, 80, 2), *noise(24, 255, 3)]):
        Image.fromarray(pixels).save(here / "images" / f"{(number * 25) % 48:02}.png")
    words = ("monitor", "model.bne", "images", "--window", 16, "--report", "page.html", "--json")
    apart, mixed = bne(*words, "--fail", code=4), bne(*words, "--mixed", "--fail")
    windows = {
        way: [one["window"] for one in map(json.loads, said.out.splitlines()) if "window" in one]
        for way, said in (("apart", apart), ("mixed", mixed))
    }
    assert [one["alarm"] for one in windows["apart"]] == [True] * 3
    assert [one["alarm"] for one in windows["mixed"]] == [False] * 3
    assert all(one["parts"] == {"dark": 8, "bright": 8} for one in windows["mixed"])
    assert "--mixed" in apart.err
    assert "--mixed" not in mixed.err
    assert "--mixed" not in Path("page.html").read_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_when_it_began(folder: Path, browser, width: int, here: Path) -> None:
    words = (folder / "model.bne", folder / "images", "--time", "mtime", "--window", 16)
    bne("monitor", *words, "--report", "drift.html")
    text = Path("drift.html").read_text()
    page = Reader(text)
    assert page.asked == []
    assert page.sections == ["images", "reading", "windows"]
    rows = page.table("Windows")
    assert [cells[-1] for cells in rows.values()][1:] == ["", "", "", "alarm", "alarm"]
    with opened(browser, here / "drift.html", width, "body.ready") as shown:
        fits(shown, width)
        assert shown.locator(".example img").count() == 16
        began = shown.locator(".example figcaption").all_inner_texts()[:8]
        names = [f"{(number * 37) % 80:02}.png" for number in range(48, 64, 2)]
        assert began == [str(folder / "images" / name) for name in names]  # folders tell them apart
        marks = told(shown, "chart-chance")
        assert [text.endswith("alarm") for text in marks] == [False] * 3 + [True] * 2


def test_names_cannot_break_the_page(folder: Path, browser, here: Path) -> None:
    name = HOSTILE.replace("/", "")
    (here / "images").mkdir()
    for number, pixels in enumerate(noise(8, 255, 4)):
        Image.fromarray(pixels).save(here / "images" / f"{name}{number}.png")
    said = bne("monitor", folder / "model.bne", "images", "--report", "new/drift.html").err
    assert len(said.splitlines()) == 2  # what else may alarm, as images are in no order of time
    with opened(browser, here / "new/drift.html", ready="body.ready") as shown:
        assert shown.title() != "1"


def test_unreadable_images_are_left_out(folder: Path, here: Path) -> None:
    (here / "bad.png").write_bytes(b"no image")
    some = sorted((folder / "images").glob("*.png"))[:9]
    said = bne("monitor", folder / "model.bne", "bad.png", *some, "--window", 8, code=3)
    assert "bad.png" in said.err
    assert "9 images in 1 window" in said.out


def test_refusals(folder: Path, runs: Runs, here: Path) -> None:
    images = folder / "images"
    assert "measures no distances" in refusal("monitor", runs["deepall"], images)
    assert "4 held-out images" in refusal("monitor", runs["bne"], images)
    assert "at least 8" in refusal("monitor", folder / "model.bne", images, "--window", 3)
    assert "is no .csv" in refusal("monitor", folder / "model.bne", images, "--time", "taken")
    assert "EXIF" in refusal("monitor", folder / "model.bne", images, "--time", "exif")
    assert "exported" in refusal("monitor", "model.onnx", images)
    (here / "page").mkdir()
    assert "is a folder" in refusal(
        "monitor", folder / "model.bne", images, "--report", here / "page"
    )
