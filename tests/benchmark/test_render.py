"""The printed table in every format, against files that were read with care."""

import csv
import io
import shutil
import subprocess
from contextlib import redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bne.benchmark import render
from bne.benchmark.plan import choose, plan
from bne.benchmark.render import Grid, grid, result_grid
from bne.benchmark.tables import Table, accuracy_table, find_records
from bne.cli.screen import show_table
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
        "tex": render.latex(grid(tables[:1], notes, brackets=False)),
        "html": render.html(grid(tables, notes)),
        "csv": render.comma_separated(tables),
        "txt": on_terminal(render.by_target(tables[0])),
    }


def on_terminal(one: Grid) -> str:
    said = io.StringIO()
    with redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "50")
        show_table(one.head, one.rows, one.title)
    return said.getvalue()


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
    rows = (("50% & <i>", "[bold]", "\\{$"), ("", "b", "1"))
    evil = Grid("<b>[red]a|b", ("", "", "x_y"), rows, ("#1 ~ ^",))
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


def test_rows_that_nothing_here_runs_are_named() -> None:
    table = choose(table="sota-pacs-alexnet", rows=["BNE"])
    notes = result_grid(table, [(item, None) for item in plan(table, 1, {})]).notes
    (note,) = (note for note in notes if "No method" in note)
    absent = note.removesuffix(".").split(": ")[1].split(", ")
    assert {"DICA", "CIDDG"} <= set(absent)
    assert not {"BNE", "DeepAll", "Fusion"} & set(absent)


def test_latex_has_a_label_and_the_best_of_each_column_in_bold(tables) -> None:
    text = render.latex(grid(tables[:1], brackets=False))
    assert text.count("rule\n") == 3  # of booktabs: top, mid and bottom
    assert r"\label{tab:sota}" in text
    lines = {line.split(" & ")[0]: line for line in text.splitlines() if " & ours, last & " in line}
    assert r"\textbf{78.0 $\pm$ 2.0}" in lines["BNE"]
    assert "textbf" not in lines["DeepAll"]
    assert [line for line in text.splitlines() if "oracle" in line] == []
    assert render.latex(grid([beside_nothing(tables[0])])).count("&") < text.count("&") / 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex, to compile a table")
def test_latex_compiles_within_the_width_of_an_article(tables, tmp_path: Path) -> None:
    evil = Grid(
        "50% & {$", ("", "", "a_b", "#1 ~ ^"), (("x\\", "[y]", "1.0 ± 0.1", "−2…"),), ("Δ",)
    )
    wide = replace(evil, head=evil.head * 6, rows=tuple(row * 6 for row in evil.rows))
    own = "".join(map(render.latex, (grid(tables[:1], brackets=False), evil, wide)))
    text = f"\\usepackage{{booktabs,graphicx}}\\begin{{document}}\n{own}\\end{{document}}\n"
    (tmp_path / "table.tex").write_text(f"\\documentclass{{article}}{text}")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout


def beside_nothing(table: Table) -> Table:
    rows = [replace(row, paper={}) for row in table.rows if row.cells]
    return replace(table, rows=tuple(rows))
