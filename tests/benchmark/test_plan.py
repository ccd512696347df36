import pytest

from bne.benchmark.plan import choose, estimate, plan
from bne.benchmark.reference import tables
from bne.errors import BneError, SettingsError
from bne.recipes.files import names
from tests.benchmark.examples import record


def small(**choice):
    return choose(recipe="default", methods=["deepall", "bne"], benchmark="pacs", **choice)


def test_the_first_seed_of_every_row_comes_before_any_second() -> None:
    items = plan(small(targets=["photo", "sketch"]), 2, {"weights": None, "per_domain": 8})
    assert [str(item) for item in items] == [
        f"{row}, {target}, seed {seed}"
        for seed in (0, 1)
        for row in ("deepall", "bne")
        for target in ("photo", "sketch")
    ]
    assert {item.recipe.per_domain for item in items} == {8}
    assert len({item.digest for item in items}) == 8


def test_every_table_of_the_paper_can_be_planned() -> None:
    for name, paper in tables().items():
        assert name in names()
        experiment = choose(table=name)
        items = plan(experiment, 1, {"weights": None})
        if experiment.analysis is None:
            ours = {item.row for item in items}
            assert ours & {row.name for row in paper.rows}
            assert {item.target for item in items} == set(paper.targets)


def test_a_table_takes_the_settings_of_another_recipe() -> None:
    own, ours = (choose(table="ablation-pacs-resnet18", recipe=r) for r in (None, "default"))
    assert own.rows == ours.rows
    assert own.name == ours.name
    epochs = [plan(e, 1, {"weights": None})[0].recipe.train.epochs for e in (own, ours)]
    assert epochs == [60, 20]


def test_the_same_run_serves_two_tables() -> None:
    one, other = (
        plan(choose(table=name), 1, {"weights": None})
        for name in ("ablation-pacs-resnet18", "normalization-pacs-resnet18")
    )
    common = {item.digest for item in one} & {item.digest for item in other}
    assert len(common) == 8  # DeepAll and BNE (c) on four targets


def test_pairs_of_domains_are_one_target() -> None:
    experiment = choose(table="sota-officecaltech-resnet18", targets=["dslr+webcam"])
    items = plan(experiment, 1, {"weights": None})
    assert {item.recipe.target for item in items} == {("dslr", "webcam")}
    assert {item.target for item in items} == {"dslr+webcam"}


def test_any_domains_can_be_held_out_together() -> None:
    domains = [("a",), ("b",), ("c+d",)]
    chosen = choose(targets=["b+a", "a + b", "c+d"], held_out=domains)
    assert chosen.targets == (("a", "b"), ("c+d",))
    with pytest.raises(SettingsError, match="no domain 'x'"):
        choose(targets=["a+x"], held_out=domains)


def test_rows_and_targets_named_twice_are_run_once() -> None:
    twice = {"rows": ["DeepAll", "DeepAll"], "targets": ["photo", "photo"]}
    assert len(plan(choose(table="ablation-pacs-resnet18", **twice), 1, {"weights": None})) == 1


def test_without_a_benchmark_every_domain_is_held_out_once() -> None:
    experiment = choose(held_out=[("a",), ("b", "c")])
    assert experiment.targets == (("a",), ("b", "c"))
    assert [row.title for row in experiment.rows] == ["deepall", "bne"]


def test_weights_need_not_be_at_hand() -> None:
    items = plan(small(), 1, {"weights": None}, weights="nowhere/w.safetensors")
    assert items[0].settings["weights"] == "w.safetensors"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"table": "sota-pacs-resnet"}, "the nearest is 'sota-pacs-resnet18'"),
        ({"table": "default"}, "The paper has no table 'default'"),
        ({"table": "sota-pacs-resnet18", "methods": ["bne"]}, "choose from them with --row"),
        ({"table": "sota-pacs-resnet18", "benchmark": "office31"}, "is a table of pacs"),
        ({"table": "sota-pacs-resnet18", "rows": ["BME"]}, "the nearest is 'BNE'"),
        ({"table": "sota-pacs-resnet18", "targets": ["foto"]}, "the nearest is 'photo'"),
        ({"recipe": "default"}, "name a --benchmark"),
        ({"benchmark": "pcas"}, "no benchmark 'pcas'"),
        ({"benchmark": "pacs", "methods": ["depall"]}, "nearest is 'deepall'"),
    ],
)
def test_what_does_not_go_together_is_said(choice: dict[str, object], message: str) -> None:
    with pytest.raises(BneError, match=message):
        plan(choose(**choice), 1, {"weights": None})


def test_time_is_estimated_from_like_runs_only() -> None:
    items = plan(small(), 2, {"weights": None})
    deepall = [i for i in items if i.row == "deepall"]
    records = [record(deepall[0], 1, seconds=10.0), record(deepall[1], 1, seconds=20.0)]
    assert estimate(deepall[2:4], records) == pytest.approx(30)
    assert estimate(items, records) is None  # nothing is known of bne
    assert estimate([], []) == 0
    longer = plan(small(), 1, {"weights": None, "train.epochs": 60})
    assert estimate(longer[:1], records) is None


@pytest.mark.parametrize("field", ["code_sha256", "platform", "device"])
def test_time_is_estimated_from_the_newest_runs(field: str) -> None:
    one = plan(small(), 1, {"weights": None})[0]
    busy = [record(one, 1, seconds=90.0)] * 30
    quick = [record(one, 1, seconds=5.0)] * 24
    assert estimate([one], busy + quick) == pytest.approx(5)
    slow = record(one, 1, seconds=90.0, environment={field: "an earlier one"})
    now = record(one, 1, seconds=5.0, environment={field: "this one"})
    assert estimate([one], [slow] * 9 + [now]) == pytest.approx(5)
