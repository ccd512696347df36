"""Fixtures shared by all tests."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from tests.pictures import write_pictures

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run slowly, on the CPU, instead of not at all
# Ray's workers would wait for all other tests.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - so Ray spells it

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of benchmark images and ImageNet weights that may lie beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("needs the benchmark data and weights in ../shared, which is absent")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium. One for all tests: playwright refuses a second one in the same process."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"needs Chromium at {CHROMIUM}")
    with sync_api.sync_playwright() as playwright:
        options = {"executable_path": str(CHROMIUM), "args": ["--no-sandbox"]}
        with playwright.chromium.launch(**options) as running:
            yield running


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pictures of each of two classes in each of three domains."""
    return write_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[Path], object]], Path]:
    """Fills a folder once, by its name, for all processes that tests run in: the others wait."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = base / name, base / f"{name}.done"
        with FileLock(base / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the present one, in which prepared images are kept too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BNE_DEBUG", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs on tiny pictures, by method, with `photo` unseen; `data` is the pictures'."""
    import bne

    folder = tmp_path_factory.mktemp("runs")
    settings = {"backbone": "small_cnn", "weights": None, "resize": 40, "batch_size": 4, "epoch": 2}
    settings |= {"head": {"epochs": 1}, "epochs": 1, "warmup": 0, "validation": 0.2}
    for method in ("bne", "deepall", "dnet"):
        places = {"out": folder / method, "cache": folder / "cache", "device": "cpu"}
        bne.train(data, "photo", method=method, **places, **settings)
    return {"data": data, **{name: folder / name for name in ("bne", "deepall", "dnet")}}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in a worker of Ray's: with more, sums come out otherwise in the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
