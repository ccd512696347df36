"""The README's figures, and the files beside it; its code is run by tests/docs."""

import re

import yaml

import bne
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text()


def averages(section: str) -> list[str]:
    """DeepAll's and BNE's in a table of docs/results.md, without the paper's in brackets."""
    page = (ROOT / "docs" / "results.md").read_text()
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    rows = {name: cells for name, *cells in (map(str.strip, line) for line in lines)}
    column = rows[""].index("average")
    return [rows[name][column].partition(" (")[0] for name in ("DeepAll", "BNE (c)")]


def test_the_first_screen_names_both_commands_before_any_bullet() -> None:
    start = README[: README.index("\n- ")]
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", start[:1500]))
    assert len(re.findall(r"^!\[", start, re.MULTILINE)) == 1
    assert len(README.splitlines()) <= 90


def test_the_accuracies_are_those_of_the_results() -> None:
    rows = re.findall(r"^\| .* \| ([\d.]+ ± [\d.]+) \| ([\d.]+ ± [\d.]+) \|$", README, re.MULTILINE)
    sections = ("Accuracy on the target", "Strong augmentation")
    *paper, leaning = map(list, rows)
    assert paper == [averages(section) for section in sections]
    page = (ROOT / "docs" / "beyond.md").read_text()
    pacs = page.partition("PACS, the paper's augmentation")[2].partition("Office-Caltech")[0]
    own = re.findall(r"^\| (?:DeepAll|BNE), leaning \|(.*)\|$", pacs, re.MULTILINE)
    assert leaning == [cells.split("|")[4].strip() for cells in own]


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == bne.__version__


def test_the_workflow_runs_what_the_makefile_and_the_package_say() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test"]
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == named
