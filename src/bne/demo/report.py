"""The demo's result as one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bne.benchmark.tables import Cell, average
from bne.demo.experiment import ROWS
from bne.report.look import looks, picture
from bne.report.page import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.data.cache import PreparedImages
    from bne.demo.experiment import Outcome, Settings, Unseen
    from bne.report.look import Look

SHOWN = 14  # images of each domain


@dataclass(frozen=True)
class DemoPage:
    """What the template shows."""

    title: str
    seeds: int
    settings: Settings
    strips: Mapping[str, Mapping[str, str]]  # pictures by domain and name
    rows: Mapping[str, Sequence[Cell]]  # accuracies by row, on each target and their average
    examples: Mapping[str, Sequence[Unseen]]  # by target
    looks: Mapping[str, Look]


def cells(outcomes: Sequence[Outcome], row: str) -> dict[str, Cell]:
    """The accuracy of a row, one of `ROWS`, on each target."""
    method, leaning = ROWS[row]
    own = [outcome for outcome in outcomes if outcome.method == method]
    figures = {(o.target, o.seed): o.accuracy(leaning=leaning) for o in own}
    found = {o.target: {s: f for (t, s), f in figures.items() if t == o.target} for o in own}
    return {target: Cell(values, len(values)) for target, values in found.items()}


def page(prepared: PreparedImages, outcomes: Sequence[Outcome], settings: Settings) -> str:
    """The page.

    Args:
        prepared: the images that were compared on.
        outcomes: of `bne.demo.compare`.
        settings: of all runs.
    """
    domains = prepared.images.domains
    rows = {row: list(cells(outcomes, row).values()) for row in ROWS}
    content = DemoPage(
        title="Digits from a domain never seen",
        seeds=len({outcome.seed for outcome in outcomes}),
        settings=settings,
        strips={domain: _strip(prepared, domain) for domain in domains},
        rows={row: [*own, average(own)] for row, own in rows.items()},
        examples={
            domain: next(o.examples for o in outcomes if o.target == domain and o.examples)
            for domain in domains
        },
        looks=looks(domains, domains),
    )
    return render("demo", content)


def _strip(prepared: PreparedImages, domain: str) -> dict[str, str]:
    numbers = prepared.images.indices_of([domain])
    shown = numbers[:: max(1, len(numbers) // SHOWN)][:SHOWN]
    return {prepared.images.files[n].name: picture(prepared.pixels[n]) for n in shown}
