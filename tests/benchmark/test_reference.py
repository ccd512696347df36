import csv
from pathlib import Path

import pytest

from bne.benchmark.reference import (
    AVERAGE,
    AVERAGE_DEEPALL,
    AVERAGE_DOMAIN,
    GAIN,
    find_table,
    tables,
)
from bne.data.benchmarks import find_benchmark

HALF = 0.05  # what rounding to one decimal hides
WEIGHED_BY_IMAGES = "closest-domain-accuracy-pacs-resnet18"
WRONG_AVERAGES = {("sota-pacs-resnet18", "MetaReg"): 79.9}
WRONG_GAINS = {
    ("sota-pacs-resnet18", "MASF"): 2.27,
    ("ablation-pacs-resnet18", "DNet (dt,warmup)"): 0.76,
}

ROWS = [(table, row) for table in tables().values() for row in table.rows]


def gain(average: float, deepall: float) -> float:
    return 100 * (average - deepall) / deepall


def test_every_printed_figure_is_there(shared: Path) -> None:
    with (shared / "paper/reference.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    printed = {tuple(line.values())[:-1]: float(line["value"]) for line in lines}
    ours = {
        (table.name, table.backbone, table.benchmark, row.method, row.variant, target): value
        for table, row in ROWS
        for target, value in {**row.cells, **row.summaries}.items()
    }
    assert ours == printed
    assert len(printed) == len(lines)


def test_averages_follow_from_the_cells() -> None:
    checked = 0
    for table, row in ROWS:
        printed = row.summaries.get(AVERAGE, row.summaries.get(AVERAGE_DOMAIN))
        if printed is None or table.name == WEIGHED_BY_IMAGES:
            continue
        mean = sum(row.cells.values()) / len(row.cells)
        slip = WRONG_AVERAGES.get((table.name, row.name))
        assert abs(mean - (slip or printed)) <= 2 * HALF + 1e-9, (table.name, row.name)
        assert slip is None or abs(mean - printed) > 1
        checked += 1
    assert checked > 50


def test_one_table_weighs_targets_by_their_images() -> None:
    counts = find_benchmark("pacs").counts
    for row in find_table(WEIGHED_BY_IMAGES).rows:
        total = sum(counts[target] * value for target, value in row.cells.items())
        assert total / sum(counts.values()) == pytest.approx(row.summaries[AVERAGE], abs=0.01)


def test_gains_follow_from_the_averages() -> None:
    checked = 0
    for table, row in ROWS:
        if GAIN not in row.summaries:
            continue
        average = row.summaries[AVERAGE]
        deepall = row.summaries.get(AVERAGE_DEEPALL) or table.row("DeepAll").summaries[AVERAGE]
        # Some were computed before the averages were rounded.
        lowest, highest = gain(average - HALF, deepall + HALF), gain(average + HALF, deepall - HALF)
        printed, slip = row.summaries[GAIN], WRONG_GAINS.get((table.name, row.name))
        assert lowest - 0.005 <= (slip or printed) <= highest + 0.005, (table.name, row.name)
        assert slip is None or not lowest <= printed <= highest
        checked += 1
    assert checked > 40


def test_targets_are_those_of_the_benchmark() -> None:
    for table in tables().values():
        if table.name.startswith("similarity"):
            continue
        protocol = {"+".join(target) for target in find_benchmark(table.benchmark).targets}
        assert set(table.targets) == protocol
