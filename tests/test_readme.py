"""The README's figures, and the files beside it; its code is run by tests/docs."""

import re

import yaml

import bne
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text()


def test_the_first_screen_names_the_commands_before_any_bullet() -> None:
    start = README[: README.index("\n- ")]
    screen = start[:1500]
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", screen))
    assert {"bne train", "bne predict"} <= set(re.findall(r"^bne \w+", screen, re.MULTILINE))
    assert len(re.findall(r"^!\[", start, re.MULTILINE)) == 1
    assert len(README.splitlines()) <= 90


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == bne.__version__


def test_the_workflow_runs_what_the_makefile_and_the_package_say() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test"]
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == named
