"""Makes the pages and pictures of docs/gallery.md: `python docs/gallery.py`, some minutes on a CPU.

Everything is of the demo's digits, and of the recorded runs on PACS.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import bne
from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.tables import find_records
from bne.demo.digits import load
from bne.report.benchmark_page import benchmark_page

DOCS = Path(__file__).parent
PAGES = DOCS / "gallery"
RECORDS = DOCS.parent / "results" / "pacs-resnet18" / "tables.jsonl"
SIZE = {"width": 1100, "height": 760}
SETTINGS = {"backbone": "small_cnn", "weights": None, "resize": 40, "flip": False}
SETTINGS |= {"head": {"epochs": 1}, "epochs": 12, "warmup": 4, "learning_rate": 0.05}
CHROMIUM = Path("/usr/bin/chromium")


def benchmark() -> None:
    """The paper's ablation, from its records."""
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 3, {}, weights="resnet18_imagenet.safetensors")
    text = benchmark_page(table, find_records(runs, read(RECORDS)))
    (PAGES / "benchmark.html").write_text(text, encoding="utf-8")


def digits(folder: Path) -> None:
    """A network that never saw posters, its analysis, and a watch that meets them."""
    prepared = load(seed=1, per_domain=300)
    for file in prepared.images.files:
        path = folder / "digits" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.read())
    run = folder / "run"
    places = {"out": run, "cache": folder / "cache", "device": "cpu"}
    bne.train(folder / "digits", "poster", method="bne", validation=0.2, **places, **SETTINGS)
    _bne(folder, "analyze", "run", "--data", "digits", "--images", "150", "--layers", "bn1")
    shutil.copy(run / "analysis" / "index.html", PAGES / "analysis.html")
    watched = folder / "watched"
    watched.mkdir()
    for order, domain in enumerate(("ink", "poster")):
        for number, file in enumerate(sorted((folder / "digits" / domain).rglob("*.png"))[::4]):
            shutil.copy(file, watched / f"{order}-{number:03d}.png")
    _bne(folder, "monitor", "run/model.bne", "watched", "--window", "15", "--report", "drift.html")
    shutil.copy(folder / "drift.html", PAGES / "drift.html")


def _bne(folder: Path, *words: str) -> None:
    with contextlib.chdir(folder):
        subprocess.run([sys.executable, "-m", "bne", *words], check=True)  # noqa: S603


def pictures() -> None:
    """Of the top of every page, and of the map."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        for file in sorted(PAGES.glob("*.html")):
            page.goto(file.resolve().as_uri())
            page.wait_for_timeout(500)
            page.screenshot(path=PAGES / f"{file.stem}.png")
            if page.locator("#stage").count():
                page.select_option("#coloring", "right")
                page.locator("#canvas").focus()
                page.keyboard.press("Enter")
                page.wait_for_timeout(300)
                page.locator("#stage").screenshot(path=PAGES / "map.png")
    for file in PAGES.glob("*.png"):  # a few colors tell as much in half the bytes
        with Image.open(file) as image:
            image.convert("RGB").quantize(128).save(file, optimize=True)


def main() -> None:
    """All of it."""
    PAGES.mkdir(exist_ok=True)
    benchmark()
    with tempfile.TemporaryDirectory() as folder:
        digits(Path(folder))
    _bne(PAGES, "demo", "--seeds", "2", "--out", "demo.html")
    pictures()


if __name__ == "__main__":
    main()
