"""Writes docs/results.md and its figure from the records in pacs-resnet18/.

The prose is in results.md.in, where Jinja2 puts the numbers. After adding records run

python results/make.py
"""

from __future__ import annotations

import io
from collections import Counter
from functools import cache, partial
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import jinja2

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read, undated
from bne.benchmark.reference import AVERAGE, SUMMARIES
from bne.benchmark.render import result_tables
from bne.benchmark.tables import Cell, accuracy, average, cell, find_records, percent, signed
from bne.data.benchmarks import BENCHMARKS
from bne.training.scores import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found, Row

HERE = Path(__file__).resolve().parent
RECORDS, TEMPLATE = HERE / "pacs-resnet18", HERE / "results.md.in"
PAGE = HERE.parent / "docs" / "results.md"
FIGURE = HERE.parent / "docs" / "figures" / "pacs-gain.svg"

SEEDS, WEIGHTS = 3, "resnet18_imagenet.safetensors"
STANDARD, STRONG, PAPERS = "pacs-resnet18-standard", "pacs-resnet18-strong", "pacs-resnet18"
ABLATION, SOTA, FREEZE = "ablation-pacs-resnet18", "sota-pacs-resnet18", "FreezeBatchNorm"
NORMALIZATION = "normalization-pacs-resnet18"
DEEPALL, BNE = BOTH = "DeepAll", "BNE (dt,warmup)"
ROW_A, ROW_B = "BNE (no-dt,no-warmup)", "BNE (dt,no-warmup)"
DNET = "DNet (dt,warmup)"
LABELS = {DEEPALL: DEEPALL, ROW_A: "BNE (a)", ROW_B: "BNE (b)", BNE: "BNE (c)", DNET: "DNet"}
TARGETS = {"art_painting": "art", "cartoon": "cartoon", "photo": "photo", "sketch": "sketch"}
COLUMNS = {**TARGETS, AVERAGE: "average"}
CLASSES = BENCHMARKS["pacs"].classes
NORMAL = 1.96  # standard errors in half a 95 % interval, of thousands of images
# Rows of the paper's tables in its order, the best first.
ORDERS = (
    (ABLATION, (BNE, ROW_B, ROW_A, DEEPALL)),
    (ABLATION, (BNE, ROW_A)),
    (ABLATION, (BNE, DEEPALL)),
    (ABLATION, (BNE, DNET)),
    (SOTA, ("DSON", "BNE")),
    ("distance-pacs-alexnet", ("BNE (wasserstein)", "BNE (bhattacharyya)", "BNE (uniform)")),
    (NORMALIZATION, ("BNE", FREEZE, "BatchNorm", "InstanceNorm")),
    ("closest-domain-accuracy-pacs-resnet18", ("closest", "second", "third")),
)


def main() -> None:
    """Writes both files."""
    records = all_records()
    PAGE.write_text(page(records), encoding="utf-8")
    FIGURE.write_text(figure(records), encoding="utf-8")


def all_records(folder: Path = RECORDS) -> list[Record]:
    """Those of every file of the folder."""
    return [record for file in sorted(folder.glob("*.jsonl")) for record in read(file)]


def page(records: Sequence[Record]) -> str:
    """The template with its numbers."""
    standard = find_records(planned(), records)
    papers = find_records(planned(recipe=PAPERS, seeds=1, epoch=220), records)
    version, strong = strong_runs(records)
    value = running_accuracy if version == 1 else lambda record: accuracy(record, "last")
    strong_cells = {name: cells(strong, name, value) for name in BOTH}
    rows, persons = table(ABLATION, standard), partial(recall, classes=["person"])
    compared = comparisons(records)
    environment = jinja2.Environment(  # noqa: S701 (Markdown, not HTML)
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"plain": plain, "gain": partial(plain, sign=True), "mean": fmean}
    environment.filters |= {"signed": partial(signed, digits=1)}
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        records=len(records),
        outdated=sum(r.settings["exact_statistics"] and version_of(r) == 1 for r in records),
        columns=COLUMNS,
        main={LABELS[name]: rows[name] for name in (DEEPALL, ROW_A, ROW_B, BNE)}
        | {"DSON": table(SOTA, find_records(planned(SOTA), records))["DSON"]},
        gains=gains(rows),
        paper=papers_gains(rows),
        by_rule={rule: gains(table(ABLATION, standard, rule))[AVERAGE] for rule in RULES},
        by_papers={rule: gains(table(ABLATION, papers, rule))[AVERAGE] for rule in RULES},
        by_class=minus(*(cells(standard, row, recall) for row in (BNE, DEEPALL)))[AVERAGE],
        persons=minus(*(cells(standard, row, persons) for row in (BNE, DEEPALL)))["sketch"],
        comparisons=compared,
        verdicts=Counter(one["verdict"] for one in compared),
        version=version,
        strong={LABELS[name]: strong_cells[name] for name in BOTH},
        strong_gain=minus(strong_cells[BNE], strong_cells[DEEPALL]),
        lift=minus(strong_cells[DEEPALL], rows[DEEPALL].cells)[AVERAGE],
        held_out={"standard": mean_held_out(standard), "strong": mean_held_out(strong)},
        statistics=exact_or_running(records),
    )


def figure(records: Sequence[Record]) -> str:
    """The gain over DeepAll by target, ours beside the paper's, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = table(ABLATION, find_records(planned(), records))
    ours, paper = gains(rows), papers_gains(rows)
    means = [ours[column].mean or 0.0 for column in COLUMNS]
    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bne", "font.size": 9}):
        drawing = Figure(figsize=(6, 2.6), layout="constrained")
        axes = drawing.add_subplot()
        for shift, color, label, heights, errors in (
            (-0.2, "#3f51b5", "ours", means, [ours[column].error for column in COLUMNS]),
            (0.2, "#bdbdbd", "the paper's", [paper[column] for column in COLUMNS], None),
        ):
            places = [place + shift for place in range(len(COLUMNS))]
            bars = axes.bar(
                places, heights, 0.38, 0, color=color, label=label, yerr=errors, capsize=3
            )
            axes.bar_label(bars, [signed(height, 1) for height in heights], padding=2)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(COLUMNS)), list(COLUMNS.values()))
        axes.set_ylabel("points above DeepAll")
        axes.margins(y=0.12)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center")
        drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@cache
def planned(
    name: str = ABLATION, recipe: str = STANDARD, seeds: int = SEEDS, **overrides: object
) -> list[Item]:
    """The runs of a table of the paper under a recipe."""
    return plan(choose(table=name, recipe=recipe), seeds, overrides, weights=WEIGHTS)


def table(name: str, found: Found, rule: str = "last") -> dict[str, Row]:
    """The rows of a table, ours and the paper's."""
    return {row.name: row for row in result_tables(choose(table=name), found, (rule,))[0].rows}


def cells(found: Found, row: str, value: Callable[[Record], float | None]) -> dict[str, Cell]:
    """A figure of one row's runs by target, and the average."""
    own = [(item, record) for item, record in found if item.row == row]
    by_target = {target: cell(own, target, value) for target in TARGETS}
    return {**by_target, AVERAGE: average(list(by_target.values()))}


def minus(ours: Mapping[str, Cell], base: Mapping[str, Cell]) -> dict[str, Cell]:
    """The difference by target and on average, over the seeds that both have."""
    found = {}
    for target in [name for name in ours if name in base and name not in SUMMARIES]:
        mine, theirs = ours[target].values, base[target].values
        both = sorted(mine.keys() & theirs.keys())
        found[target] = Cell({seed: mine[seed] - theirs[seed] for seed in both}, len(both))
    return {**found, AVERAGE: average(list(found.values()))}


def gains(rows: Mapping[str, Row]) -> dict[str, Cell]:
    """BNE (c) above DeepAll."""
    return minus(rows[BNE].cells, rows[DEEPALL].cells)


def papers_gains(rows: Mapping[str, Row]) -> dict[str, float]:
    """The same in the paper."""
    return {column: rows[BNE].paper[column] - rows[DEEPALL].paper[column] for column in COLUMNS}


def plain(one: Cell, *, sign: bool = False) -> str:
    """Mean and, over several seeds, standard error."""
    mean = signed(one.mean or 0.0, 1) if sign else f"{one.mean:.1f}"
    return mean if one.error is None else f"{mean} ± {one.error:.1f}"


def comparisons(records: Sequence[Record]) -> list[dict[str, Any]]:
    """All neighbours in the paper's orders; undecided within the interval of seeds or of images."""
    tables = {name: table(name, find_records(planned(name), records)) for name, _ in ORDERS}
    # FreezeBatchNorm diverges on one target unless gradients are clipped.
    clipped = find_records(planned(NORMALIZATION, **{"train.optimiser.clip": 10}), records)
    tables[NORMALIZATION][FREEZE] = table(NORMALIZATION, clipped)[FREEZE]
    scores = {t: s for r in records for t, s in r.accuracy["last"].items()}
    found = []
    for name, order in ORDERS:
        for pair in pairwise(order):
            above, below = (tables[name][row] for row in pair)
            # Not the mean of the targets: one table weighs them by their images, as the paper's.
            ours = minus({"": above.cells[AVERAGE]}, {"": below.cells[AVERAGE]})[AVERAGE]
            shares = [(row.cells[t].mean or 0.0, t) for row in (above, below) for t in TARGETS]
            error = sqrt(sum(p * (100 - p) / scores[t]["images"] for p, t in shares)) / len(TARGETS)
            sure = ours.clear and abs(ours.mean) >= NORMAL * error
            verdict = "undecided" if not sure else "confirmed" if ours.mean > 0 else "reversed"
            label = " > ".join(LABELS.get(row, row) for row in pair)
            paper = above.paper[AVERAGE] - below.paper[AVERAGE]
            found.append({"name": label, "ours": ours, "paper": paper, "verdict": verdict})
    return found


def recall(record: Record, classes: Sequence[str] = CLASSES) -> float:
    """Accuracy on some classes of the target, each counted alike."""
    (confusion,) = record.analysis["target"]["confusion"].values()
    own = [CLASSES.index(name) for name in classes]
    return fmean(100 * confusion[place][place] / sum(confusion[place]) for place in own)


def strong_runs(records: Sequence[Record]) -> tuple[int, Found]:
    """The version of the statistics, and the runs with strong augmentation.

    Version 2 if DeepAll and BNE have it on every target, with one seed at least.
    """
    for version in (2, 1):
        known = {undated(r.settings): r for r in records if version_of(r) == version}
        items = planned(recipe=STRONG)
        found = [(item, known.get(undated(item.settings))) for item in items]
        if all(cells(found, row, running_accuracy)[AVERAGE].values for row in BOTH):
            break
    return version, found


def version_of(record: Record) -> int:
    """Of the way that exact statistics are computed; the first had a fault."""
    return int(record.settings.get("statistics", 1))


def last_epoch(record: Record, statistics: str = "running") -> Mapping[str, Any]:
    """The scores after the last epoch with such statistics; empty if there are none."""
    last = ("train", record.epochs[-1]["epoch"], statistics)
    same = (e for e in record.epochs if (e["phase"], e["epoch"], e["statistics"]) == last)
    return next(same, {})


def running_accuracy(record: Record) -> float:
    """On the target after the last epoch, with running statistics."""
    return percent(last_epoch(record)["target"])


def held_out(record: Record, statistics: str = "running") -> float:
    """Accuracy on held-out source images after the last epoch, mean over domains."""
    scores = last_epoch(record, statistics)["validation"]
    return fmean(percent({name: score}) for name, score in scores.items())


def mean_held_out(found: Found) -> float:
    """Over the runs of DeepAll and BNE (c)."""
    return fmean(held_out(record) for item, record in found if record and item.row in BOTH)


def exact_or_running(records: Sequence[Record]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """What exact statistics change on held-out images and on the target, one pair a run.

    By augmentation and method; runs of the first version are left out.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record in [one for one in records if version_of(one) > 1 and last_epoch(one, "exact")]:
        on_held_out = held_out(record, "exact") - held_out(record)
        on_target = percent(last_epoch(record, "exact")["target"]) - running_accuracy(record)
        kind = record.settings["augmentation"], record.settings["method"]
        found.setdefault(kind, []).append((on_held_out, on_target))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main()
