"""The section on where our results and the paper's disagree, all of it computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bne.evaluation.cells import AWAITED, Cell, signed
from bne.evaluation.grid import LABELS
from bne.evaluation.reference import AVERAGE, find_table
from bne.evaluation.tables import percent
from page import gaps
from page.campaign import (
    ABLATION,
    BNE,
    DEEPALL,
    NORMALISATION,
    WEIGHTS,
    difference,
    paper_table,
    target,
)
from page.course import second_half
from page.search import METHODS, last_epoch, settings_tried, shared
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record
    from page.gaps import Row

# The paper's order, best first.
ORDERS = (
    (ABLATION, (BNE, "BNE (dt,no-warmup)", "BNE (no-dt,no-warmup)", DEEPALL)),
    (ABLATION, (BNE, "BNE (no-dt,no-warmup)")),
    (ABLATION, (BNE, DEEPALL)),
    (ABLATION, (BNE, "DNet (dt,warmup)")),
    ("distance-pacs-alexnet", ("BNE (wasserstein)", "BNE (bhattacharyya)", "BNE (uniform)")),
    (NORMALISATION, ("BNE", "FreezeBatchNorm", "BatchNorm", "InstanceNorm")),
    ("closest-domain-accuracy-pacs-resnet18", ("closest", "second", "third")),
)
_LENGTH = {"train.epochs", "train.warm_up", "exact_statistics"}


def gap_section(records: Sequence[Record]) -> str:
    """How far BNE lies above DeepAll."""
    ablation = paper_table(ABLATION)
    tables = gaps.by_rule(ablation, records)
    bne, deepall = (gaps.our_row(tables["last"], row) for row in (BNE, DEEPALL))
    if not bne or not deepall:
        return f"{BNE} and {DEEPALL} are not both recorded yet."
    targets = list(dict.fromkeys(item.target for item in ablation.items))
    ours = {
        LABELS[rule]: gaps.gap(gaps.our_row(one, BNE), gaps.our_row(one, DEEPALL))
        for rule, one in tables.items()
    }
    paper = gaps.papers_gap(tables["last"], BNE, DEEPALL)
    columns = [*targets, AVERAGE]
    none = Cell({}, 0)
    rows = [[label, *(gaps.text(own.get(c, none)) for c in columns)] for label, own in ours.items()]
    whole = [gaps.of_means(bne.get(column), deepall.get(column)) for column in columns]
    rows.insert(1, ["ours, last, all seeds of each", *whole])
    rows.append(["the paper", *(signed(paper[column], 1) for column in columns)])
    errors = image_errors(bne, deepall, records)
    shown = [f"{errors[column]:.1f}" if errors else AWAITED for column in columns]
    rows.append(["error by the number of images", *shown])
    text = (
        f"How many points {BNE} lies above {DEEPALL}, over the seeds that both have, mean ± "
        "standard error where there are several; … is not run yet. The last row is the standard "
        "error of such a difference that the number of test images alone gives, as if the two were "
        "tested on different images; it says nothing of how seeds differ."
    )
    last = ours[LABELS["last"]]
    smaller = [
        f"{column} ({gaps.text(last[column])} instead of {signed(paper[column], 1)})"
        for column in columns
        if (mean := last[column].mean) is not None and mean < paper[column]
    ]
    after = f"Smaller than the paper's after the last epoch: {'; '.join(smaller) or 'none'}."
    return f"{text}\n\n{table(['', *columns], rows)}\n\n{after}"


def order_section(records: Sequence[Record]) -> str:
    """Which of the paper's rows are in the same order with us."""
    rows = [
        [f"{o.better} > {o.worse}", o.table, o.verdict, o.difference, signed(o.papers, 1)]
        for o in orders(records)
    ]
    head = ["the paper's order", "table", "ours too?", "our difference", "the paper's"]
    text = (
        "Average after the last epoch, in points, over the seeds that both rows have; … is not run "
        "yet. Where targets are missing, both differences are of those that there are. An order "
        "is called open while the difference is below twice the standard error that the number of "
        "test images alone gives it."
    )
    return f"{text}\n\n{table(head, rows, texts=3)}"


@dataclass(frozen=True)
class Order:
    """Two rows of a table of the paper, the better first, and ours.

    Attributes:
        better: a row.
        worse: another.
        table: that has them.
        papers: difference, on the targets that we have, or on all if we have none.
        difference: ours, in words.
        verdict: "yes", "no", "open", or that it is awaited.
    """

    better: str
    worse: str
    table: str
    papers: float
    difference: str
    verdict: str


def orders(records: Sequence[Record]) -> list[Order]:
    """All pairs of neighbours in the paper's orders."""
    images = _test_images(records)
    found = []
    for name, rows in ORDERS:
        one = gaps.by_rule(paper_table(name), records)["last"]
        for better, worse in pairwise(rows):
            above, below = (gaps.our_row(one, row) for row in (better, worse))
            both = gaps.gap(above, below)
            own = {t: c.mean for t, c in both.items() if t in images and c.mean is not None}
            papers = gaps.papers_gap(one, better, worse)
            if not own:
                found.append(Order(better, worse, name, papers[AVERAGE], AWAITED, AWAITED))
                continue
            whole = len(own) == len(images)
            mean = fmean(own.values())
            means = [[row[t].mean or 0.0 for row in (above, below)] for t in own]
            errors = [gaps.image_error(m, images[t]) for m, t in zip(means, own, strict=True)]
            error = sum(e**2 for e in errors) ** 0.5 / len(errors)
            verdict = "open" if abs(mean) < 2 * error else "yes" if mean > 0 else "**no**"
            where = "" if whole else f" ({listed(own)})"
            paper = papers[AVERAGE] if whole else fmean(papers[t] for t in own)
            difference = signed(mean, 1) + where
            found.append(Order(better, worse, name, paper, difference, verdict))
    return found


def length_section(records: Sequence[Record]) -> str:
    """The standard setting at other lengths of training, the search's short runs among them."""
    found: dict[tuple[str, int, int], dict[str, dict[int, float]]] = {}
    for record in records:
        settings, train = record.settings, record.settings["train"]
        end = last_epoch(record, "running")
        standard = difference(record).keys() <= _LENGTH and settings["weights"] == WEIGHTS
        if end and standard:
            values = found.setdefault((target(record), train["epochs"], train["warm_up"]), {})
            values.setdefault(settings["method"], {})[settings["seed"]] = percent(end["target"])
    rows = []
    for (held_out, epochs, warm_up), values in sorted(found.items()):
        base, own = values.get("deepall", {}), values.get("bne", {})
        if seeds := sorted(base.keys() & own.keys()):
            means = [fmean(scores[seed] for seed in seeds) for scores in (base, own)]
            figures = [*(f"{mean:.1f}" for mean in means), signed(means[1] - means[0], 1)]
            rows.append([held_out, f"{epochs} ({warm_up})", *figures, str(len(seeds))])
    text = (
        "The same setting at other lengths of training, last epoch, running statistics, the seeds "
        "that both methods have; the shortest runs are those of the search. No choice was made by "
        "this table."
    )
    head = ["target", "epochs (warm-up)", "deepall", "bne", "gap", "seeds"]
    return f"{text}\n\n{table(head, rows)}"


def optimiser_section(search: Sequence[Record]) -> str:
    """The gap under every setting of the search that was tried with both methods."""
    common = shared(settings_tried(search))
    targets = list(dict.fromkeys(target(record) for record in search))
    rows = []
    for tuning in dict.fromkeys(setting.tuning for setting in common):
        own = [next(s for s in common if (s.tuning, s.method) == (tuning, m)) for m in METHODS]
        pairs = [[setting.on_target(name, "running") or 0.0 for setting in own] for name in targets]
        pairs.append([fmean(values) for values in zip(*pairs, strict=True)])
        cells = [f"{a:.1f}, {b:.1f}: {signed(b - a, 1)}" for a, b in pairs]
        halves = [fmean(v for r in s.records for v in second_half(r)) for s in own]
        cells.append(signed(halves[1] - halves[0], 1))
        rows.append([str(tuning), str(tuning.epochs), *cells])
    text = (
        "The search's runs under every setting that both methods were tried with on every target: "
        "accuracy on the target of deepall, of bne, and the gap after the last epoch; then the "
        "mean gap over the second half of the epochs, which depends less on the last. The paper's "
        "own optimiser is Adam 1e-4; it gives no schedule for ResNet. No choice was made by this "
        "table."
    )
    head = ["setting", "epochs", *targets, "mean", "second half"]
    return f"{text}\n\n{table(head, rows)}"


def batch_section() -> str:
    """What the paper itself says of batch sizes."""
    sizes, main = find_table("batchsize-pacs-alexnet"), find_table("sota-pacs-alexnet")
    base, own = sizes.row(DEEPALL), main.row("BNE")
    assert base is not None
    assert own is not None
    rows = []
    same = []
    for row in sizes.rows:
        if row is not base:
            gains = [row.cells[name] - base.cells[name] for name in sizes.targets]
            gains.append(row.summaries[AVERAGE] - base.summaries[AVERAGE])
            rows.append([row.variant, *(signed(gain, 1) for gain in gains)])
            same += [row.variant] if row.cells == own.cells else []
    text = (
        "How many points BNE lies above DeepAll in the paper's own table of batch sizes, which is "
        "of AlexNet. Its text has 6 images a domain for AlexNet and 16 for ResNet-18, which are "
        f"ours; but the figures of its other tables with AlexNet are those of {listed(same)}."
    )
    return f"{text}\n\n{table(['', *sizes.targets, AVERAGE], rows)}"


def image_errors(bne: Row, deepall: Row, records: Sequence[Record]) -> dict[str, float]:
    """By target, then of the average: what the number of test images alone gives a difference."""
    images = _test_images(records)
    errors = {}
    for name, count in images.items():
        means = [cell.mean for row in (bne, deepall) if (cell := row.get(name))]
        if None in means or len(means) < 2:
            return {}
        errors[name] = gaps.image_error([mean for mean in means if mean is not None], count)
    return {**errors, AVERAGE: sum(e**2 for e in errors.values()) ** 0.5 / len(errors)}


def _test_images(records: Sequence[Record]) -> dict[str, int]:
    """By target."""
    counts = {target(r): sum(s["images"] for s in r.accuracy["last"].values()) for r in records}
    return dict(sorted(counts.items()))
