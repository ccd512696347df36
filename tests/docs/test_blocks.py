"""Every code block of the README and the docs is run or, where it says why not, checked."""

import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from bne.cli.app import app
from tests.docs.pages import LANGUAGES, PAGES, ROOT, blocks
from tests.docs.running import check, commands, run_page

WITH_CODE = [page for page in PAGES if any(block.executed for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_a_language_that_we_know(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, block.place
        assert block.not_run is None or block.executed, block.place


def test_no_page_hides_code_that_would_not_be_seen() -> None:
    """Counts the fences without a parser: none is swallowed by a list, a quote or another fence."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert len(re.findall(r"^ *```\w", text, re.MULTILINE)) == len(blocks(page)), page
        assert text.count("```") == 2 * len(blocks(page)), page


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_page_runs(page: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page(page)
    captured = capsys.readouterr()
    if page in AFTERWARDS:
        AFTERWARDS[page](names, captured.out)


def _readme(names: dict[str, Any], output: str) -> None:
    assert names["net"].domains == ("art", "cartoon", "photo")
    assert names["loss"].isfinite()
    assert names["answer"].nearest_domain[0] in output


def _own_loop(names: dict[str, Any], output: str) -> None:
    net, x = names["net"], names["images"]
    branches = net.branches(x)
    assert (branches[:, 2] - branches[:, 1]).abs().max() > 1e-4  # they were trained
    torch.testing.assert_close(names["photo"](x), branches[:, 2])


def _trainers(names: dict[str, Any], output: str) -> None:
    assert names["sampler"]._batches.step == 8  # told the third epoch, of four steps each
    for net in (names["net"], names["classifier"].net):
        branches = net.cpu().eval().branches(torch.rand(4, 3, 32, 32))
        assert (branches[:, 2] - branches[:, 1]).abs().max() > 1e-4


def _segmentation(names: dict[str, Any], output: str) -> None:
    found, net = names["found"], names["net"]
    mixed = (found.weights.view(16, 3, 1, 1, 1) * found.branch_logits).sum(1)
    torch.testing.assert_close(found.logits, mixed)
    with torch.no_grad():  # each branch is a plain network
        own = net.to_plain("gray")(names["images"])
    torch.testing.assert_close(found.branch_logits[:, 1], own)
    assert names["accuracy"] > 0.95


def _quick_start(names: dict[str, Any], output: str) -> None:
    assert "48 images. All is well." in output
    assert Path("runs/default-bne-camera-river-0/analysis/index.html").is_file()
    assert names["model"].domains == ("camera-north", "camera-south")
    assert names["answer"].weights.sum() == pytest.approx(1)
    assert 0 <= names["run"].accuracy <= 100


def _hospitals(names: dict[str, Any], output: str) -> None:
    """The page's figures are those of the pages it names; its run leaves all that it says."""
    page = (ROOT / "docs/hospitals.md").read_text()
    assert len(page.split()) <= 700
    told = page.partition("## Does it help?")[2].partition("## Your data")[0]
    known = "".join((ROOT / f"docs/{name}.md").read_text() for name in ("results", "beyond"))
    figures = re.findall(r"\d+\.\d", told)
    assert len(figures) >= 10
    assert all(figure in known for figure in figures)
    (sentence,) = re.findall(r"^BNE .*$", page, re.MULTILINE)
    assert sentence in (ROOT / "docs/benchmarks.md").read_text()
    assert "expected accuracy at a new domain" in output
    assert "to the digit" in output
    for name in ("answers.csv", "final.onnx", "drift.html", "final/manifest.json"):
        assert Path(name).is_file()


def _data(names: dict[str, Any], output: str) -> None:
    assert "('art_painting', 'cartoon', 'photo', 'sketch') ('deer', 'fox') 64" in output
    assert "torch.Size([64, 256, 256, 3])" in output


def _training(names: dict[str, Any], output: str) -> None:
    runs = {folder.name for folder in Path("runs").iterdir() if (folder / "result.json").is_file()}
    assert {"default-bne-sketch-0", "officecaltech-resnet18-bne-dslr+webcam-0", "mine"} <= runs


def _tuning(names: dict[str, Any], output: str) -> None:
    found = names["found"].found[0]
    assert [fold.domain for fold in found.question.folds] == ["blueprint", "chalk", "poster"]
    assert len({one.digest for one in found.rows}) == 2
    assert Path("runs/recipe-{}-ink-0".format(found.choice.chosen.changes["method"])).is_dir()
    assert "For ink: left out in turn: blueprint, chalk, poster." in output


def _benchmarks(names: dict[str, Any], output: str) -> None:
    assert len(names["found"]) == 5 * 2 * 3
    assert "| DeepAll | ours, last | … |" in output


def _methods(names: dict[str, Any], output: str) -> None:
    assert names["logits"].shape == (6, 7)


def _domainbed(names: dict[str, Any], output: str) -> None:
    hparams = {"lr": 1e-4, "weight_decay": 0.0}
    batches = [(torch.randn(2, 3, 64, 64), torch.tensor([0, 1])) for _ in range(2)]
    for name in ("BNE", "DeepAll"):
        algorithm = names[name]((3, 64, 64), 2, 2, hparams)
        assert algorithm.update(batches)["loss"] > 0


AFTERWARDS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "README.md": _readme,
    "docs/quick-start.md": _quick_start,
    "docs/hospitals.md": _hospitals,
    "docs/own-loop.md": _own_loop,
    "docs/trainers.md": _trainers,
    "docs/segmentation.md": _segmentation,
    "docs/data.md": _data,
    "docs/training.md": _training,
    "docs/tuning.md": _tuning,
    "docs/benchmarks.md": _benchmarks,
    "docs/methods.md": _methods,
    "docs/domainbed.md": _domainbed,
}


@pytest.mark.parametrize(
    "line",
    [
        "bne sing",
        "bne demo --loudly",
        "bne train --recipe pacs-resnet19 --target sketch",
        "bne benchmark --table ablation-of-nothing",
        "bne train --recipe pacs-resnet18 --target sketch --set train.epoch=3",
        "make coffee",
        "pip install 'bne[everything]'",
        "python benchmarks/none.py",
        "python -m bne.none",
        "torchrun -m bne train --target sketch --swiftly",
        "curl example.com",
    ],
)
def test_a_wrong_command_line_would_be_noticed(line: str, workplace: Path) -> None:
    with pytest.raises(AssertionError):
        check(shlex.split(line))


def test_the_examples_of_help_texts_are_checked_too(workplace: Path) -> None:
    for command in commands(typer.main.get_command(app)):
        check(shlex.split(command.epilog.removeprefix("Example: ")))


def test_every_name_of_the_package_exists() -> None:
    named = {
        name
        for page in PAGES
        if page != "CHANGELOG.md"  # which names what is gone
        for name in re.findall(r"`(bne(?:\.\w+)+)", (ROOT / page).read_text())
    }
    assert len(named) > 12
    for name in named:
        parts = name.split(".")
        found: Any = import_module("bne")
        for i, part in enumerate(parts[1:], 2):
            if not hasattr(found, part):
                import_module(".".join(parts[:i]))
            found = getattr(found, part)
