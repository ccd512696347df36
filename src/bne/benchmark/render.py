"""Tables as text, in the formats people read, and their figures for programs."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE, AVERAGE_CLASS, AVERAGE_DEEPALL, AVERAGE_DOMAIN, GAIN
from bne.benchmark.reference import tables as paper_tables
from bne.benchmark.tables import (
    LEANING,
    NONE,
    Cell,
    accuracy_table,
    latent_table,
    uneven_targets,
)
from bne.methods.method import find
from bne.recipes.files import load_experiment
from bne.training.events import BALANCED, LEADS
from bne.training.scores import LABELS, RULES, SHARE_RULE, sentence
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bne.benchmark.reference import PaperTable
    from bne.benchmark.tables import Found, Row, Table
    from bne.recipes.files import Experiment
    from bne.training.scores import Rule

LATENT = {
    "closest-domain-accuracy": "Avg. weighs targets by their images.",
    "domain-accuracy": "How often training images lie nearest to their own domain, mean over the "
    "source domains, in percent; Avg. Class is the accuracy on the target.",
    "similarity": "Mean 1 / distance of a row's training images to each domain, in percent of the "
    "row: its scale is arbitrary.",
}
BRACKETS = "In brackets: the difference from the paper's figure."
HEADS = {
    AVERAGE_DEEPALL: "Avg. DA",
    AVERAGE: "Avg.",
    GAIN: "Δ%",
    AVERAGE_DOMAIN: "Avg. Domain",
    AVERAGE_CLASS: "Avg. Class",
}


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Attributes:
        title: title above it.
        head: names of the columns.
        rows: texts; the first column names the row and is empty where it goes on.
        notes: sentences to go with it.
        best: places of the best accuracies of each column, row and column: ours under each rule,
            and the paper's.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()


def result_tables(
    experiment: Experiment, found: Found, rules: Iterable[Rule] = RULES
) -> list[Table]:
    """The experiment's table under each of some rules; tables of the latent space have one only.

    Where records have it, a table of balanced accuracy stands beside each but the oracle's: before
    it if classes are unbalanced, unless the paper's accuracies are to be compared with.

    Args:
        experiment: experiment that the runs are of.
        found: its runs, with their records.
        rules: rules that choose the tested epoch.
    """
    paper = paper_tables().get(experiment.name)
    if experiment.analysis:
        assert paper is not None, "only tables of the paper show the latent space"
        return [latent_table(experiment.analysis, experiment.name, found, paper)]
    uneven = uneven_targets(found)
    tables = []
    for rule in rules:
        own = [accuracy_table(experiment.name, found, paper, rule)]
        if uneven is not None and rule != "oracle":
            balanced = accuracy_table(experiment.name, found, None, rule, BALANCED)
            own.insert(0 if uneven and paper is None else 1, balanced)
        tables += own
    return tables


def result_grid(
    experiment: Experiment, found: Found, rules: Iterable[Rule] = RULES, *, brackets: bool = True
) -> Grid:
    """The same in words, all rules side by side."""
    about = _notes(experiment, found, paper_tables().get(experiment.name))
    return grid(result_tables(experiment, found, rules), about, brackets=brackets)


def _notes(experiment: Experiment, found: Found, paper: PaperTable | None) -> list[str]:
    """Sentences on what was trained and from what, and what is compared with what."""
    recipes = [item.recipe for item, _ in found]
    backbones = _named(recipe.backbone for recipe in recipes)
    weights = _named(item.settings["weights"] or "none: random" for item, _ in found)
    epochs = _named(f"{recipe.head.epochs} + {recipe.train.epochs}" for recipe in recipes)
    adapted = _named(i.row for i, _ in found if find(i.recipe.method).method.uses_target)
    sentences = [
        f"{experiment.title}.",
        f"Backbone: {backbones}. Initial weights: {weights}. Epochs, head + all: {epochs}.",
    ]
    if paper and paper.backbone not in backbones:
        sentences.append(f"The paper's figures are of {paper.backbone}, not of {backbones}.")
    if adapted:
        sentences.append(f"Trained with unlabeled images of the target: {adapted}.")
    if experiment.analysis:
        return [*sentences, LATENT[experiment.analysis]]
    sentences.append("Accuracy on the target, in percent.")
    if absent := _without_method(paper):
        sentences.append(f"No method here, the paper's figures alone: {absent}.")
    uneven = uneven_targets(found)
    if uneven is not None:
        sentences.append("Balanced: the mean over the classes that a target has.")
    if uneven and paper is None:
        sentences.append(LEADS.format(listed(uneven)))
    return sentences


def _without_method(paper: PaperTable | None) -> str:
    """The rows of a table of the paper that nothing here runs, whichever were chosen."""
    if paper is None:
        return ""
    ours = {row.title for row in load_experiment(paper.name).rows}
    return _named(row.name for row in paper.rows if row.name not in ours)


def _named(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def grid(tables: Sequence[Table], notes: Sequence[str] = (), *, brackets: bool = True) -> Grid:
    """Puts a table into words, under one rule or under several side by side.

    Args:
        tables: tables of the same runs, each under another rule.
        notes: sentences to go with it.
        brackets: whether our figures have their difference from the paper's, which has a row too.
    """
    first = next((table for table in tables if table.measure != BALANCED), tables[0])
    lines: list[tuple[str, ...]] = []
    figures: list[list[float | None]] = []
    # One rule alone has rows of networks that lean.
    for name in dict.fromkeys(row.name for table in tables for row in table.rows):
        rows = [(table, row) for table in tables for row in table.rows if row.name == name]
        ours = [(table, row) for table, row in rows if row.cells]
        texts = [(_whose(t), *_ours(row, t.columns, brackets=brackets)) for t, row in ours]
        figures += [[row.cells.get(c, Cell({}, 0)).mean for c in t.columns] for t, row in ours]
        paper = next((row for _, row in rows if row.paper), rows[0][1])
        if paper.paper:
            texts.append(("paper", *(_printed(paper, column) for column in first.columns)))
            figures.append([paper.paper.get(column) for column in first.columns])
        names = (name, *[""] * (len(texts) - 1))
        lines += [(own, *text) for own, text in zip(names, texts, strict=True)]
    head = ("", "", *(HEADS.get(column, column) for column in first.columns))
    meanings = dict.fromkeys(sentence(table.rule) for table in tables)
    best = _best([line[1] for line in lines], figures, first) if first.measure else frozenset()
    told = [text for text in _explanations(first) if brackets or text != BRACKETS]
    return Grid(first.name, head, tuple(lines), (*notes, *meanings, *told), best)


def _best(
    whose: Sequence[str], figures: Sequence[Sequence[float | None]], table: Table
) -> frozenset[tuple[int, int]]:
    """Places in a grid of the largest figures of each column among the rows of the same kind."""
    found = set()
    for kind, (place, column) in product(dict.fromkeys(whose), enumerate(table.columns)):
        rows = [number for number, own in enumerate(whose) if own == kind]
        known = {number: figures[number][place] for number in rows}
        digits = 2 if column == GAIN else 1  # as they are shown
        known = {number: round(one, digits) for number, one in known.items() if one is not None}
        if column != AVERAGE_DEEPALL and len(known) > 1:
            most = max(known.values())
            found |= {(number, place + 2) for number, one in known.items() if one == most}
    return frozenset(found)


def _whose(table: Table) -> str:
    """`ours, last` or `ours, last, balanced`."""
    return f"ours, {LABELS[table.rule]}" + (", balanced" if table.measure == BALANCED else "")


def _ours(row: Row, columns: Sequence[str], *, brackets: bool) -> list[str]:
    texts = []
    for column in columns:
        cell, paper = row.cells.get(column, Cell({}, 0)), row.paper.get(column)
        texts.append(str(cell) + (cell.difference(paper) if brackets and paper is not None else ""))
    return texts


def _printed(row: Row, column: str) -> str:
    """The paper's figure, with the digits that it gives."""
    if column not in row.paper:
        return NONE
    figure = row.paper[column]
    short = column != GAIN and round(figure, 1) == figure
    return f"{figure:.1f}" if short else f"{figure:.2f}"


def _explanations(table: Table) -> list[str]:
    cells = [cell for row in table.rows for cell in row.cells.values()]
    sentences = []
    if counts := sorted({len(cell.values) for cell in cells if cell.error is not None}):
        seeds = " or ".join(map(str, counts))
        sentences.append(f"Mean ± standard error over {seeds} seeds.")
    if any(row.cells and row.paper for row in table.rows):
        sentences.append(BRACKETS)
    if any(row.name.endswith(LEANING) for row in table.rows):
        sentences.append(f"Leaning on each image's own statistics: by {SHARE_RULE}.")
    if any(not cell.complete for cell in cells):
        sentences.append("Not finished: [1/3] says how many of the seeds there are; … is none.")
    return sentences


def markdown(grid: Grid) -> str:
    """A heading, the notes and a pipe table."""

    def pipes(texts: Iterable[str]) -> str:
        return f"| {' | '.join(map(_piped, texts))} |"

    lines = [
        f"### {_piped(grid.title)}",
        "",
        *(f"{_piped(note)}\n" for note in grid.notes),
        pipes(grid.head),
        pipes(["---", "---", *["---:"] * (len(grid.head) - 2)]),
        *map(pipes, grid.rows),
    ]
    return "\n".join(lines) + "\n"


def _piped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{character: "\\" + character for character in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "Δ": r"$\Delta$",
        "…": r"\dots{}",
        "[": "{[}",  # which would be an argument after a line's end
    }
)


def latex(grid: Grid) -> str:
    """A `table` environment, with a label and the best figures in bold, no wider than its line.

    It needs booktabs and graphicx.
    """
    several = len({row[1] for row in grid.rows}) > 1  # ours beside the paper's, for instance
    shown = [place for place in range(len(grid.head)) if several or place != 1]

    def line(texts: Sequence[str], number: int | None = None) -> str:
        cells = [
            f"\\textbf{{{text}}}" if (number, place) in grid.best else text
            for place in shown
            for text in [texts[place].translate(_LATEX)]
        ]
        return f"{' & '.join(cells)} \\\\\n"

    caption = " ".join((f"{grid.title}.", *grid.notes)).translate(_LATEX)
    label = re.sub(r"[^\w-]+", "-", grid.title).strip("-")
    lines = "".join(line(row, number) for number, row in enumerate(grid.rows))
    return (
        "% \\usepackage{booktabs,graphicx}\n"
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n\\label{{tab:{label}}}\n\\smallskip\n"
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{{'l' * (1 + several)}{'r' * (len(grid.head) - 2)}}}\n\\toprule\n"
        f"{line(grid.head)}\\midrule\n{lines}\\bottomrule\n"
        "\\end{tabular}}\n\\end{table}\n"
    )


_STYLE = """
:root { color-scheme: light dark; --line: #8884 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } .wide { overflow-x: auto }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap }
tr { border-bottom: 1px solid var(--line) }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
@media print { .wide { overflow: visible } th, td { white-space: normal; padding: .2rem .4rem } }
"""


def html(grid: Grid) -> str:
    """A page that needs nothing else."""

    def line(texts: Iterable[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>\n"

    title = escape(grid.title)
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in grid.notes)
    rows = "".join(line(row, "td") for row in grid.rows)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body>
<h2>{title}</h2>
{notes}<div class="wide"><table>
{line(grid.head, "th")}{rows}</table></div>
</body></html>
"""


def by_target(table: Table) -> Grid:
    """The same for a terminal: a row per target, a column per method; the paper's figure below."""
    head = ("", *(row.name for row in table.rows))
    lines: list[tuple[str, ...]] = []
    for column in table.columns:
        cells = [row.cells.get(column, Cell({}, 0)) for row in table.rows]
        name = HEADS.get(column, column)
        if any(row.cells for row in table.rows):
            lines.append((name, *map(str, cells)))
            name = "  paper"
        if any(column in row.paper for row in table.rows):
            lines.append((name, *(_printed(row, column) for row in table.rows)))
    of = _whose(table) if any(row.cells for row in table.rows) else "paper"
    return Grid(f"{table.name}: {of}", head, tuple(lines))


def one_name(grid: Grid) -> Grid:
    """The same for a terminal: whose a row is stands below its name, no longer beside it."""
    rows = []
    for name, whose, *cells in grid.rows:
        rows += [(name, *[""] * len(cells))] if name else []
        rows.append((f"  {whose}", *cells))
    return replace(grid, head=("", *grid.head[2:]), rows=tuple(rows))


def figures(tables: Iterable[Table]) -> list[dict[str, str | float | None]]:
    """One entry per figure, unrounded, for programs."""
    found: list[dict[str, str | float | None]] = []
    for table in tables:
        for row, column in product(table.rows, table.columns):
            cell, paper = row.cells.get(column, Cell({}, 0)), row.paper.get(column)
            mean = cell.mean
            found.append(
                {
                    "table": table.name,
                    "row": row.name,
                    "rule": table.rule,
                    "column": column,
                    "mean": mean,
                    "standard_error": cell.error,
                    "seeds": len(cell.values),
                    "planned": cell.planned,
                    "paper": paper,
                    "difference": None if mean is None or paper is None else mean - paper,
                    "measure": table.measure,
                    "margin": cell.margin,
                }
            )
    return found


def comma_separated(tables: Iterable[Table]) -> str:
    """The same as CSV."""
    lines = figures(tables)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
