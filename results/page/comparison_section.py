"""The section on where our results and the paper's disagree, all of it computed."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bne.evaluation.cells import AWAITED, Cell, signed
from bne.evaluation.grid import LABELS
from bne.evaluation.reference import AVERAGE, find_table
from bne.evaluation.tables import percent
from page import gaps
from page.campaign import ABLATION, BNE, DEEPALL, WEIGHTS, difference, paper_table, target
from page.search import METHODS, last_epoch, settings_tried, shared
from page.words import listed, plural, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record
    from page.gaps import Row

# The paper's order, best first.
ORDERS = (
    (ABLATION, (BNE, "BNE (dt,no-warmup)", "BNE (no-dt,no-warmup)", DEEPALL)),
    (ABLATION, (BNE, DEEPALL)),
    (ABLATION, (BNE, "DNet (dt,warmup)")),
    ("distance-pacs-alexnet", ("BNE (wasserstein)", "BNE (bhattacharyya)", "BNE (uniform)")),
    ("normalization-pacs-resnet18", ("BNE", "FreezeBatchNorm", "BatchNorm", "InstanceNorm")),
    ("closest-domain-accuracy-pacs-resnet18", ("closest", "second", "third")),
)
_LENGTH = {"train.epochs", "train.warm_up", "exact_statistics"}


def headline(records: Sequence[Record]) -> str:
    """The gap in a sentence."""
    tables = gaps.by_rule(paper_table(ABLATION), records)
    ours = {
        rule: gaps.gap(gaps.our_row(one, BNE), gaps.our_row(one, DEEPALL))[AVERAGE]
        for rule, one in tables.items()
    }
    seeds = len(ours["last"].values)
    if not seeds:
        return f"{BNE} and {DEEPALL} are not both recorded on every target yet."
    paper = gaps.papers_gap(tables["last"], BNE, DEEPALL)[AVERAGE]
    return (
        f"So far, over {plural(seeds, 'seed')}, {BNE} lies {gaps.text(ours['last'])} points above "
        f"{DEEPALL} on average after the last epoch, {gaps.text(ours['validation'])} at the epoch "
        f"best on source validation, and {gaps.text(ours['oracle'])} at the oracle's, chosen on "
        f"the target; in the paper {signed(paper, 1)}."
    )


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
    rows.append(["the paper", *(signed(paper[column], 1) for column in columns)])
    rows.append(["error by the number of images", *_image_errors(bne, deepall, targets, records)])
    text = (
        f"How many points {BNE} lies above {DEEPALL}, mean ± standard error over seeds where there "
        "are several; … is not run yet. The last row is the standard error of such a difference "
        "that the number of test images alone gives, as if the two were tested on different "
        "images; it says nothing of how seeds differ."
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
    rows = []
    for name, order in ORDERS:
        one = gaps.by_rule(paper_table(name), records)["last"]
        for better, worse in pairwise(order):
            paper = gaps.papers_gap(one, better, worse)[AVERAGE]
            above, below = (gaps.our_row(one, row).get(AVERAGE) for row in (better, worse))
            ours = gaps.minus(above, below)
            verdict = AWAITED if ours.mean is None else "yes" if ours.mean > 0 else "**no**"
            rows.append([f"{better} > {worse}", name, verdict, gaps.text(ours), signed(paper, 1)])
    head = ["the paper's order", "table", "ours too?", "our difference", "the paper's"]
    text = "Average after the last epoch, in points; … is not run on every target yet."
    return f"{text}\n\n{table(head, rows, texts=3)}"


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
        rows.append([str(tuning), str(tuning.epochs), *cells])
    text = (
        "The search's runs under every setting that both methods were tried with on every target: "
        "accuracy on the target of deepall, of bne, and the gap. The paper's own optimiser is Adam "
        "1e-4; it gives no schedule for ResNet. No choice was made by this table."
    )
    return f"{text}\n\n{table(['setting', 'epochs', *targets, 'mean'], rows)}"


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


def _image_errors(
    bne: Row, deepall: Row, targets: Sequence[str], records: Sequence[Record]
) -> list[str]:
    images = {target(r): sum(s["images"] for s in r.accuracy["last"].values()) for r in records}
    errors = []
    for name in targets:
        means = [mean for row in (bne, deepall) if (mean := row[name].mean) is not None]
        if len(means) < 2:
            return [AWAITED] * (len(targets) + 1)
        errors.append(gaps.image_error(means, images[name]))
    whole = sum(error**2 for error in errors) ** 0.5 / len(errors)
    return [f"{error:.1f}" for error in (*errors, whole)]
