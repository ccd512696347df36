"""The map of the space of domains as a figure for a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bne.report.look import PALETTE
from bne.words import ordinal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from bne.inspection.maps import Map
    from bne.inspection.observe import Observed
    from bne.report.look import Look

WRITTEN = 12  # classes up to which every count of a confusion matrix is written out
LINE = 0.25  # inches that a line of a legend takes
LONGEST = 24  # characters of a name
LABELLED = 40  # and up to which classes are named


def plain(text: str, longest: int = LONGEST) -> str:
    """A text in which matplotlib sees no formulas, cut where it would leave no room to draw."""
    short = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return short.replace("$", r"\$")


def share(score: Mapping[str, int]) -> float:
    """Correct ones in percent."""
    return 100 * score["correct"] / score["images"]


def similarity(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """The similarity matrix in percent of each row.

    Args:
        shares: by domain of the images and by known domain.
    """
    rows, columns = list(shares), list(next(iter(shares.values())))
    values = np.array([[100 * shares[row][column] for column in columns] for row in rows])
    figure, axes = _axes(1.8 + 1.1 * len(columns), 1.4 + 0.55 * len(rows))
    _matrix(axes, values, rows, columns, "{:.0f}", top=max(100 / len(columns), values.max()))
    axes.set(xlabel="known domain", ylabel="images of", title="Similarity, % of the row")
    return figure


def accuracies(accuracy: Mapping[str, Any]) -> Figure:
    """Accuracy of everything that gives answers, a row of dots a domain.

    Args:
        accuracy: as `bne.inspection.numbers` gives it.
    """
    lines = answers(accuracy)
    domains = list(accuracy["prediction"])
    figure, axes = _axes(6.4, max(1.5 + 0.4 * len(lines), 1.5 + LINE * len(domains)))
    for number, domain in enumerate(domains):
        axes.plot(
            [share(scores[domain]) for scores in lines.values()],
            range(len(lines)),
            "osD^vpP*"[number % 8],
            color=PALETTE[number % len(PALETTE)],
            markeredgecolor="#333",
            markeredgewidth=0.5,
            label=plain(domain),
        )
    axes.set_yticks(range(len(lines)), [plain(name) for name in lines])
    axes.invert_yaxis()
    axes.set(xlabel="accuracy, %", title="Accuracy by what gives the answer")
    axes.grid(axis="x", alpha=0.4)
    axes.legend(title="images of", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def answers(accuracy: Mapping[str, Any]) -> dict[str, Mapping[str, Mapping[str, int]]]:
    """Scores by what gives the answer, in words."""
    found = {"the model": accuracy["prediction"]}
    for place, scores in enumerate(accuracy.get("by_rank", ()), start=1):
        found["nearest branch" if place == 1 else f"{ordinal(place)} nearest branch"] = scores
    found |= {f"branch {name}": s for name, s in accuracy.get("by_branch", {}).items()}
    found |= {f"{name} weights": s for name, s in accuracy.get("by_weighting", {}).items()}
    return found


def layers(numbers: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Which layers tell domains apart: share in the distances and domain accuracy, bars.

    Args:
        numbers: by layer, as `bne.inspection.numbers` gives them.
    """
    names = list(numbers)
    places = range(len(names))
    figure = Figure(figsize=(7.4, 1.3 + 0.27 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(places, [100 * numbers[name]["share"] for name in names], color=PALETTE[0])
    right.barh(places, [mean_share(numbers[n]["domain_accuracy"]) for n in names], color=PALETTE[1])
    branches = len(next(iter(numbers.values()))["domain_accuracy"])
    if branches > 1:
        right.axvline(100 / branches, color="#333", linestyle="--", linewidth=1)
        right.set_xlabel("domain accuracy, % (dashed: chance)")
    else:
        right.set_xlabel("domain accuracy, %")
    right.set_xlim(0, 100)
    left.set_xlabel("share in the distances, %")
    left.set_yticks(places, [plain(name) for name in names], fontsize=8)
    left.invert_yaxis()
    figure.suptitle("Which layers tell domains apart")
    return figure


def mean_share(scores: Mapping[str, Mapping[str, int]]) -> float:
    """The mean over domains, in percent."""
    return float(np.mean([share(score) for score in scores.values()]))


def calibration(
    reliability: Mapping[str, Sequence[Mapping[str, float]]], errors: Mapping[str, float]
) -> Figure:
    """Reliability diagrams, one a domain.

    Args:
        reliability: by domain: confidence, accuracy and images of each bin.
        errors: the expected calibration errors, by domain.
    """
    figure, grid = _small_multiples(len(reliability), 2.5)
    for axes, (domain, bins) in zip(grid, reliability.items(), strict=False):
        axes.plot([0, 100], [0, 100], color="#888", linestyle="--", linewidth=1)
        axes.bar(
            [100 * b["confidence"] for b in bins],
            [100 * b["accuracy"] for b in bins],
            width=4,
            color=PALETTE[0],
            alpha=0.35,
        )
        most = max(b["images"] for b in bins)
        axes.scatter(
            [100 * b["confidence"] for b in bins],
            [100 * b["accuracy"] for b in bins],
            s=[8 + 60 * b["images"] / most for b in bins],
            color=PALETTE[0],
        )
        axes.set(xlim=(0, 102), ylim=(0, 102), xlabel="confidence, %", ylabel="accuracy, %")
        axes.set_title(f"{plain(domain)}\nECE {100 * errors[domain]:.1f} %", fontsize=9)
    return figure


def confusions(matrices: Mapping[str, Sequence[Sequence[int]]], classes: Sequence[str]) -> Figure:
    """Confusion matrices in percent of the true class, one a domain.

    Args:
        matrices: by domain, a row a true class.
        classes: their names.
    """
    named = len(classes) <= LABELLED
    figure, grid = _small_multiples(
        len(matrices), min(7.0, 1.9 + 0.3 * len(classes)) if named else 3
    )
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


DASHES = {"solid": "-", "dash": "--"}


def curve_figure(data: Mapping[str, Any]) -> Figure:
    """The loss above the accuracies, stages marked.

    Args:
        data: as `bne.report.run_sections.curve_data` gives it.
    """
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, name in ((upper, "loss"), (lower, "accuracy")):
        for line in data[name]:
            places = range(1, len(line["y"]) + 1)
            values = [float("nan") if value is None else value for value in line["y"]]
            axes.plot(
                places,
                values,
                DASHES[line["dash"]],
                marker=".",
                color=line["colour"],
                label=plain(line["name"], longest=60),
            )
        for stage in data["stages"]:
            axes.axvline(stage["first"] - 0.5, color="#888", linestyle=":", linewidth=1)
        axes.grid(axis="y", alpha=0.4)
    for stage in data["stages"]:
        upper.annotate(
            plain(stage["name"]),
            (stage["first"] - 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=8,
            color="#555",
        )
    upper.set_ylabel("loss")
    lower.set(xlabel="epoch", ylabel="accuracy, %")
    lower.set_xlim(0, len(data["loss"][0]["y"]) + 0.5)
    lower.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    lower.legend(loc="upper left", bbox_to_anchor=(0, -0.2), frameon=False, ncols=2, fontsize=8)
    return figure


_OUTLINED: dict[str, Any] = {"color": "white", "edgecolors": "black", "linewidths": 1.3}
_PAPER = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}


def map_figure(found: Map, observed: Observed, looks: Mapping[str, Look], chosen: int) -> Figure:
    """Images as small points, domains as large ones, one image's distances as lines.

    Args:
        found: the map.
        observed: the images on it, whose points the map has in order.
        looks: of the domains, by name.
        chosen: the image whose distances are drawn, a row of the map.
    """
    height = max(5.2, 1.5 + LINE * len(observed.domains))
    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = figure.subplots()
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
