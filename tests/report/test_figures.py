"""Figures of much, of little and of odd names are drawn without a complaint."""

import numpy as np
import pytest

from bne.report import figures

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
