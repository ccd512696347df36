"""Figures of much, of little and of odd names are drawn without a complaint."""

import numpy as np
import pytest

from bne.report import figures
from bne.report.figures import curve_figure

MANY = [f"domain {k} of a long $name" for k in range(12)]
SCORES = {name: {"correct": 3, "images": 5} for name in MANY}
ONE = {"a": {"correct": 1, "images": 1}}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "figure",
    [
        lambda: figures.accuracies({"prediction": SCORES}),
        lambda: figures.accuracies({"prediction": ONE, "by_rank": [ONE] * 12}),
        lambda: figures.similarity({name: dict.fromkeys(MANY, 1 / 12) for name in MANY}),
        lambda: figures.similarity({"a": {"b": 1.0}}),
        lambda: figures.layers(
            {f"bn{k}": {"share": 0.02, "domain_accuracy": SCORES} for k in range(50)}
        ),
        lambda: figures.layers({"bn1": {"share": 1.0, "domain_accuracy": ONE}}),
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


def test_answers_are_named_whatever_their_number() -> None:
    named = list(figures.answers({"prediction": ONE, "by_rank": [ONE] * 122}))
    assert named[:4] == ["the model", "nearest branch", "2nd nearest branch", "3rd nearest branch"]
    assert named[11:14] == [f"{place} nearest branch" for place in ("11th", "12th", "13th")]
    assert (named[21], named[-1]) == ("21st nearest branch", "122nd nearest branch")


def test_one_epoch_is_a_whole_number() -> None:
    line = {"name": "loss", "colour": "#333333", "dash": "solid", "y": [1.5]}
    stages = [{"name": "training", "first": 1, "last": 1}]
    figure = curve_figure({"stages": stages, "loss": [line], "accuracy": [line]})
    figure.draw_without_rendering()
    assert [tick for tick in figure.axes[1].get_xticks() if 0 <= tick <= 1.5] == [0, 1]


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
    shares = {"sketch": {"art": 0.25, "photo": 0.75}}
    assert [t.get_text() for t in figures.similarity(shares).axes[0].texts] == ["25", "75"]


def test_bars_are_the_layers_numbers() -> None:
    numbers = {
        "bn1": {"share": 0.9, "domain_accuracy": SCORES},
        "bn2": {"share": 0.1, "domain_accuracy": ONE},
    }
    left, right = figures.layers(numbers).axes
    assert [bar.get_width() for bar in left.patches] == pytest.approx([90, 10])
    assert [bar.get_width() for bar in right.patches] == pytest.approx([60, 100])
