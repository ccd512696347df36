"""The map of the space of domains as a figure for a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from bne.report.figures import LINE, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from bne.evaluation.latent_map import Map
    from bne.evaluation.observed import Observed
    from bne.report.theme import Look


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
    assert observed.location is not None
    height = max(5.2, 1.5 + LINE * len(observed.domains))
    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = figure.subplots()
    domain = observed.domain[observed.location.rows].numpy()
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
