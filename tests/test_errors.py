import sys
from pathlib import Path

import pytest
import torch

from bne.errors import MissingLibraryError, SettingsError, did_you_mean, require, sentence
from bne.models import build
from tests.cli.command import refusal


def test_imports_what_is_there_and_says_how_to_install_what_is_not() -> None:
    assert require("torch.nn") is torch.nn
    with pytest.raises(MissingLibraryError, match=r"no_such is not installed: pip install 'bne\["):
        require("no_such.part")


def test_the_command_line_says_it_in_one_sentence(monkeypatch) -> None:
    monkeypatch.setattr("bne.cli.app.app", lambda: require("no_such"))
    assert refusal().startswith("Error: no_such is not installed: pip install 'bne[models]'")


def test_what_the_system_says_has_no_number_of_its_own() -> None:
    full = OSError(28, "No space left on device")  # of the screen, which has no name
    assert sentence(full) == "No space left on device."
    full.filename = "a.csv"
    assert sentence(full) == "a.csv: No space left on device."


def test_faults_inside_a_library_are_its_own(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "broken_library.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_dependency'"):
        require("broken_library")
    assert "broken_library" not in sys.modules


def test_the_nearest_name_may_differ_in_case() -> None:
    assert did_you_mean("BNE", ["deepall", "bne", "dnet"]) == "the nearest is 'bne'"
    assert did_you_mean("camera_river", ["Camera-North", "Camera-River"]).endswith("'Camera-River'")
    assert did_you_mean("BNE", ["deepall", "dnet"]) == "there are deepall, dnet"


def test_what_cannot_be_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="unknown backbone 'resnet81'") as caught:
        build("resnet81", num_classes=2)
    assert type(caught.value) is SettingsError
