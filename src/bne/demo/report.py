"""The demo's result as one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.benchmark.tables import Cell, average, signed
from bne.demo.experiment import ROWS
from bne.report.benchmark_page import SHAPES
from bne.report.look import PALETTE, looks, picture
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
    answer: str  # what wins, by how much
    chart_data: Mapping[str, Any]  # for `demo.js`
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


def answer(averages: Mapping[str, Cell]) -> str:
    """By how much the best row exceeds the first, the baseline, seed by seed.

    Args:
        averages: of rows that have any runs, over targets, by seed.
    """
    base = next(iter(averages))
    means = {row: cell.mean for row, cell in averages.items() if cell.mean is not None}
    best = max(means, key=means.__getitem__)
    if best == base:
        return f"No gain on an unseen style: {base} is best, with {means[base]:.1f} %."
    ours, theirs = averages[best].values, averages[base].values
    gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    gain = Cell(dict(enumerate(gaps)), len(gaps))
    told = "one seed"
    if len(gaps) > 1:
        told = f"{signed(min(gaps), 1)} to {signed(max(gaps), 1)} in {len(gaps)} seeds"
    sure = "" if gain.clear else ", too few to be sure"
    return (
        f"{signed(means[best] - means[base], 1)} points on an unseen style ({told}{sure}): {best} "
        f"names {means[best]:.1f} % of the digits rightly, {base} {means[base]:.1f} %."
    )


def page(prepared: PreparedImages, outcomes: Sequence[Outcome], settings: Settings) -> str:
    """The page.

    Args:
        prepared: the images that were compared on.
        outcomes: of `bne.demo.compare`.
        settings: of all runs.
    """
    domains = prepared.images.domains
    rows = {row: list(cells(outcomes, row).values()) for row in ROWS}
    averages = {row: average(own) for row, own in rows.items() if own}
    content = DemoPage(
        title="Digits from a domain never seen",
        answer=answer(averages),
        chart_data={
            "styles": [*domains, "average"],
            "rows": [
                {
                    "name": row,
                    "color": PALETTE[number],
                    "shape": SHAPES[number],
                    "figures": [[cell.mean, str(cell)] for cell in (*rows[row], averages[row])],
                }
                for number, row in enumerate(averages)
            ],
        },
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
