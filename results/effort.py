"""Writes what a user gains in order of effort: a table of README.md and its figure, from records.

After adding records run

python results/effort.py
"""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from beyond import AVERAGE, lines, runs, study
from make import BNE, BOTH, DEEPALL, all_records, cells, plain, strong_runs
from watch import filled
from watch import lines as records_of

from bne.benchmark.tables import Cell, accuracy, average

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
FIGURE = HERE.parent / "docs" / "figures" / "effort.svg"
HEAD = ["| in order of effort | as it is | leaning on each image |", "| --- | ---: | ---: |"]
ENROLLED = 64  # images without labels


class Step(NamedTuple):
    """A row: what one does, and the accuracy on unseen domains, the average of the targets."""

    text: str
    label: str
    plain: Cell
    leaning: Cell | None


def main() -> None:
    """Writes both files."""
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    FIGURE.write_text(figure(), encoding="utf-8")


def steps() -> list[Step]:
    """All rows that are recorded."""
    trained = study(runs("pacs"))["cells"]
    strong = strong_cells()

    def both(row: str) -> tuple[Cell, Cell]:
        return trained[row]["none"][AVERAGE], trained[row]["rule"][AVERAGE]

    return [
        Step("a pretrained network; only its last layer is fitted", "last layer", *heads()),
        Step("plain training of the whole network (DeepAll)", "DeepAll", *both("DeepAll")),
        Step("BNE, the paper's method", "BNE", *both("BNE")),
        Step(
            f"BNE, and {ENROLLED} unlabeled images of the new domain enrolled",
            f"BNE, {ENROLLED} enrolled",
            *enrolled(),
        ),
        Step(
            "`deepall-points`, which trains for leaning", "points", *both("Points without domains")
        ),
        Step("DeepAll with strong augmentation", "DeepAll, strong", strong[DEEPALL], None),
        Step("BNE with strong augmentation", "BNE, strong", strong[BNE], None),
    ]


def heads() -> tuple[Cell, Cell]:
    """A frozen network with a new head: as it is, and fitted leaning.

    The share is that at which the head is best on held-out source images.
    """
    plain: dict[str, dict[int, float]] = defaultdict(dict)
    leaning: dict[str, dict[int, float]] = defaultdict(dict)
    best: dict[tuple[str, int], int] = {}
    for line in lines("heads"):
        if line["recipe"] != "beyond-pacs-resnet18" or line["fitted"] != line["share"]:
            continue
        target, seed = "+".join(line["target"]), line["seed"]
        right = 100 * line["correct"] / line["count"]
        if line["share"] == 0:
            plain[target][seed] = right
        if line["held-out"] > best.get((target, seed), -1):
            best[target, seed], leaning[target][seed] = line["held-out"], right
    return _average(plain), _average(leaning)


def enrolled() -> tuple[Cell, Cell]:
    """BNE with some images of the target enrolled, the mean of several draws; leaning by 0.1."""
    found: dict[float, dict[str, dict[int, list[float]]]] = {}
    for line in records_of("enroll"):
        if (line["way"], line["unlabeled"]) == ("enrolled", ENROLLED):
            by_seed = found.setdefault(line["lean"], {}).setdefault("+".join(line["target"]), {})
            by_seed.setdefault(line["seed"], []).append(100 * line["correct"] / line["images"])
    plain, leaning = (
        {
            target: {seed: sum(draws) / len(draws) for seed, draws in by_seed.items()}
            for target, by_seed in found[lean].items()
        }
        for lean in (0.0, 0.1)
    )
    return _average(plain), _average(leaning)


def strong_cells() -> dict[str, Cell]:
    """DeepAll and BNE with strong augmentation and exact statistics."""
    version, found = strong_runs(all_records())
    assert version == 2, "the records of strong augmentation with present statistics are missing"
    return {row: cells(found, row, lambda one: accuracy(one, "last"))[AVERAGE] for row in BOTH}


def _average(by_target: Mapping[str, Mapping[int, float]]) -> Cell:
    return average([Cell(dict(own), len(own)) for own in by_target.values()])


def readme(text: str) -> str:
    """README.md with its table."""
    rows = [
        f"| {own.text} | {plain(own.plain)} | {plain(own.leaning) if own.leaning else '…'} |"
        for own in steps()
    ]
    return filled(text, "effort", [*HEAD, *rows])


def figure() -> str:
    """The same as SVG: each row a line from its accuracy as it is to that leaning."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, text = steps(), io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bne", "font.size": 9}):
        drawing = Figure(figsize=(6.4, 2.5), layout="constrained")
        axes = drawing.add_subplot()
        for place, own in enumerate(rows):
            ends = [cell.mean or 0.0 for cell in (own.plain, own.leaning) if cell]
            axes.plot(ends, [place] * len(ends), color="#c5cae9", linewidth=4, zorder=1)
            for mean, color, marker in zip(ends, ("#757575", "#3f51b5"), "so", strict=False):
                axes.scatter(mean, place, 36, color, marker=marker, zorder=2)
            axes.text(max(ends) + 0.7, place, f"{max(ends):.1f}", va="center")
        shapes = (("s", "#757575", "as it is"), ("o", "#3f51b5", "leaning on each image"))
        for marker, color, label in shapes:
            axes.scatter([], [], 36, color, marker=marker, label=label)
        axes.set_yticks(range(len(rows)), [own.label for own in rows])
        axes.invert_yaxis()
        axes.margins(x=0.08)
        axes.set_xlabel("accuracy on the unseen domain, PACS, percent")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower left")
        drawing.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


if __name__ == "__main__":
    main()
