"""Figures for papers, drawn by matplotlib."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bne.report.charts import answers, mean_percent, percent
from bne.report.look import PALETTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bne.inspection.analysis import Analysis
    from bne.inspection.maps import Map
    from bne.inspection.observe import Observed
    from bne.report.charts import Curves
    from bne.report.look import Look

WRITTEN = 12  # classes up to which every count of a confusion matrix is written out
LINE = 0.25  # inches that a line of a legend takes
LONGEST = 24  # characters of a name
LABELLED = 40  # and up to which classes are named
RESOLUTION = 150  # dots an inch
DASHES = {"solid": "-", "dash": "--"}
_OUTLINED: dict[str, Any] = {"color": "white", "edgecolors": "black", "linewidths": 1.3}
_PAPER = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}


def plain(text: str, longest: int = LONGEST) -> str:
    """A text in which matplotlib sees no formulas, cut where it would leave no room to draw."""
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return short.replace("$", r"\$")


def draw(
    curves: Curves | None, analysis: Analysis | None, looks: Mapping[str, Look]
) -> dict[str, Figure]:
    """Every figure that applies, by the name of its files.

    Args:
        curves: of the training, if there are any.
        analysis: of the trained network, if there is one; figures take its numbers as they are.
        looks: of the domains, by name.
    """
    found = {"curves": curve_figure(curves)} if curves else {}
    if analysis is None:
        return found
    for one in analysis.maps:
        name = "map-" + re.sub(r"[^\w.-]", "-", one.name)
        found[name] = map_figure(one, analysis.observed, looks, analysis.chosen)
    numbers = analysis.numbers
    if "similarity_share" in numbers:
        found["similarity"] = similarity(numbers["similarity_share"])
    found["accuracy"] = accuracies(numbers["accuracy"], looks)
    if "layers" in numbers:
        found["layers"] = layers(numbers["layers"], len(analysis.observed.branches))
    found["calibration"] = calibration(numbers["reliability"], numbers["calibration_error"])
    found["confusion"] = confusions(numbers["confusion"], analysis.observed.classes)
    return found


def write(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG or PDF; the same numbers make the same file, which has no date.

    A PDF has TrueType fonts: conferences refuse those of Type 3, matplotlib's default.
    """
    metadata = {"CreationDate": None} if path.suffix == ".pdf" else {}
    with rc_context({"pdf.fonttype": 42}):
        figure.savefig(path, dpi=RESOLUTION, metadata=metadata)


def similarity(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """The similarity matrix in percent of each row."""
    rows, columns = list(shares), list(next(iter(shares.values())))
    values = np.array([[100 * shares[row][column] for column in columns] for row in rows])
    figure, axes = _axes(1.8 + 1.1 * len(columns), 1.4 + 0.55 * len(rows))
    _matrix(axes, values, rows, columns, "{:.0f}", top=max(100 / len(columns), values.max()))
    axes.set(xlabel="known domain", ylabel="images of", title="Similarity, % of the row")
    return figure


def accuracies(accuracy: Mapping[str, Any], looks: Mapping[str, Look]) -> Figure:
    """Accuracy of everything that gives answers, a row of dots each."""
    lines = answers(accuracy)
    domains = list(accuracy["prediction"])
    figure, axes = _axes(6.4, max(1.5 + 0.4 * len(lines), 1.5 + LINE * len(domains)))
    outline: dict[str, Any] = {"markeredgecolor": "#333", "markeredgewidth": 0.5}
    for domain in domains:
        values = [percent(scores[domain]) for scores in lines.values()]
        style: dict[str, Any] = {"color": looks[domain].colour, "label": plain(domain), **outline}
        axes.plot(values, range(len(lines)), looks[domain].marker, **style)
    axes.set_yticks(range(len(lines)), [plain(name) for name in lines])
    axes.invert_yaxis()
    axes.set(xlabel="accuracy, %", title="Accuracy by what gives the answer")
    axes.grid(axis="x", alpha=0.4)
    axes.legend(title="images of", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def layers(numbers: Mapping[str, Mapping[str, Any]], branches: int) -> Figure:
    """Which layers tell domains apart: share in the distances, and accuracy beside chance."""
    places = range(len(numbers))
    figure = Figure(figsize=(7.4, 1.3 + 0.27 * len(places)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    own = [layer["domain_accuracy"] for layer in numbers.values()]
    left.barh(places, [100 * layer["share"] for layer in numbers.values()], color=PALETTE[0])
    right.barh(places, [mean_percent(scores) for scores in own], color=PALETTE[1])
    right.set_xlabel("domain accuracy, %")
    if branches > 1:
        right.axvline(100 / branches, color="#333", linestyle="--", linewidth=1)
        right.set_xlabel("domain accuracy, % (dashed: chance)")
    right.set_xlim(0, 100)
    left.set_xlabel("share in the distances, %")
    left.set_yticks(places, [plain(name) for name in numbers], fontsize=8)
    left.invert_yaxis()
    figure.suptitle("Which layers tell domains apart")
    return figure


def calibration(
    reliability: Mapping[str, Sequence[Mapping[str, float]]], errors: Mapping[str, float]
) -> Figure:
    """Reliability diagrams, one per domain."""
    figure, grid = _small_multiples(len(reliability), 2.5)
    for axes, (domain, bins) in zip(grid, reliability.items(), strict=False):
        x, y = ([100 * one[key] for one in bins] for key in ("confidence", "accuracy"))
        most = max(one["images"] for one in bins)
        axes.plot([0, 100], [0, 100], color="#888", linestyle="--", linewidth=1)
        axes.bar(x, y, width=4, color=PALETTE[0], alpha=0.35)
        axes.scatter(x, y, s=[8 + 60 * one["images"] / most for one in bins], color=PALETTE[0])
        axes.set(xlim=(0, 102), ylim=(0, 102), xlabel="confidence, %", ylabel="accuracy, %")
        axes.set_title(f"{plain(domain)}\nECE {100 * errors[domain]:.1f} %", fontsize=9)
    return figure


def confusions(matrices: Mapping[str, Sequence[Sequence[int]]], classes: Sequence[str]) -> Figure:
    """Confusion matrices in percent of the true class, one per domain."""
    named = len(classes) <= LABELLED
    size = min(7.0, 1.9 + 0.3 * len(classes)) if named else 3
    figure, grid = _small_multiples(len(matrices), size)
    names = classes if named else [""] * len(classes)
    for axes, (domain, counts) in zip(grid, matrices.items(), strict=False):
        table = np.array(counts, dtype=float)
        values = 100 * table / table.sum(1, keepdims=True).clip(1)
        written = "{:.0f}" if len(classes) <= WRITTEN else ""
        _matrix(axes, values, names, names, written, top=100)
        axes.set(xlabel="seen as", ylabel="true class")
        axes.set_title(f"{plain(domain)}\n% of the row", fontsize=9)
    return figure


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _small_multiples(count: int, size: float) -> tuple[Figure, list[Axes]]:
    columns = min(count, max(1, int(10 / size)))
    rows = -(-count // columns)
    figure = Figure(figsize=(columns * size, rows * size), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in grid[count:]:
        unused.set_axis_off()
    return figure, grid


def _matrix(
    axes: Axes,
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    written: str,
    *,
    top: float,
) -> None:
    axes.imshow(values, cmap="cividis", vmin=0, vmax=top, aspect="auto")
    axes.set_xticks(range(len(columns)), [plain(c) for c in columns], rotation=35, ha="right")
    axes.set_yticks(range(len(rows)), [plain(r) for r in rows])
    axes.tick_params(labelsize=8, length=0)
    if written:
        for (row, column), value in np.ndenumerate(values):
            colour = "black" if value > 0.5 * top else "white"
            text = written.format(value)
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)


def curve_figure(curves: Curves) -> Figure:
    """The loss above the accuracies, stages marked."""
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, lines in ((upper, curves.loss), (lower, curves.accuracy)):
        for line in lines:
            values = [float("nan") if value is None else value for value in line.y]
            style: dict[str, Any] = {"color": line.colour, "label": plain(line.name, longest=60)}
            axes.plot(range(1, len(values) + 1), values, f".{DASHES[line.dash]}", **style)
        for stage in curves.stages:
            axes.axvline(stage.first - 0.5, color="#888", linestyle=":", linewidth=1)
        axes.grid(axis="y", alpha=0.4)
    text: dict[str, Any] = {"rotation": 90, "va": "top", "fontsize": 8, "color": "#555"}
    aside: dict[str, Any] = {"xytext": (3, -3), "textcoords": "offset points"}
    for stage in curves.stages:
        top = (stage.first - 0.5, 1)
        upper.annotate(plain(stage.name), top, xycoords=("data", "axes fraction"), **aside, **text)
    upper.set_ylabel("loss")
    lower.set(xlabel="epoch", ylabel="accuracy, %")
    lower.set_xlim(0, curves.stages[-1].last + 0.5)
    lower.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    lower.legend(loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False, ncols=2, fontsize=8)
    return figure


def map_figure(found: Map, observed: Observed, looks: Mapping[str, Look], chosen: int) -> Figure:
    """Images as small points, domains as large ones, the chosen image's distances as lines."""
    height = max(5.2, 1.5 + LINE * len(observed.domains))
    figure, axes = _axes(7.2, height)
    domain = observed.domain[observed.mapped].numpy()
    for number, name in enumerate(observed.domains):
        look, (x, y) = looks[name], found.images[domain == number].T
        seen = "seen" if look.seen else "unseen"
        style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "alpha": 0.6}
        axes.scatter(x, y, s=14, linewidths=0, label=f"{plain(name)} ({seen})", **style)
    for k, name in enumerate(observed.branches):
        _draw_domain(axes, found, k, name, looks[name].colour, chosen)
    x, y = found.images[chosen]
    axes.scatter(x, y, s=70, label="one image, its distances", zorder=5, **_OUTLINED)
    axes.scatter([], [], s=120, marker="*", label="a known domain", **_OUTLINED)
    axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2", title=f"The space of domains: {plain(found.name)}")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def _draw_domain(axes: Axes, found: Map, k: int, name: str, colour: str, chosen: int) -> None:
    """A star, its name, and a line from the chosen image with the distance on it."""
    start, end = found.images[chosen], found.domains[k]
    middle = (start + end) / 2
    axes.plot([start[0], end[0]], [start[1], end[1]], color="#333", linewidth=1.2)
    axes.scatter(end[0], end[1], s=190, marker="*", zorder=4, **{**_OUTLINED, "color": colour})
    text: dict[str, Any] = {"ha": "center", "bbox": _PAPER, "zorder": 6}
    axes.text(middle[0], middle[1], f"{found.distances[chosen, k]:.3g}", fontsize=8, **text)
    above: dict[str, Any] = {"xytext": (0, 10), "textcoords": "offset points"}
    axes.annotate(plain(name), (end[0], end[1]), fontsize=9, weight="bold", **above, **text)
