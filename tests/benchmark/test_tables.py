import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bne.benchmark.reference import AVERAGE, AVERAGE_DEEPALL, GAIN, PaperRow, PaperTable
from bne.benchmark.render import grid
from bne.benchmark.tables import (
    LEANING,
    Cell,
    accuracy,
    accuracy_table,
    average,
    compared,
    find_records,
    signed,
)
from tests.benchmark.examples import item, record

PAPER = PaperTable(
    "a table",
    "resnet18",
    "pacs",
    (
        PaperRow("MetaReg", "", {"art": 70.0, "photo": 90.0}, {AVERAGE: 80.0}),
        PaperRow("BNE", "", {"art": 79.0, "photo": 95.0}, {AVERAGE: 87.0, GAIN: 8.75}),
        PaperRow("DeepAll", "", {"art": 75.0, "photo": 85.0}, {AVERAGE: 80.0}),
    ),
)


def plan(seeds=2):
    rows = (("deepall", "DeepAll"), ("bne", "BNE"), ("dnet", "DNet"))
    return [
        item(method, target, seed, row)
        for seed in range(seeds)
        for method, row in rows
        for target in ("art", "photo")
    ]


def test_hand_computed() -> None:
    scores = {
        ("DeepAll", "art"): (700, 720),
        ("DeepAll", "photo"): (900, 880),
        ("BNE", "art"): (760, 800),
        ("BNE", "photo"): (940, 920),
        ("DNet", "art"): (720,),
    }
    items = plan()
    records = [
        record(i, scores[i.row, i.target][i.recipe.seed])
        for i in items
        if i.recipe.seed < len(scores.get((i.row, i.target), ()))
    ]
    table = accuracy_table("a table", find_records(items, records), PAPER, "last")
    assert table.columns == ("art", "photo", AVERAGE_DEEPALL, AVERAGE, GAIN)
    assert [row.name for row in table.rows] == ["MetaReg", "BNE", "DeepAll", "DNet"]
    metareg, bne, deepall, dnet = table.rows

    assert not metareg.cells
    assert metareg.paper == {"art": 70.0, "photo": 90.0, AVERAGE: 80.0}

    assert bne.cells["art"].mean == pytest.approx(78)
    assert bne.cells["art"].error == pytest.approx(2)  # stdev of 76 and 80 is √8, over √2
    assert bne.cells[AVERAGE].values == pytest.approx({0: 85.0, 1: 86.0})
    assert bne.cells[AVERAGE_DEEPALL].mean == pytest.approx(80)
    assert bne.cells[GAIN].mean == pytest.approx(6.875)

    assert AVERAGE_DEEPALL not in deepall.cells
    assert GAIN not in deepall.cells

    assert str(dnet.cells["art"]) == "72.0 [1/2]"
    assert dnet.cells["photo"].mean is None
    assert dnet.cells[AVERAGE].mean is None  # never the average of what happens to be there
    assert dnet.cells[GAIN].mean is None
    assert not dnet.paper


def test_rules_differ_and_one_that_has_no_score_is_not_waited_for() -> None:
    run = item("bne", "art")
    scores = {"last": 500, "oracle": 700}  # without held-out images there is no validation
    found = {k: {"art": {"correct": v, "images": 1000}} for k, v in scores.items()}
    for rule, text in (("last", "50.0"), ("oracle", "70.0"), ("validation", "–")):
        table = accuracy_table("a table", [(run, record(run, 0, accuracy=found))], None, rule)
        assert str(table.rows[0].cells["art"]) == text


def test_two_domains_held_out_together_are_pooled_over_images() -> None:
    run = item("bne", "dslr+webcam")
    scores = {"dslr": {"correct": 90, "images": 100}, "webcam": {"correct": 150, "images": 300}}
    done = record(run, 0, accuracy={"last": scores})
    assert accuracy(done, "last") == pytest.approx(60)
    table = accuracy_table("a table", [(run, done)], None, "last")
    assert table.columns[0] == "dslr+webcam"


def test_gains_are_over_the_row_of_deepall_whatever_its_name() -> None:
    items = [item("deepall", "art", row="BatchNorm"), item("bne", "art", row="BNE")]
    records = [record(items[0], 800), record(items[1], 840)]
    table = accuracy_table("a table", find_records(items, records), None, "last")
    assert table.rows[1].cells[GAIN].mean == pytest.approx(5)
    table = accuracy_table("a table", find_records(items[1:], records), None, "last")
    assert GAIN not in table.rows[0].cells


def test_accuracies_on_different_images_are_never_mixed() -> None:
    items = [item("bne", "art"), item("bne", "photo")]
    art, photo = items
    few = [record(art, 9, 10, materials={"images": "few"})]
    many = [record(one, 600, materials={"images": "many"}) for one in items]
    assert [one for _, one in find_records(items, few + many)] == many
    assert [one for _, one in find_records(items, many + few)] == many
    assert [one for _, one in find_records(items, few + many[1:])] == [None, many[1]]  # the last
    known = replace(art, materials={"images": "few"})
    assert find_records([known], many + few) == [(known, few[0])]
    old = record(photo, 500)  # of an earlier version, which did not know
    assert [one for _, one in find_records(items, [old, *few])] == [few[0], old]


def test_leaning_is_a_row_of_its_own_at_the_share_that_held_out_images_allow() -> None:
    def at(share: float | str, lost: int, target: int) -> dict:
        scores = {"photo": {"correct": 90, "images": 100}}
        unseen = {"art": {"correct": target, "images": 1000}}
        return {"share": share, "validation": scores, "target": unseen, "gained": 1, "lost": lost}

    (ours, base) = (item(method, "art", row=method) for method in ("bne", "deepall"))
    leaning = (at(0.0, 0, 700), at(0.1, 1, 760), at(0.2, 20, 990))
    records = [record(ours, 700, leaning=leaning), record(base, 650)]
    found = find_records([ours, base], records)
    rows = {row.name: row for row in accuracy_table("a table", found, None, "last").rows}
    assert rows["bne"].cells["art"].mean == 70
    assert rows[f"bne{LEANING}"].cells["art"].mean == 76
    assert rows[f"bne{LEANING}"].cells[AVERAGE_DEEPALL].mean == 65
    assert f"deepall{LEANING}" not in rows
    learned = [record(ours, 700, leaning=(*leaning, at("learned", 30, 800)))]
    rows = accuracy_table("a table", find_records([ours], learned), None, "last").rows
    assert rows[1].cells["art"].mean == 80
    tables = [accuracy_table("a table", found, None, rule) for rule in ("last", "oracle")]
    assert {row.name for row in tables[1].rows} == {"bne", "deepall"}
    shown = [name for name, *_ in grid(tables).rows if name]
    assert shown == ["bne", f"bne{LEANING}", "deepall"]


PERCENT = st.floats(min_value=1, max_value=100)


@given(st.lists(PERCENT, min_size=2, max_size=6))
def test_mean_and_standard_error_are_numpys(values: list[float]) -> None:
    cell = Cell(dict(enumerate(values)), len(values))
    assert cell.mean == pytest.approx(np.mean(values))
    expected = np.std(values, ddof=1) / math.sqrt(len(values))
    assert cell.error == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell({0: 70.04}, 1), "70.0"),
        (Cell({0: 70.0, 1: 72.0}, 2), "71.0 ± 1.0"),
        (Cell({1: 70.0}, 3), "70.0 [1/3]"),
        (Cell({}, 3), "…"),
        (Cell({}, 0), "–"),
    ],
)
def test_a_cell_says_what_is_missing(cell: Cell, text: str) -> None:
    assert str(cell) == text
    assert (cell.error is None) == (len(cell.values) < 2)
    assert (cell.mean is None) == (not cell.values)


def test_only_seeds_that_every_target_has_are_averaged_and_targets_can_be_weighed() -> None:
    mean = average([Cell({0: 60.0, 1: 99.0}, 2), Cell({0: 80.0}, 2)])
    assert mean.values == {0: 70.0}
    assert str(mean) == "70.0 [1/2]"
    mean = average([Cell({0: 60.0}, 1), Cell({0: 80.0}, 1)], weights=[3, 1])
    assert mean.values == {0: 65.0}


def test_the_gain_is_over_common_seeds_only() -> None:
    base, gain = compared(Cell({0: 84.0, 1: 10.0}, 3), Cell({0: 80.0, 2: 20.0}, 3))
    assert base.values == {0: 80.0}
    assert gain.mean == pytest.approx(5)
    assert str(gain) == "+5.00 [1/3]"
    assert gain.difference(5.86) == " (−0.86)"
    base, gain = compared(Cell({0: 84.0}, 1), Cell({1: 80.0}, 1))
    assert base.mean is None
    assert gain.mean is None
    assert str(gain) == "…"


@given(st.dictionaries(st.integers(0, 4), st.tuples(PERCENT, PERCENT), min_size=1))
def test_the_gain_follows_from_the_printed_averages(pairs: dict[int, tuple[float, float]]) -> None:
    ours = Cell({seed: a for seed, (a, _) in pairs.items()}, len(pairs))
    deepall = Cell({seed: b for seed, (_, b) in pairs.items()}, len(pairs))
    base, gain = compared(ours, deepall)
    a, b = (statistics.fmean(values) for values in zip(*pairs.values(), strict=True))
    assert base.mean == pytest.approx(b)
    assert gain.mean == pytest.approx(100 * (a - b) / b, abs=1e-9)


def test_signs() -> None:
    assert [signed(x, 1) for x in (0.26, -0.26, -0.04)] == ["+0.3", "−0.3", "0.0"]
