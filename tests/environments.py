"""Fresh environments, for what the package does with few libraries beside it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).parent / "uv"
PACKAGE = "package"
"""Stands for this package, built in a folder of its own so that nothing is left in the checkout."""


def fresh_environment(folder: Path, *installs: list[str]) -> Path:
    """The Python of a new environment with what was installed, one after the other."""
    if not UV.exists():
        pytest.skip("needs uv, which `make test` installs beside Python")
    source, python = folder / "source", folder / "venv" / "bin" / "python"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(UV, "venv", "--python", sys.executable, folder / "venv")
    for given in installs:
        install(python, *(source if one == PACKAGE else one for one in given))
    return python


def install(python: Path, *packages: str | Path) -> None:
    """Adds packages of the locked versions to an environment."""
    lock = ROOT / "requirements.lock"
    run(UV, "pip", "install", "--python", python, "--constraint", lock, *packages)


def run(*command: str | Path, **options: object) -> str:
    """What a command says on standard output; it must succeed."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
