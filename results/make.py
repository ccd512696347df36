"""Writes docs/results.md with its figure and docs/paper-tables.md from the records.

The prose is in results.md.in, where Jinja2 puts the numbers. After adding records run

python results/make.py
"""

from __future__ import annotations

import io
from collections import Counter
from functools import cache, partial
from itertools import pairwise, product
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import jinja2

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read, undated
from bne.benchmark.reference import AVERAGE, AVERAGE_CLASS, AVERAGE_DEEPALL, GAIN, SUMMARIES
from bne.benchmark.render import HEADS, result_tables
from bne.benchmark.tables import (
    LEANING,
    NONE,
    Cell,
    accuracy,
    accuracy_table,
    average,
    cell,
    find_records,
    percent,
    signed,
)
from bne.data.benchmarks import BENCHMARKS
from bne.recipes.files import load_experiment
from bne.training.scores import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found, Row

HERE = Path(__file__).resolve().parent
RECORDS, TEMPLATE = HERE / "pacs-resnet18", HERE / "results.md.in"
FOLDERS = tuple(HERE / name for name in ("pacs-alexnet", "office31", "office_caltech"))
BEYOND = HERE / "beyond" / "office_caltech.jsonl"
PAGE = HERE.parent / "docs" / "results.md"
TABLES_PAGE = HERE.parent / "docs" / "paper-tables.md"
FIGURE = HERE.parent / "docs" / "figures" / "pacs-gain.svg"

SEEDS = 3
WEIGHTS = {
    "resnet18": "resnet18_imagenet.safetensors",
    "alexnet": "alexnet_imagenet_conv.safetensors",
}
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
# Every table of the paper: two rows that stand for it, the higher in the paper first, and the
# settings to look for.
TABLES: tuple[tuple[str, tuple[str, str], tuple[str, ...]], ...] = (
    (SOTA, ("BNE", DEEPALL), (STANDARD, PAPERS)),
    ("sota-pacs-alexnet", ("BNE", DEEPALL), ("pacs-alexnet",)),
    ("sota-office31-resnet18", ("BNE", DEEPALL), ("office31-resnet18", "default")),
    ("sota-office31-alexnet", ("BNE", DEEPALL), ("office31-alexnet",)),
    (
        "sota-officecaltech-resnet18",
        ("BNE", DEEPALL),
        ("officecaltech-resnet18", "default", "beyond-officecaltech-resnet18"),
    ),
    ("sota-officecaltech-alexnet", ("BNE", DEEPALL), ("officecaltech-alexnet",)),
    (ABLATION, (BNE, ROW_A), (STANDARD,)),
    ("ablation-pacs-alexnet", (BNE, ROW_A), ("pacs-alexnet",)),
    ("distance-pacs-alexnet", ("BNE (wasserstein)", "BNE (uniform)"), ("pacs-alexnet", STANDARD)),
    ("batchsize-pacs-alexnet", ("BNE (64-per-domain)", "BNE (16-per-domain)"), ("pacs-alexnet",)),
    (NORMALIZATION, ("BNE", "BatchNorm"), (STANDARD,)),
    ("closest-domain-accuracy-pacs-resnet18", ("closest", "third"), (STANDARD,)),
    ("domain-accuracy-pacs-resnet18", ("BNE (no-domain-xe)", "BNE (domain-xe)"), (STANDARD,)),
    ("similarity-pacs-resnet18-photo-unseen", ("", ""), (STANDARD,)),
    ("similarity-pacs-resnet18-sketch-unseen", ("", ""), (STANDARD,)),
)
# Methods that the paper's tables of these benchmarks lack, by `default`.
MORE = {"bne-a": "BNE (a)", "dson": "DSON", "freeze-bn": FREEZE}
WITH_MORE = ("sota-office31-resnet18", "sota-officecaltech-resnet18")
ALEXNET = (
    "AlexNet starts from `alexnet_imagenet_conv`, convolutions alone: batch norm starts from "
    "activations of training images, fully connected layers at random. The paper's start has both "
    "trained, so compare methods with each other, and signs with the paper's."
)
INTRODUCTION = """# The paper's tables

Every table of the paper with our figures, in percent, mean ± standard error over seeds, after the last epoch; in brackets the paper's. *Leaning*: the average with [leaning](beyond.md), which the paper does not do. – is not run. Systems that have no [method](methods.md) here are left out. [Results](results.md#every-table-of-the-paper) has a verdict on each table. `python results/make.py` writes this page.
"""  # noqa: E501
# Settings that might explain the smaller gain: the recipe with what changes in both rows, and what
# changes in BNE and in DeepAll alone.
ADAM = {"epoch": 220, "train.schedule.name": "exponential"}
POPULATION = {"options.branch_statistics": "population"}
Settings = dict[str, object]
CAUSES: dict[str, tuple[str, Settings, Settings, Settings]] = {
    "SGD at 1e-3": (STANDARD, {"train.optimiser.learning_rate": 1e-3}, {}, {}),
    "paper's Adam, decay 0.95, population statistics": (PAPERS, ADAM, POPULATION, {}),
    "the same, memory 0.9": (PAPERS, ADAM, {**POPULATION, "options.momentum": 0.1}, {}),
    "distance not squared": (STANDARD, {}, {"options.distance": "root-wasserstein"}, {}),
    "warm-up only for statistics": (
        STANDARD,
        {},
        {"options.distance_training": "after statistics"},
        {},
    ),
    "DeepAll with memory 0.99": (STANDARD, {}, {}, {"options.momentum": 0.01}),
    "DeepAll with unbalanced batches": (STANDARD, {}, {}, {"options.balanced": False}),
}
FURTHER = {"rsc": "RSC", "fusion": "Fusion", "mixstyle": "MixStyle"}  # rivals in no such table
NOT_RUN = "not run yet"


def main() -> None:
    """Writes all files."""
    records, others = all_records(), other_records()
    PAGE.write_text(page(records, others), encoding="utf-8")
    TABLES_PAGE.write_text(tables_page([*records, *others]), encoding="utf-8")
    FIGURE.write_text(figure(records), encoding="utf-8")


def all_records(folder: Path = RECORDS) -> list[Record]:
    """Those of every file of the folder."""
    return [record for file in sorted(folder.glob("*.jsonl")) for record in read(file)]


def other_records() -> list[Record]:
    """Those of the other networks and benchmarks."""
    return [record for folder in FOLDERS for record in all_records(folder)] + read(BEYOND)


def page(records: Sequence[Record], others: Sequence[Record] = ()) -> str:
    """The template with its numbers.

    Args:
        records: of PACS with ResNet-18.
        others: of other networks and benchmarks.
    """
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
        records=len(records) + len(others),
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
        seeds=SEEDS,
        epochs=planned()[0].recipe.train.epochs,
        best={LABELS[name]: best(standard, name) for name in BOTH},
        tables=tables([*records, *others]),
        rivals=rivals(records),
        causes=causes(records),
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
    name: str = ABLATION,
    recipe: str = STANDARD,
    seeds: int = SEEDS,
    rows: tuple[str, ...] = (),
    **overrides: object,
) -> list[Item]:
    """The runs of a table of the paper under a recipe; of some rows only, to be faster."""
    known = {row.title for row in load_experiment(name).rows}
    chosen = choose(table=name, recipe=recipe, rows=[row for row in rows if row in known])
    backbone = str(chosen.settings.get("backbone", "resnet18")).removesuffix("_bn")
    return plan(chosen, seeds, overrides, weights=WEIGHTS[backbone])


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
    """Mean and, over several seeds, standard error; a dash without any."""
    if one.mean is None:
        return NONE
    mean = signed(one.mean, 1) if sign else f"{one.mean:.1f}"
    return mean if one.error is None else f"{mean} ± {one.error:.1f}"


def comparisons(records: Sequence[Record]) -> list[dict[str, Any]]:
    """All neighbours in the paper's orders."""
    runs = {name: find_records(planned(name), records) for name, _ in ORDERS}
    rows = {name: table(name, found) for name, found in runs.items()}
    rows[NORMALIZATION][FREEZE] = clipped(records)
    return [
        compare(rows[name][above], rows[name][below], runs[name])
        for name, order in ORDERS
        for above, below in pairwise(order)
    ]


def compare(above: Row, below: Row, found: Found, column: str = AVERAGE) -> dict[str, Any]:
    """Two rows, ours and the paper's; undecided within the interval of seeds or of images.

    Args:
        above: the row that is higher in the paper.
        below: the other.
        found: the table's runs, which tell the number of test images.
        column: of the figures that are compared.
    """
    # Not the mean of the targets: one table weighs them by their images, as the paper's.
    ours = minus({"": above.cells[column]}, {"": below.cells[column]})[AVERAGE]
    images = {
        item.target: sum(score["images"] for score in record.accuracy["last"].values())
        for item, record in found
        if record
    }
    variance = 0.0
    for row, target in product((above, below), images):
        share = row.cells[target if column == AVERAGE else column].mean or 0.0
        variance += share * (100 - share) / images[target]
    verdict = NOT_RUN
    if ours.mean is not None:
        sure = ours.clear and abs(ours.mean) >= NORMAL * sqrt(variance) / len(images)
        verdict = "undecided" if not sure else "confirmed" if ours.mean > 0 else "reversed"
    return {
        "name": " > ".join(LABELS.get(row.name, row.name) for row in (above, below)),
        "ours": ours,
        "paper": above.paper[column] - below.paper[column],
        "verdict": verdict,
    }


def tables(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every table of the paper with a verdict, by all settings that have records, if any has."""
    lines = []
    for name, pair, recipes in TABLES:
        own = []
        for recipe in recipes:
            changed = {"epoch": 220} if recipe == PAPERS else {}
            found = find_records(planned(name, recipe, rows=pair, **changed), records)
            about = {"table": name, "recipe": recipe, "leaning": Cell({}, 0)}
            if name.startswith("similarity"):
                own.append({**about, **alike(table(name, found))})
                continue
            rows = table(name, found)
            column = AVERAGE_CLASS if name.startswith("domain") else AVERAGE
            leaning = [rows[f"{row}{LEANING}"] for row in pair if f"{row}{LEANING}" in rows]
            if len(leaning) == 2:
                about["leaning"] = minus(*(row.cells for row in leaning))[AVERAGE]
            own.append({**about, **compare(*(rows[row] for row in pair), found, column)})
        lines += [one for one in own if one["verdict"] != NOT_RUN] or own[:1]
    return lines


def tables_page(records: Sequence[Record]) -> str:
    """Every table of the paper that has records, by all settings that have them."""
    parts, missing = [INTRODUCTION], []
    for name, _, recipes in TABLES:
        own = [part for recipe in recipes if (part := table_part(name, recipe, records))]
        parts += own
        if not own:
            missing.append(f"`{name}`")
    if missing:
        parts.append(f"## Not run yet\n\n{', '.join(missing)}.\n")
    return "\n".join(parts)


def table_part(name: str, recipe: str, records: Sequence[Record]) -> str:
    """One table of the paper by some settings, under its heading; empty without records."""
    items = planned(name, recipe, **({"epoch": 220} if recipe == PAPERS else {}))
    found = find_records(items, records)
    known = result_tables(choose(table=name), found, ("last",))[0]
    rows = {row.name: row for row in known.rows}
    if recipe == "default" and name in WITH_MORE:
        asked = choose(recipe=recipe, benchmark=choose(table=name).benchmark, methods=list(MORE))
        further = find_records(plan(asked, SEEDS, {}, weights=WEIGHTS["resnet18"]), records)
        for row in accuracy_table(recipe, further, None, "last").rows:
            method = row.name.removesuffix(LEANING)
            rows[row.name.replace(method, MORE[method])] = row
    if name == NORMALIZATION:
        rows[FREEZE] = clipped(records)
    columns = [column for column in known.columns if column not in (AVERAGE_DEEPALL, GAIN)]
    heads = [TARGETS.get(column, HEADS.get(column, column)) for column in columns]
    lines = [f"## {name}, `{recipe}`", ""]
    alexnet, network = "alexnet" in name, items[0].recipe.backbone
    if network.startswith("alexnet"):
        lines += [ALEXNET, ""]
    elif alexnet:
        lines += ["Ours is of ResNet-18, the paper's of AlexNet.", ""]
    elif name == NORMALIZATION:
        lines += [f"{FREEZE} diverges on one target unless gradients are clipped, here to 10.", ""]
    leaning = any(title.endswith(LEANING) for title in rows)
    lines.append(f"| | {' | '.join([*heads, *['leaning'] * leaning, 'seeds'])} |")
    lines.append(f"| --- |{' ---: |' * (len(heads) + leaning + 1)}")
    missing = []
    for title, row in rows.items():
        if title.endswith(LEANING) or not row.cells:
            continue
        seeds = max(len(cell.values) for cell in row.cells.values())
        if not seeds:
            missing.append(title)
            continue
        texts = [beside(row.cells.get(column), row.paper.get(column)) for column in columns]
        if leaning:
            other = rows.get(f"{title}{LEANING}")
            texts.append(plain(other.cells[AVERAGE]) if other else NONE)
        lines.append(f"| {title} | {' | '.join(texts)} | {seeds} |")
    if len(missing) == sum(bool(row.cells) for row in rows.values()):
        return ""
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    return "\n".join([*lines, ""])


def clipped(records: Sequence[Record]) -> Row:
    """FreezeBatchNorm, which diverges on one target unless gradients are clipped."""
    items = planned(NORMALIZATION, **{"train.optimiser.clip": 10})
    return table(NORMALIZATION, find_records(items, records))[FREEZE]


def beside(ours: Cell | None, paper: float | None) -> str:
    """Our figure, and the paper's in brackets."""
    text = plain(ours) if ours else NONE
    return text if paper is None else f"{text} ({paper:.1f})"


def alike(rows: Mapping[str, Row]) -> dict[str, Any]:
    """How many rows of a table of similarities have the domains in the paper's order."""

    def order(figures: Mapping[str, float | None]) -> list[str]:
        return sorted(figures, key=lambda domain: -(figures[domain] or 0.0))

    known = [row for row in rows.values() if all(cell.values for cell in row.cells.values())]
    means = [{domain: one.mean for domain, one in row.cells.items()} for row in known]
    same = sum(order(ours) == order(row.paper) for ours, row in zip(means, known, strict=True))
    seeds = next((next(iter(row.cells.values())) for row in known), Cell({}, 0))
    verdict = f"order as in the paper in {same} of {len(rows)} rows" if known else NOT_RUN
    name = "domains of each row, nearest first"
    return {"name": name, "ours": Cell({}, 0), "paper": None, "verdict": verdict, "seeds": seeds}


def rivals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The systems of the paper's comparison, ours and the paper's, each above its own DeepAll."""
    further = plan(
        choose(recipe=STANDARD, methods=list(FURTHER)), SEEDS, {}, weights=WEIGHTS["resnet18"]
    )
    rows = table(SOTA, find_records(planned(SOTA), records))
    added = accuracy_table(STANDARD, find_records(further, records), None, "last").rows
    rows |= {FURTHER.get(row.name, row.name): row for row in added}
    lines = []
    for name, row in rows.items():
        if name == DEEPALL or name.endswith(LEANING):
            continue
        ours, base = row.cells[AVERAGE], rows[DEEPALL].cells[AVERAGE]
        gain = minus({"": ours}, {"": base})[AVERAGE]
        leaning = next((r for r in rows if r in (f"{name}{LEANING}", f"{row.name}{LEANING}")), None)
        paper = row.paper.get(AVERAGE)
        lines.append(
            {
                "name": name,
                "ours": ours,
                "gain": gain,
                "leaning": rows[leaning].cells[AVERAGE] if leaning else Cell({}, 0),
                "paper": paper,
                "papers_gain": paper and paper - row.paper[AVERAGE_DEEPALL],
            }
        )
    return lines


def causes(records: Sequence[Record]) -> dict[str, dict[str, Cell]]:
    """The gain of BNE (c) over DeepAll, by target, with each of `CAUSES`."""
    found = {}
    for name, (recipe, both, *own) in CAUSES.items():
        ours, base = (
            cells(find_records(runs, records), row, lambda record: accuracy(record, "last"))
            for row, extra in zip((BNE, DEEPALL), own, strict=True)
            for runs in [planned(recipe=recipe, rows=(row,), **both, **extra)]
        )
        found[name] = minus(ours, base)
    return found


def best(found: Found, row: str) -> float:
    """The mean over targets of the best run and epoch, chosen on the target: an oracle."""
    every = cells(found, row, lambda record: accuracy(record, "oracle"))
    return fmean(max(every[target].values.values()) for target in TARGETS)


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
