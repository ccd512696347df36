"""The page of a benchmark, against figures made otherwise."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from bne.benchmark.execute import Outcome
from bne.benchmark.expectation import expectations
from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.render import result_grid
from bne.benchmark.tables import accuracy_table, find_records
from bne.report.benchmark_page import MOST, benchmark_page, chart_data
from bne.report.charts import thinned
from bne.report.page import environment_texts
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.pages import HOSTILE, Reader, data_of

BNE = [[800, 900, 700], [810, 920, 690], [790, 910, 720]]
FAR = [[700, 800, 600], [715, 820, 585], [690, 810, 620]]


def test_the_page_says_what_to_expect_at_a_new_domain() -> None:
    found = benchmark({"DA": FAR, "ours": BNE}, {"DA": "deepall"})
    page = html.unescape(benchmark_page(experiment(), found))
    told = [one for rule in ("last", "validation") for one in expectations(found, [rule])]
    assert len(told) == 4
    assert all(str(one) in page for one in told)
    assert page.count("expected accuracy at a new domain") == 4  # none under the oracle


def written(*arguments) -> str:
    return re.sub(r"<script>.*?</script>", "", benchmark_page(*arguments), flags=re.DOTALL)


def test_real_records_are_shown_as_the_table_has_them() -> None:
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 1, {}, weights="resnet18_imagenet.safetensors")
    found = find_records(runs, read(RECORDS)[:8])  # lines are only ever added
    page = Reader(written(table, found))
    rules = ("last", "validation", "oracle")
    grids = [result_grid(table, found, [rule]) for rule in rules]
    expected = [list(row) for grid in grids for row in (grid.head, *grid.rows)]
    assert page.tables["ablation-pacs-resnet18"] == expected
    assert expected[7][:2] == ["BNE (dt,warmup)", "ours, last"]
    by_run = page.tables["Accuracy on the target, %, by the epoch that is tested"]
    assert ["DeepAll", "photo", "0", "93.8", "94.0", "94.4", "80 s"] in by_run
    assert sum(row[3] == "–" for row in by_run) == 12
    environment = page.table("What it ran in")
    assert environment["device"][0].startswith("NVIDIA")
    weights = "resnet18_imagenet.safetensors, SHA-256 d703b"
    assert environment["initial weights"][0].startswith(weights)


def test_settings_are_told_apart() -> None:
    found = benchmark({"DeepAll": BNE, "BNE": BNE}, {"DeepAll": "deepall"})
    page = Reader(written(experiment(), found))
    common = page.table("Settings that all runs have in common")
    assert (common["per_domain"], common["train.epochs"]) == (["16"], ["20"])
    assert not common.keys() & {"method", "target", "seed"}
    head, *rows = page.tables["Settings in which the methods differ"]
    assert head == ["setting", "DeepAll", "BNE"]
    assert ["options.distance", "–", "wasserstein"] in rows
    assert all(one != another for _, one, another in rows)


def test_figures_are_told_as_the_table_has_them() -> None:
    """An error of 1.2496 is 1.2, which two roundings would make 1.3."""
    (one, known), *_ = benchmark({"ours": [[2]]})
    thirds = {"art": {"correct": 2, "images": 3}}
    found = [(one, replace(known, accuracy={"last": thirds}))]
    data = chart_data(found, {"last": accuracy_table("t", found, None, "last")})
    figure = data["figures"]["last"][0][0]
    seeds = [[0, pytest.approx(200 / 3)]]
    assert figure == {"text": "66.7", "planned": 1, "seeds": seeds, "paper": None}
    assert data["quantiles"] == {}
    many = benchmark({"ours": BNE * 3})
    drawn = chart_data(many, {"last": accuracy_table("t", many, None, "last")})
    assert drawn["quantiles"] == {n: pytest.approx(t.ppf(0.975, n - 1)) for n in range(2, 10)}


def test_environments_are_told_apart() -> None:
    ran = [{"torch": "2.11"}, {"torch": "2.11", "device": "a GPU"}, {"torch": "2.12"}]
    assert environment_texts(ran)["torch"] == "2.11 (2 runs); 2.12 (1 run)"
    assert environment_texts(ran)["device"].endswith("; a GPU (1 run)")


def test_names_are_texts() -> None:
    found = benchmark({HOSTILE: BNE})
    failed = [Outcome(found[0][0], problem=HOSTILE)]
    page = written(experiment(name=HOSTILE, title=HOSTILE), found, failed)
    assert HOSTILE not in page
    assert html.escape(HOSTILE).replace("&quot;", "&#34;") in page
    assert data_of(page, "benchmark-data")["methods"][0]["name"] == HOSTILE
    assert Reader(page).asked == []


def test_what_is_missing_is_said() -> None:
    found = benchmark({"ours": [[800, None, 700]]})
    mute = replace(found[0][1], epochs=({"phase": "train"},))
    failed = [Outcome(found[1][0], problem="no luck (see x.error)")]
    text = written(experiment(), [(found[0][0], mute), *found[1:]], failed)
    page = Reader(text)
    assert page.tables["Not finished"] == [["run"], ["ours, photo, seed 0"]]
    missing = text.split('id="missing"')[1].split("</section>")[0]
    for told in ("1 of 3 runs", "no luck (see x.error)", "1 finished run "):
        assert told in missing
    assert [run["target"] for run in data_of(text, "benchmark-data")["runs"]] == [2]


def test_nothing_is_finished() -> None:
    page = Reader(written(experiment(), benchmark({"ours": [[None, None]]})))
    assert page.sections == ["results", "missing", "runs", "methods", "settings"]


def test_runs_that_held_nothing_out_have_no_such_rule() -> None:
    found = [
        (one, replace(known, accuracy={k: known.accuracy[k] for k in ("last", "oracle")}))
        for one, known in benchmark({"ours": BNE})
    ]
    assert re.findall(r'data-rule="(\w+)"', written(experiment(), found)) == ["last", "oracle"]


def test_tables_of_the_latent_space_have_a_page() -> None:
    table = choose(table="similarity-pacs-resnet18-sketch-unseen")
    found = find_records(plan(table, 1, {}, weights="w.safetensors"), [])
    assert Reader(written(table, found)).tables[table.name][2][:2] == ["", "paper"]


def test_figures_that_are_no_accuracies_are_not_drawn_among_them() -> None:
    """The paper's rows of that table have the names of ours."""
    table = choose(table="domain-accuracy-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 1, {}, weights="resnet18_imagenet.safetensors")
    data = data_of(written(table, find_records(runs, read(RECORDS))), "benchmark-data")
    figures = [figure for rule in data["figures"].values() for row in rule for figure in row]
    assert any(figure["seeds"] for figure in figures)
    assert {figure["paper"] for figure in figures} == {None}


def test_curves_are_those_of_the_records_thinned() -> None:
    (one, known), *_ = benchmark({"ours": BNE[:1]})
    long = [{**known.epochs[-1], "epoch": k, "loss": 1 / k} for k in range(1, 1001)]
    found = [(one, replace(known, epochs=tuple(long)))]
    (run,) = chart_data(found, {"last": accuracy_table("t", found, None, "last")})["runs"]
    assert len(run["x"]) == MOST
    assert (run["x"][0], run["x"][-1]) == (1, 1000)
    np.testing.assert_allclose(run["loss"], 1 / np.array(run["x"]), rtol=1e-3)
    assert run["source"][0] == pytest.approx(71)  # 66 and 76 of 100
    assert run["target_accuracy"][0] == pytest.approx(24)  # 48 of 200
    for count, most in ((1, 5), (5, 5), (6, 5), (13, 12)):
        places = thinned(count, most)
        assert len({*places}) == min(count, most)
        assert (places[0], places[-1]) == (0, count - 1)


def test_many_runs_stay_small() -> None:
    """900 runs of 102 epochs: ten methods, three targets, thirty seeds."""
    found = benchmark({f"method {k}": BNE * 10 for k in range(10)})
    long = [(one, replace(known, epochs=known.epochs * 17)) for one, known in found]
    assert len(long) == 900
    assert len(benchmark_page(experiment(), long).encode()) < 2_000_000
