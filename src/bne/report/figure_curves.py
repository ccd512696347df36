"""The curves of a run as a figure for a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bne.report.figures import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

DASHES = {"solid": "-", "dash": "--"}


def curve_figure(data: Mapping[str, Any]) -> Figure:
    """The loss above the accuracies, stages marked.

    Args:
        data: as `bne.report.training_sections.curve_data` gives it.
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
