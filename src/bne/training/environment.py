"""What surrounds a run: the device, versions that tell why two runs differ, and signals to stop."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bne
from bne.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = 1.0  # seconds in which torchrun passes on a Ctrl-C that its processes heard themselves
PACKAGES = ("torch", "torchvision", "timm", "numpy")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's numbers for `mallopt`


def choose_device(name: str) -> str:
    """`cpu` or `cuda`, from what `--device` or `device=` says.

    Raises:
        SettingsError: It says something else, or there is no GPU.
    """
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"--device {name}: choose auto, cpu or cuda.")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise SettingsError("--device cuda: PyTorch finds no GPU here; choose cpu.")
    return "cuda" if there and name != "cpu" else "cpu"


def keep_memory(largest: int = 2**31 - 1, kept: int = 2**31 - 1) -> None:
    """Has this process keep freed memory for its next tensors, if glibc manages it.

    Otherwise every large tensor is asked for anew, page by page, which doubles the time of distance
    training on a CPU. Whoever sets glibc's own variables (`MALLOC_…`) is left alone.

    Args:
        largest: bytes of a tensor that lies in the heap; larger ones go back to the system.
        kept: bytes that may lie free at the heap's end. What lies free below is kept anyhow.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        # Before version 2.35 it refuses the first. Trimming alone would make it slower than it was.
        if any(mallopt(M_MMAP_THRESHOLD, size) for size in (largest, 2**25)):
            mallopt(M_TRIM_THRESHOLD, kept)


def describe(device: str | torch.device, weights: str | None) -> dict[str, Any]:
    """Versions, machine, commit and initial weights, as plain texts for JSON.

    `code_sha256` tells versions apart where there is no commit, as in a copy without git, or
    where it is "-dirty".
    """
    package = Path(bne.__file__).parent
    checksum = weights_sha256(weights)
    return {
        "bne": bne.__version__,
        "commit": _commit(package),
        "code_sha256": _code_sha256(package),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "device": _device_name(device),
        # Not the path, which says more of the machine than of the weights.
        "weights": {"name": Path(weights or "").name if checksum else weights, "sha256": checksum},
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow, and `bne --help` waits

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device_name(device: str | torch.device) -> str:
    import torch

    if torch.device(device).type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    return platform.processor() or platform.machine()


def weights_sha256(weights: str | None) -> str | None:
    """The checksum of initial weights, if they are a file."""
    if weights is None or not Path(weights).is_file():
        return None
    with Path(weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _commit(package: Path) -> str | None:
    """The commit of the checkout that the package lies in, "-dirty" if files were changed since.

    None if it lies in none: an installed package may lie below the checkout of something else.
    """
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top) / "src" / "bne" != package.resolve():
        return None
    return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _code_sha256(package: Path) -> str:
    """A short checksum of the package's code and recipes, from their names and contents.

    It is the start of what these commands print in the package's folder:
    `find -name '*.py' -o -name '*.yaml' | LC_ALL=C sort | xargs sha256sum | sha256sum`.
    """
    files = {
        f"./{file.relative_to(package).as_posix()}": file
        for pattern in ("*.py", "*.yaml")
        for file in package.rglob(pattern)
    }
    lines = (
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n"
        for name, file in sorted(files.items())
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603  no argument comes from outside
            [git, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass
class Interruption:
    """Whether the program was told to stop."""

    wanted: bool = False


@contextmanager
def noticed() -> Iterator[Interruption]:
    """A context in which a first Ctrl-C or SIGTERM is only noted; a later one does what it did.

    Signals come to the main thread: elsewhere nothing is changed.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return

    noted = 0.0

    def note(number: int, _: object) -> None:
        nonlocal noted
        if not interruption.wanted:
            interruption.wanted, noted = True, time.monotonic()
        elif time.monotonic() - noted > ECHO:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
