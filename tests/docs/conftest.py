"""A folder in which the docs' command lines find the small files that they name."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from bne.demo import digits
from bne.methods import method as registry
from bne.models import build
from tests.docs.pages import ROOT
from tests.docs.running import run

PACS = ("art_painting", "cartoon", "photo", "sketch")
DATA = {
    "root": PACS,
    "data/pacs": PACS,
    "PACS": PACS,
    "data/office_caltech": ("amazon", "caltech", "dslr", "webcam"),
    "animals": ("camera-north", "camera-river", "camera-south"),
}
CLASSES = {"deer": 40, "fox": 200}
WEIGHTS = "resnet18.safetensors"


def write_images(root: Path, domains: tuple[str, ...]) -> None:
    """Noise, dark or bright by its class, eight images of each."""
    noise = np.random.default_rng(0)
    for domain in domains:
        for name, light in CLASSES.items():
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(1, 9):
                pixels = noise.integers(light - 30, light + 30, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:04}.jpg")


def write_scans(root: Path) -> None:
    """Gray images of 12 bits in files of 16, of three hospitals."""
    noise = np.random.default_rng(0)
    for domain in ("hospital-a", "hospital-b", "hospital-c"):
        for name, light in {"healthy": 800, "ill": 2800}.items():
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(1, 9):
                values = noise.integers(light - 700, light + 700, (32, 32), np.uint16)
                Image.fromarray(values).save(folder / f"patient{number:03}.png")


def write_hospitals(folder: Path) -> None:
    """Five hospitals and a sixth: zeros and ones of the demo, two images per patient."""
    drawn = [digits.load(seed) for seed in (0, 1)]
    places = {"bern": (0, 0), "cork": (0, 1), "graz": (0, 2), "oslo": (0, 3), "turin": (1, 0)}
    for name, (seed, domain) in {**places, "york": (1, 2)}.items():
        root = folder / ("sixth" if name == "york" else "hospitals")
        for label, finding in enumerate(("benign", "malignant")):
            place = root / name / finding
            place.mkdir(parents=True)
            files = [f for f in drawn[seed].images.files if (f.domain, f.label) == (domain, label)]
            for number, file in enumerate(files[:12]):
                patient = 6 * label + number // 2
                picture = place / f"patient{patient:03}_{number % 2 + 1}.png"
                picture.write_bytes(file.read())


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, weights, records and a trained network, under the names that the docs use."""
    folder = tmp_path_factory.mktemp("docs")
    for root, domains in DATA.items():
        write_images(folder / root, domains)
    write_scans(folder / "scans")
    write_hospitals(folder)
    save_file(build("small_cnn", num_classes=2).state_dict(), folder / WEIGHTS)
    shutil.copy(ROOT / "results" / "pacs-resnet18" / "tables.jsonl", folder / "records.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("BNE_CACHE", str(folder / "cache"))
        run(["bne", "train", "--data", "data/pacs", "--target", "sketch", "--out", "run"])
    return folder


@pytest.fixture
def workplace(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder: what is prepared, and room for what a page makes."""
    monkeypatch.setattr("bne.deploy.monitor.FEWEST", 2)  # of the few small images there are
    folders = ("root", "data", "PACS", "animals", "scans", "hospitals", "sixth")
    for entry in (*folders, WEIGHTS, "records.jsonl"):
        (tmp_path / entry).symlink_to(prepared / entry)
    shutil.copytree(prepared / "run", tmp_path / "runs" / "pacs-sketch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BNE_CACHE", str(prepared / "cache"))
    monkeypatch.delenv("BNE_DEBUG", raising=False)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    return tmp_path
