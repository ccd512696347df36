"""The paper's rows in order of accuracy, and whether ours are in the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import AWAITED, signed
from page import gaps
from page.campaign import ABLATION, BNE, DEEPALL, FREEZE, NORMALISATION, ROW_A, ROW_B, paper_table
from page.words import listed, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record

# The paper's order, best first.
ORDERS = (
    (ABLATION, (BNE, ROW_B, ROW_A, DEEPALL)),
    (ABLATION, (BNE, ROW_A)),
    (ABLATION, (BNE, DEEPALL)),
    (ABLATION, (BNE, "DNet (dt,warmup)")),
    ("sota-pacs-resnet18", ("DSON", "BNE")),
    ("distance-pacs-alexnet", ("BNE (wasserstein)", "BNE (bhattacharyya)", "BNE (uniform)")),
    (NORMALISATION, ("BNE", FREEZE, "BatchNorm", "InstanceNorm")),
    ("closest-domain-accuracy-pacs-resnet18", ("closest", "second", "third")),
)


def order_section(records: Sequence[Record]) -> str:
    """Which of the paper's rows are in the same order with us."""
    rows = [
        [f"{o.better} > {o.worse}", o.table, o.verdict, o.text, signed(o.papers, 1), str(o.seeds)]
        for o in orders(records)
    ]
    head = ["the paper's order", "table", "ours too?", "our difference", "the paper's", "seeds"]
    text = (
        "Average after the last epoch, in points, over the seeds that both rows have; … is not run "
        "yet. Where a target has no record, because it is not run or its run failed, both "
        "differences are of those that have. An order is called open while the difference is below "
        "twice the standard error that the number of test images alone gives it. FreezeBatchNorm "
        "is that of the main table, with clipped gradients."
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
        ours: the same of ours; None if it is not run.
        error: of ours, by the number of test images alone.
        where: the targets that we have, in words, if not all.
        seeds: that both rows have.
    """

    better: str
    worse: str
    table: str
    papers: float
    ours: float | None = None
    error: float = 0.0
    where: str = ""
    seeds: int = 0

    @property
    def verdict(self) -> str:
        """Yes, no, open, or that it is awaited."""
        if self.ours is None:
            return AWAITED
        return "open" if abs(self.ours) < 2 * self.error else "yes" if self.ours > 0 else "**no**"

    @property
    def alike(self) -> bool:
        """Whether the paper's difference is ours, within twice the error."""
        return self.ours is not None and abs(self.ours - self.papers) < 2 * self.error

    @property
    def text(self) -> str:
        """Our difference, and on which targets if not on all."""
        return AWAITED if self.ours is None else signed(self.ours, 1) + self.where


def orders(records: Sequence[Record]) -> list[Order]:
    """All pairs of neighbours in the paper's orders."""
    every = gaps.test_images(records)
    found = []
    for name, rows in ORDERS:
        one = gaps.by_rule(paper_table(name), records)["last"]
        for better, worse in pairwise(rows):
            above, below = (gaps.last_of(name, row, records) for row in (better, worse))
            both = gaps.gap(above, below)
            own = {t: c.mean for t, c in both.items() if t in every and c.mean is not None}
            papers = gaps.papers_gap(one, better, worse)
            if not own:
                found.append(Order(better, worse, name, papers[AVERAGE]))
                continue
            whole = len(own) == len(every)
            # A table may weigh targets by their images, as the paper's does.
            table_mean = gaps.minus(above.get(AVERAGE), below.get(AVERAGE)).mean
            mean = table_mean if whole and table_mean is not None else fmean(own.values())
            error = gaps.mean_error(gaps.image_errors(above, below, records))
            where = "" if whole else f" ({listed(own)})"
            paper = papers[AVERAGE] if whole else fmean(papers[t] for t in own)
            seeds = len({seed for t in own for seed in both[t].values})
            found.append(Order(better, worse, name, paper, mean, error, where, seeds))
    return found
