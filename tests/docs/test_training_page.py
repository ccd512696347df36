"""docs/training.md names every option, setting and recipe, and none that is not there."""

import re

import typer
import yaml

from bne.cli.app import app
from bne.recipes.files import names
from bne.recipes.schema import Recipe, keys
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "training.md").read_text()


def test_the_documented_commands_exist() -> None:
    command = typer.main.get_command(app).commands["train"]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    lines = re.findall(r"^(?:torchrun .*-m )?bne train .*$", PAGE, re.MULTILINE)
    assert len(lines) >= 8
    inline = " ".join(re.findall(r"`[^`\n]+`", PAGE))
    mentioned = set(re.findall(r"--[a-z-]+", inline)) - {"--logdir"}
    for line in lines:
        ours = line.partition("bne train ")[2]
        mentioned |= set(re.findall(r"--[a-z-]+", ours))
        assert set(re.findall(r"--recipe (\S+)", ours)) <= set(names())
        for setting in re.findall(r"--set ([a-z_.]+)=", ours):
            assert setting in keys() or setting.startswith("options.")
    assert mentioned <= known
    assert known - mentioned <= {"--tensorboard", "--help"}


def test_the_documented_settings_are_all_there_are_with_their_defaults() -> None:
    section = PAGE.partition("## Settings")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| (?:`(.*?)`)? ?\|", section, re.MULTILINE)
    assert [key for key, _ in rows] == list(keys())
    recipe = Recipe(method="", target=())
    for key, default in rows:
        value: object = recipe
        for part in key.split("."):
            value = getattr(value, part)
        if key not in ("method", "target"):
            shown = float(default) if isinstance(value, float) else yaml.safe_load(default)
            assert (list(value) if value == () else value) == shown, key


def test_the_documented_recipes_are_all_there_are() -> None:
    section = PAGE.partition("| recipe |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`([a-z0-9-]+)`", section)) == names()
