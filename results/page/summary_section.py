"""The page in a few sentences, all of them computed but the last."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import signed
from page import gaps
from page.campaign import ABLATION, BNE, DEEPALL, paper_table, papers_settings
from page.order_section import orders
from page.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Cell
    from page.campaign import Wanted


def summary_section(records: Sequence[Record], finalists: Sequence[Wanted]) -> str:
    """A list: the gap, also under other settings, and the orders.

    Args:
        records: of the tables.
        finalists: of the search beside the standard setting, which won.
    """
    lines = [_gap(records), _by_the_papers_settings(records)]
    lines += [_by_a_finalist(one, records) for one in finalists]
    return "\n".join(f"- {line}" for line in (*lines, _orders(records)) if line)


def _gap(records: Sequence[Record]) -> str:
    tables = gaps.by_rule(paper_table(ABLATION), records)
    bne, deepall = (gaps.our_row(tables["last"], row) for row in (BNE, DEEPALL))
    ours = _gaps(paper_table(ABLATION), records)
    if not ours["last"].values:
        return f"{BNE} and {DEEPALL} are not both recorded on every target yet."
    paper = gaps.papers_gap(tables["last"], BNE, DEEPALL)[AVERAGE]
    error = gaps.mean_error(gaps.image_errors(bne, deepall, records))
    return (
        f"**Our settings**: BNE (c) {_with_seeds(bne[AVERAGE])}, DeepAll "
        f"{_with_seeds(deepall[AVERAGE])}, mean of the four targets after the last epoch. The gap, "
        f"in the paper {signed(paper, 1)}, on the seeds that both have: {_by_rule(ours)}. The "
        f"number of test images alone gives such a difference a standard error of {error:.1f}."
    )


def _by_the_papers_settings(records: Sequence[Record]) -> str:
    ours = _gaps(papers_settings(), records)
    seeds = len(ours["last"].values)
    if not seeds:
        return "**The paper's own settings**, 60 epochs: not run on every target yet."
    what = f"**The paper's own settings**, 60 epochs, {plural(seeds, 'seed')}"
    return f"{what}: the gap is {_by_rule(ours)}."


def _by_a_finalist(wanted: Wanted, records: Sequence[Record]) -> str:
    ours = _gaps(wanted, records)
    seeds = len(ours["last"].values)
    name = wanted.title.split(": ")[1]
    what = f"**The other finalist of the search**, {name}, {plural(seeds, 'seed')}"
    return f"{what}: the gap is {_by_rule(ours)}." if seeds else ""


def _orders(records: Sequence[Record]) -> str:
    found = orders(records)
    verdicts = Counter(order.verdict.strip("*") for order in found)
    alike = sum(order.alike for order in found)
    left = verdicts.total() - sum(verdicts[verdict] for verdict in ("yes", "no", "open"))
    rest = f", {left} not run yet" if left else ""
    within = [order for order in found if order.verdict == "open"]
    other = sum(order.ours is not None and order.ours < 0 for order in within)
    excluded = sum(not order.alike for order in within)
    return (
        f"**The order of the paper's rows**: of {verdicts.total()} pairs {verdicts['yes']} have "
        f"the paper's sign, {verdicts['no']} the other, {verdicts['open']} are within the error"
        f"{rest}. Of those within it {other} have the other sign, and in {excluded} the paper's "
        f"difference is excluded. In {alike} of all the paper's difference is ours within twice "
        "the error."
    )


def _gaps(wanted: Wanted, records: Sequence[Record]) -> dict[str, Cell]:
    """By rule, of the average."""
    return {
        rule: gaps.gap(gaps.our_row(one, BNE), gaps.our_row(one, DEEPALL))[AVERAGE]
        for rule, one in gaps.by_rule(wanted, records).items()
    }


def _by_rule(ours: dict[str, Cell]) -> str:
    return (
        f"{gaps.text(ours['last'])} after the last epoch, {gaps.text(ours['validation'])} at the "
        f"epoch best on source validation, {gaps.text(ours['oracle'])} at the oracle's, chosen on "
        "the target"
    )


def _with_seeds(cell: Cell) -> str:
    error = "" if cell.error is None else f" ± {cell.error:.1f}"
    return f"{cell.mean:.1f}{error} ({plural(len(cell.values), 'seed')})"
