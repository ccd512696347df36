"""BNE's gap over DeepAll: ours and the paper's, and what it depends on."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.reference import AVERAGE, find_table
from bne.benchmark.tables import AWAITED, Cell, percent, signed
from bne.training.scores import LABELS
from page import gaps
from page.campaign import (
    ABLATION,
    BNE,
    DEEPALL,
    WEIGHTS,
    difference,
    paper_table,
    target,
)
from page.course import second_half
from page.search import METHODS, last_epoch, settings_tried, shared
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bne.benchmark.records import Record

_LENGTH = {"train.epochs", "train.warm_up", "exact_statistics"}
_BOTH = (*METHODS, "gap", "seeds")


def gap_section(records: Sequence[Record]) -> str:
    """How far BNE lies above DeepAll."""
    ablation = paper_table(ABLATION)
    tables = gaps.by_rule(ablation, records)
    bne, deepall = (gaps.our_row(tables["last"], row) for row in (BNE, DEEPALL))
    if not bne or not deepall:
        return f"{BNE} and {DEEPALL} are not both recorded yet."
    targets = ablation.targets
    ours = {
        f"ours, {LABELS[rule]}": gaps.gap(gaps.our_row(one, BNE), gaps.our_row(one, DEEPALL))
        for rule, one in tables.items()
    }
    paper = gaps.papers_gap(tables["last"], BNE, DEEPALL)
    columns = [*targets, AVERAGE]
    none = Cell({}, 0)
    rows = [[label, *(gaps.text(own.get(c, none)) for c in columns)] for label, own in ours.items()]
    rows.append(["the paper", *(signed(paper[column], 1) for column in columns)])
    errors = gaps.image_errors(bne, deepall, records)
    if len(errors) == len(targets):
        errors[AVERAGE] = gaps.mean_error(errors)
    shown = [f"{errors[column]:.1f}" if column in errors else AWAITED for column in columns]
    rows.append(["error by the number of images", *shown])
    text = (
        f"How many points {BNE} lies above {DEEPALL}, over the seeds that both have, mean ± "
        "standard error where there are several; … is not run yet. The last row is the standard "
        "error of such a difference that the number of test images alone gives, as if the two were "
        "tested on different images; it says nothing of how seeds differ."
    )
    last = ours["ours, last"]
    smaller = [
        f"{column} ({gaps.text(last[column])} instead of {signed(paper[column], 1)})"
        for column in columns
        if (mean := last[column].mean) is not None and mean < paper[column]
    ]
    after = f"Smaller than the paper's after the last epoch: {'; '.join(smaller) or 'none'}."
    return f"{text}\n\n{table(['', *columns], rows)}\n\n{after}"


def length_section(records: Sequence[Record]) -> str:
    """The standard setting at other lengths of training, the search's short runs among them."""

    def length(settings: Mapping[str, Any]) -> tuple[int, int]:
        return settings["train"]["epochs"], settings["train"]["warm_up"]

    rows = [
        [held_out, f"{epochs} ({warm_up})", *figures]
        for held_out, (epochs, warm_up), figures in _standard_but_for(_LENGTH, length, records)
    ]
    if not rows:
        return ""
    text = (
        "The same setting at other lengths of training, last epoch, running statistics, the seeds "
        "that both methods have at every length; the shortest runs are those of the search. No "
        "choice was made by this table."
    )
    return f"{text}\n\n{table(['target', 'epochs (warm-up)', *_BOTH], rows)}"


def _standard_but_for(
    names: set[str],
    key: Callable[[Mapping[str, Any]], tuple[int, ...]],
    records: Sequence[Record],
) -> list[tuple[str, tuple[int, ...], list[str]]]:
    """Both methods and their gap by target and by the value of some settings, the rest standard."""
    found: dict[tuple[str, tuple[int, ...]], dict[str, dict[int, float]]] = {}
    for record in records:
        settings, end = record.settings, last_epoch(record, "running")
        if end and difference(record).keys() <= names and settings["weights"] == WEIGHTS:
            values = found.setdefault((target(record), key(settings)), {})
            values.setdefault(settings["method"], {})[settings["seed"]] = percent(end["target"])
    rows = []
    for (held_out, own), values in sorted(found.items()):
        others = [one for (name, _), one in found.items() if name == held_out]
        whole = [one for one in others if one.keys() >= set(METHODS)]
        every = [set(one[method]) for one in whole for method in METHODS]
        if len(whole) > 1 and values in whole and (seeds := sorted(set.intersection(*every))):
            base, bne = (fmean(values[method][seed] for seed in seeds) for method in METHODS)
            figures = [f"{base:.1f}", f"{bne:.1f}", signed(bne - base, 1), str(len(seeds))]
            rows.append((held_out, own, figures))
    return rows


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


def batch_section(records: Sequence[Record]) -> str:
    """What the paper itself says of batch sizes, and ours."""
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
    papers = f"{text}\n\n{table(['', *sizes.targets, AVERAGE], rows)}"
    return "\n\n".join(filter(None, (papers, _our_batches(records))))


def _our_batches(records: Sequence[Record]) -> str:
    def images(settings: Mapping[str, Any]) -> tuple[int]:
        return (settings["per_domain"],)

    ours = _standard_but_for({"per_domain"}, images, records)
    if not ours:
        return ""
    text = (
        "Ours, with ResNet-18: accuracy on the target after the last epoch, the seeds that both "
        "methods have with every batch. Steps and learning rate are the same, so that more images "
        "are seen with more of them."
    )
    rows = [[held_out, str(number), *figures] for held_out, (number,), figures in ours]
    return f"{text}\n\n{table(['target', 'images a domain', *_BOTH], rows)}"
