"""What to expect at a new domain, against scipy's tests of one figure per domain."""

import json
from dataclasses import replace

import pytest
from scipy import stats

from bne.benchmark.expectation import Interval, expectations, expected_of
from bne.benchmark.render import figures, result_grid, result_tables
from bne.benchmark.tables import LEANING
from bne.recipes.files import load_experiment
from tests.benchmark.examples import item, record

TARGETS = ("art", "photo", "sketch")


def runs(figures: dict[str, list[list[int | None]]], images: int = 1000):
    """Runs with records, from right answers by method, by seed, on each target."""
    return [
        (one, None if right is None else record(one, right, images))
        for method, by_seed in figures.items()
        for seed, rights in enumerate(by_seed)
        for target, right in zip(TARGETS, rights, strict=False)
        for one in [item(method, target, seed)]
    ]


def test_intervals_are_over_domains_whatever_the_seeds() -> None:
    found = runs(
        {
            "deepall": [[700, 900, 500], [720, 880, 540]],
            "bne": [[760, 910, 600], [800, 890, 560]],
        }
    )
    base, ours = expectations(found, ["last", "validation", "oracle"])
    means = [78.0, 90.0, 58.0]
    assert list(ours.domains.values()) == pytest.approx(means)
    low, high = stats.t.interval(0.95, 2, stats.tmean(means), stats.sem(means))
    assert (ours.accuracy.low, ours.accuracy.high) == pytest.approx((low, high))
    test = stats.ttest_rel(means, [71.0, 89.0, 52.0]).confidence_interval(0.95)
    assert (ours.gain.low, ours.gain.high) == pytest.approx(tuple(test))
    assert ours.gain.mean == pytest.approx(14 / 3)
    assert (ours.worst, ours.seeds, ours.images, ours.rule) == ("sketch", 2, 3000, "last")
    assert (base.row, base.gain) == ("deepall", None)
    assert json.loads(json.dumps(ours.to_dict()))["sentence"] == str(ours)
    ends = f"95 % interval of the mean over 3 domains: {low:.1f} to {min(100, high):.1f}"
    assert all(part in str(ours) for part in ("75.3 %", ends, "sketch, 58.0 %", "+4.7 points"))


def test_more_seeds_do_not_narrow_it_and_more_domains_do() -> None:
    one = expectations(runs({"bne": [[780, 900, 580]]}), ["last"])[0].accuracy
    five = expectations(runs({"bne": [[780, 900, 580]] * 5}), ["last"])[0].accuracy
    assert one == five
    widths = [i.high - i.low for i in (Interval.of([50, 60, 70] * times) for times in (1, 2, 4))]
    assert widths == sorted(widths, reverse=True)


def test_only_what_is_known_is_said() -> None:
    assert expectations(runs({"bne": [[780, None, 580]]}), ["last"]) == []
    full = runs({"bne": [[780, 900, 580]]})
    assert expectations(full, ["oracle"]) == []  # which nobody has at a new domain
    assert [one.rule for one in expectations(full, ["oracle", "validation"])] == ["validation"]
    (alone,) = expectations(runs({"bne": [[780]]}), ["last"])
    assert (alone.accuracy.low, alone.gain) == (None, None)
    assert "not known" in str(alone)
    apart = runs({"deepall": [[700, 900, None]], "bne": [[780, 900, 580]]})
    (ours,) = expectations(apart, ["last"])
    assert ours.gain is None  # DeepAll lacks a domain


def test_a_network_that_leans_is_compared_with_deepall_too() -> None:
    found = runs({"deepall": [[700, 900, 500]], "bne": [[760, 910, 600]]})
    scores = {"correct": 900, "images": 1000}
    leaning = [
        (one, done if one.row == "deepall" else record(one, 0, leaning=_shares(one, scores)))
        for one, done in found
    ]
    rows = {one.row: one for one in expectations(leaning, ["last"])}
    assert rows[f"bne{LEANING}"].gain.mean == pytest.approx(90 - 70)


def _shares(one, scores):
    target = {one.recipe.target[0]: scores}
    held_out = {"other": {"correct": 5, "images": 10}}
    share = {"share": 0.0, "validation": held_out, "target": target, "gained": 0, "lost": 0}
    return (share,)


def test_what_to_expect_of_a_model_comes_from_single_domains_left_out_on_the_same_images() -> None:
    def left_out(target: tuple[str, ...], right: int, images: str, *sources: str):
        one = item("bne", "", sources=sources)
        one = replace(one, recipe=replace(one.recipe, target=target))
        return record(one, dict.fromkeys(target, right), materials={"images": images})

    def expected(records, domains=TARGETS):
        settings = left_out((), 0, "").settings
        found = expected_of(settings, domains, records, leans=False)
        return [one.accuracy.mean for one in found]

    whole = [left_out((target,), 800, "all") for target in TARGETS]
    assert expected(whole) == [80]
    others = [left_out(("art", "photo"), 400, "all"), left_out((), 0, "all")]
    others += [left_out((target,), 400, "no sketch") for target in TARGETS[:2]]
    assert expected([*whole, *others]) == [80]
    assert expected([*whole, *others], TARGETS[:2]) == [80, 40]  # either may be the model's
    assert expected(others) == []
    assert expected([*whole, left_out(("art",), 400, "all", "photo")]) == [80]
    assert expected([*whole[1:], left_out(("art",), 500, "all", "sketch", "photo")]) == [70]


def balanced(unbalanced: bool):
    """Three targets: 900 of 1,000 right, 60 % balanced."""
    score = {"correct": 900, "images": 1000, "balanced": 60.0, "unbalanced": unbalanced}
    return [
        (one, record(one, 0, accuracy={"last": {target: score}}))
        for target in TARGETS
        for one in [item("bne", target)]
    ]


def test_balanced_accuracy_is_expected_where_classes_are_unbalanced() -> None:
    (even,), (uneven,) = (expectations(balanced(kind), ["last"]) for kind in (False, True))
    assert (even.measure, even.accuracy.mean) == ("accuracy", 90)
    assert (uneven.measure, uneven.accuracy.mean) == ("balanced_accuracy", 60)
    assert "expected balanced accuracy at a new domain 60.0 %" in str(uneven)


def test_tables_show_balanced_accuracy_and_lead_with_it_where_classes_are_unbalanced() -> None:
    experiment = load_experiment("default")
    for uneven in (False, True):
        found = balanced(uneven)
        tables = result_tables(experiment, found, ["last"])
        assert [table.measure == "balanced_accuracy" for table in tables] == [uneven, not uneven]
        grid = result_grid(experiment, found, ["last"])
        labels = [row[1] for row in grid.rows]
        assert labels == sorted(["ours, last", "ours, last, balanced"], reverse=uneven)
        assert any("leads: in art, photo and sketch" in note for note in grid.notes) == uneven
        means = {one["measure"]: one["mean"] for one in figures(tables) if one["column"] == "art"}
        assert means == {"accuracy": 90, "balanced_accuracy": 60}
    mixed = [*found, *runs({"deepall": [[700, 900, 500]]})]  # some records of before
    assert [table.measure for table in result_tables(experiment, mixed, ["last"])] == ["accuracy"]
