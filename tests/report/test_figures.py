"""Figures of much, of little and of odd names are drawn, and show the numbers."""

from pathlib import Path

import numpy as np
import pytest

from bne.report import figures
from bne.report.charts import Curves, Line, Stage
from bne.report.look import looks

MANY = [f"domain {k} of a long $name" for k in range(12)]
SCORES = {name: {"correct": 3, "images": 5} for name in MANY}
ONE = {"a": {"correct": 1, "images": 1}}
LOOKS = looks([*MANY, "a"], seen=MANY[:6])
SHARES = {"sketch": {"art": 0.25, "photo": 0.75}}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "figure",
    [
        lambda: figures.accuracies({"prediction": SCORES}, LOOKS),
        lambda: figures.accuracies({"prediction": ONE, "by_rank": [ONE] * 12}, LOOKS),
        lambda: figures.similarity({name: dict.fromkeys(MANY, 1 / 12) for name in MANY}),
        lambda: figures.similarity({"a": {"b": 1.0}}),
        lambda: figures.layers(
            {f"bn{k}": {"share": 0.02, "domain_accuracy": SCORES} for k in range(50)}, 12
        ),
        lambda: figures.confusions({"a": np.eye(65, dtype=int).tolist()}, ["class"] * 65),
    ],
)
def test_it_is_drawn(figure) -> None:
    figure().draw_without_rendering()


@pytest.mark.parametrize("name", ["sketch", "watercolours of the north, 1880"])
def test_titles_are_not_cut(name: str) -> None:
    bins = [{"confidence": 0.5, "accuracy": 0.5, "images": 3}]
    domains = [name, f"{name}2", f"{name}3"]
    drawn = (
        figures.calibration(dict.fromkeys(domains, bins), dict.fromkeys(domains, 0.123)),
        figures.confusions({domain: [[3, 1], [0, 2]] for domain in domains}, ["cat", "dog"]),
    )
    for figure in drawn:
        figure.draw_without_rendering()
        for axes in figure.axes:
            title = axes.title.get_window_extent()
            assert 0 <= title.x0 < title.x1 <= figure.bbox.x1, axes.get_title()


def test_one_epoch_is_a_whole_number() -> None:
    line = Line("loss", "loss", "#333333", "solid", "circle", [1.5])
    figure = figures.curve_figure(Curves([Stage("training", 1, 1)], [line], [line]))
    figure.draw_without_rendering()
    assert [tick for tick in figure.axes[1].get_xticks() if 0 <= tick <= 1.5] == [0, 1]
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1, 1.5]]


def test_many_classes_stay_on_a_page() -> None:
    """24 domains of 60 classes, whose names are left out: at most three pages of A4."""
    domains = {f"d{k}": np.eye(60, dtype=int).tolist() for k in range(24)}
    assert figures.confusions(domains, ["class"] * 60).get_figheight() < 3 * 11.7


def test_matrices_show_the_numbers() -> None:
    """Read back from the figure: shares of the row, in percent."""
    axes = figures.confusions({"photo": [[3, 1], [0, 0]]}, ["cat", "dog"]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["75", "25", "0", "0"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[75, 25], [0, 0]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    assert [t.get_text() for t in figures.similarity(SHARES).axes[0].texts] == ["25", "75"]


def test_dots_are_the_accuracies() -> None:
    axes = figures.accuracies({"prediction": SCORES, "by_rank": [SCORES]}, LOOKS).axes[0]
    assert len(axes.lines) == 12
    assert axes.lines[3].get_xydata().tolist() == [[60, 0], [60, 1]]


@pytest.mark.parametrize(("branches", "chance"), [(4, [25, 25]), (1, None)])
def test_bars_are_the_layers_numbers(branches: int, chance: list[float] | None) -> None:
    """Chance goes by the branches, of which some may have no images here."""
    first, second = ({"share": s, "domain_accuracy": a} for s, a in ((0.9, SCORES), (0.1, ONE)))
    left, right = figures.layers({"bn1": first, "bn2": second}, branches).axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx([90, 10])
    assert [bar.get_width() for bar in right.patches] == pytest.approx([60, 100])
    assert [line.get_xdata() for line in right.lines] == ([chance] if chance else [])


def test_a_pdf_has_no_fonts_of_type_3(tmp_path: Path) -> None:
    figures.write(figures.similarity(SHARES), tmp_path / "figure.pdf")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in pdf  # TrueType
    assert b"/Type3" not in pdf
