"""Runs the code blocks of a page, or checks those that are not to be run."""

import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from bne import cli
from bne.cli.app import app
from bne.recipes import files
from tests.docs.pages import ROOT, blocks

SMALL = {"backbone": "small_cnn", "weights": None, "calibrate": False, "resize": 32}
SMALL |= {"per_domain": 4, "epoch": 1, "validation": 0.25}
SHORT = {"head": {"epochs": 1}, "train": {"epochs": 1, "warm_up": 0}}


def run_page(page: str) -> dict[str, Any]:
    """Carries out a page from top to bottom, in the present folder.

    All Python of a page shares one namespace, which is the result. A block that begins with a
    docstring `name.py: ...` is a file, written for the commands that follow.
    """
    names: dict[str, Any] = {"__name__": page}
    for block in blocks(page):
        if block.language == "python" and (file := re.match(r'"""(\w+\.py): ', block.text)):
            Path(file[1]).write_text(block.text)
        elif block.language == "python":
            code = compile(block.text, block.place, "exec")
            if not block.not_run:
                with small_recipes(SMALL | SHORT):
                    exec(code, names)
        elif block.language == "bash":
            for line in block.commands:
                words = shlex.split(line, comments=True)
                check(words) if block.not_run else run(words)
    return names


def run(words: list[str]) -> None:
    """Runs a command line in this process, by recipes that take a second."""
    with small_recipes(SMALL | SHORT), pytest.MonkeyPatch.context() as patch:
        match words:
            case ["bne", *_]:
                patch.setattr(sys, "argv", words)
                code = _exit_code(cli.main)
            case ["python", "-m", module, *rest]:
                patch.setattr(sys, "argv", [module, *rest])
                code = _exit_code(runpy.run_module, module, run_name="__main__")
            case ["python", file, *_]:
                patch.setattr(sys, "argv", words[1:])
                code = _exit_code(runpy.run_path, file, run_name="__main__")
            case _:
                raise AssertionError(f"{words} cannot be run here: say why in a comment above it")
    assert code == 0, words


def check(words: list[str]) -> None:
    """Checks what can be known of a command line without running it."""
    match words:
        case ["bne", "train" | "benchmark", *_] if "--plan" not in words:
            with small_recipes(SMALL), pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [*_without_data(words), "--dry-run"])
                assert _exit_code(cli.main) == 0, words
        case ["bne", *rest]:
            parse(rest)
        case ["torchrun", *rest]:
            place = rest.index("bne")
            assert rest[place - 1] == "-m"
            check(rest[place:])
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["pip", "install", what]:
            _check_extras(what)
        case ["python", "-m", module, *_]:
            assert module.startswith("domainbed.") or find_spec(module)
        case ["python", file, *_]:
            assert (ROOT / file).is_file()
        case _:
            raise AssertionError(f"nothing is known of {words}")


def commands(command: Any) -> list[Any]:
    """All commands below one that have no others below them."""
    below = getattr(command, "commands", {}).values()
    return [one for child in below for one in commands(child)] or [command]


def parse(words: list[str]) -> None:
    """Finds the command and reads its options, and calls nothing."""
    group = typer.main.get_command(app)
    for command in commands(group):
        command.callback = lambda **_: None
    assert _exit_code(group.main, words) == 0, words


@contextmanager
def small_recipes(changes: dict[str, Any]) -> Iterator[None]:
    """Changes all recipes that come with the package, whatever their names."""
    with pytest.MonkeyPatch.context() as patch:
        folder = Path("small-recipes")
        folder.mkdir(exist_ok=True)
        for name in files.names():
            content = {"base": str(files.FOLDER / f"{name}.yaml"), **changes}
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
        patch.setattr(files, "FOLDER", folder)
        yield


def _exit_code(call: Any, *arguments: Any, **options: Any) -> int:
    try:
        call(*arguments, **options)
    except SystemExit as end:
        return 0 if end.code is None else int(end.code)
    return 0


def _without_data(words: list[str]) -> list[str]:
    """A plan needs no data, unless its targets are the data's own domains."""
    named = {"train", "--benchmark", "--table", "--recipe"} & set(words)
    if "--data" not in words or not named:
        return words
    place = words.index("--data")
    return words[:place] + words[place + 2 :]


def _check_extras(what: str) -> None:
    """`.`, `.[cli]` or `bne[ray]`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, extra = re.fullmatch(r"([.\w]+)(?:\[(\w+)\])?", what).groups()
    assert name in (".", project["name"])
    assert extra is None or extra in project["optional-dependencies"]
