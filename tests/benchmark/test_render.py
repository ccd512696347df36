"""The printed table in every format, against files that were read with care."""

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from bne.benchmark import render
from bne.benchmark.render import Grid, grid
from bne.benchmark.tables import accuracy_table, find_records
from bne.training.scores import RULES
from tests.benchmark.examples import item, record
from tests.benchmark.test_tables import PAPER

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def tables():
    """DeepAll complete, BNE with one seed of two on photo, MetaReg the paper's alone."""
    correct = {
        ("deepall", "art"): (700, 720),
        ("deepall", "photo"): (900, 880),
        ("bne", "art"): (760, 800),
        ("bne", "photo"): (940,),
    }
    names = {"deepall": "DeepAll", "bne": "BNE"}
    items = [
        item(method, target, seed, names[method])
        for seed in (0, 1)
        for method in names
        for target in ("art", "photo")
    ]
    records = []
    for one in items:
        scores = correct[one.recipe.method, one.target]
        if one.recipe.seed < len(scores):
            accuracy = {
                rule: {one.target: {"correct": scores[one.recipe.seed] + more, "images": 1000}}
                for rule, more in zip(RULES, (0, -10, 20), strict=True)
            }
            records.append(record(one, 0, accuracy=accuracy))
    found = find_records(items, records)
    return [accuracy_table("sota", found, PAPER, rule) for rule in RULES]


@pytest.fixture(scope="module")
def printed(tables):
    notes = ["Initial weights: resnet18_imagenet & <others>."]
    return {
        "md": render.markdown(grid(tables, notes)),
        "tex": render.latex(grid(tables, notes)),
        "html": render.html(grid(tables, notes)),
        "csv": render.comma_separated(tables),
        "txt": on_terminal(grid(tables[:1], notes)),
    }


def on_terminal(one: Grid) -> str:
    console = Console(width=100, file=io.StringIO(), color_system=None)
    console.print(render.terminal(one))
    return console.file.getvalue()


@pytest.mark.parametrize("form", ["md", "tex", "html", "csv", "txt"])
def test_golden(printed: dict[str, str], form: str) -> None:
    assert printed[form] == (GOLDEN / f"table.{form}").read_text()


def test_csv_is_read_by_a_csv_reader(printed: dict[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert len(rows) == 3 * 3 * 5  # rules, rows, columns
    by_place = {(r["row"], r["rule"], r["column"]): r for r in rows}
    gain = by_place["BNE", "last", "gain-percent"]
    assert float(gain["mean"]) == pytest.approx(6.25)  # 85 over 80, seed 0 only
    assert (gain["seeds"], gain["planned"], gain["paper"]) == ("1", "2", "8.75")


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.cells += tag == "td"
        self.outside += [v for k, v in attrs if k in ("src", "href") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_well_formed_and_needs_nothing_else(printed: dict[str, str]) -> None:
    parser = Tags()
    parser.feed(printed["html"])
    assert parser.open == []
    assert parser.outside == []
    assert parser.cells == 9 * 7  # 2 rows of ours in 3 rules and the paper's 3, 7 columns


def test_names_are_text_in_every_format() -> None:
    evil = Grid("<b>[red]a|b", ("", "", "x_y"), (("50% & <i>", "[bold]", "\\{$"),), ("#1 ~ ^",))
    page = render.html(evil)
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;i&gt;" in page
    assert "a\\|b" in render.markdown(evil)
    tex = render.latex(evil)
    assert r"50\% \& <i> & {[}bold] & \textbackslash{}\{\$ \\" in tex
    assert r"\#1 \textasciitilde{} \textasciicircum{}" in tex
    shown = on_terminal(evil)
    assert "[red]" in shown
    assert "[bold]" in shown
