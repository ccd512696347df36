"""The page of a benchmark, against figures made otherwise."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from bne.benchmark.execute import Outcome
from bne.benchmark.expectation import expectations
from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.render import result_grid
from bne.benchmark.tables import accuracy_table, find_records, signed
from bne.report.benchmark_page import MOST, benchmark_page, chart_data, verdict
from bne.report.charts import thinned
from bne.report.page import environment_texts
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.pages import HOSTILE, Reader, data_of

pytest.importorskip("plotly", reason="needs plotly")

BNE = [[800, 900, 700], [810, 920, 690], [790, 910, 720]]
CLOSE = [[790, 905, 700], [815, 915, 690], [795, 900, 715]]
FAR = [[700, 800, 600], [715, 820, 585], [690, 810, 620]]
ALMOST = [[790, 890, 690], [790, 900, 670], [760, 880, 690]]  # 1, 2 and 3 points below BNE
NEVER = [None, None, None]


def mean_and_error(values) -> tuple[float, float | None]:
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
    return float(np.mean(values)), error


@pytest.mark.parametrize(
    ("other", "seeds", "clear"),
    [(FAR, 3, True), (CLOSE, 3, False), (ALMOST, 3, False), (CLOSE, 2, False), (FAR, 1, False)],
)
def test_a_lead_is_taken_seed_by_seed(other, seeds: int, clear: bool) -> None:
    """What both gain by a lucky seed is no error of it."""
    ours, theirs = np.mean(BNE[:seeds], 1) / 10, np.mean(other[:seeds], 1) / 10
    found = benchmark({"other": other[:seeds], "ours": BNE[:seeds]})
    told = verdict(accuracy_table("t", found, None, "last"), None)
    (lead,) = told.leads
    assert (told.ranked, told.targets, lead.other) == (["ours", "other"], 3, "other")
    assert (told.average.mean, told.average.error) == pytest.approx(mean_and_error(ours))
    gap = lead.difference
    assert (gap.mean, gap.error) == pytest.approx(mean_and_error(ours - theirs))
    assert lead.clear == clear
    page = written(experiment(), found)
    assert f"+{gap.mean:.1f} points" in page
    if seeds > 1:
        low, high = ttest_1samp(ours - theirs, 0).confidence_interval()
        assert f"{signed(low, 1)} to\n{signed(high, 1)}" in page


def test_the_page_says_what_to_expect_at_a_new_domain() -> None:
    found = benchmark({"DA": FAR, "ours": BNE}, {"DA": "deepall"})
    page = html.unescape(benchmark_page(experiment(), found))
    told = [one for rule in ("last", "validation") for one in expectations(found, [rule])]
    assert len(told) == 4
    assert all(str(one) in page for one in told)
    assert page.count("expected accuracy at a new domain") == 4  # none under the oracle


@pytest.mark.parametrize(
    ("figures", "baseline", "leads", "absent"),
    [
        ({"DA": FAR, "close": CLOSE, "ours": BNE}, "DA", {"close": 3, "DA": 3}, []),
        ({"ours": BNE, "far": [FAR[0], [700, None, 600], NEVER]}, None, {"far": 1}, []),
        ({"ours": [NEVER, BNE[1]], "far": [FAR[0], NEVER]}, None, {"far": 0}, []),
        ({"ours": BNE, "new": [NEVER]}, "new", {}, ["new"]),
        ({"ours": [[800, None, 700]]}, None, {}, ["ours"]),
        ({"ours": [[800], [810]]}, "ours", {}, []),
    ],
)
def test_who_is_compared_over_how_many_seeds(figures, baseline, leads, absent) -> None:
    found = benchmark(figures)
    told = verdict(accuracy_table("t", found, None, "last"), baseline)
    assert {lead.other: len(lead.difference.values) for lead in told.leads} == leads
    assert told.absent == absent
    assert sorted(told.ranked) == sorted(set(figures) - set(absent))
    assert Reader(written(experiment(), found)).sections[0] == "results"


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


def test_a_mean_of_one_seed_lies_where_the_seed_does() -> None:
    (one, known), *_ = benchmark({"ours": [[2]]})
    thirds = {"art": {"correct": 2, "images": 3}}
    found = [(one, replace(known, accuracy={"last": thirds}))]
    data = chart_data(found, {"last": accuracy_table("t", found, None, "last")})
    figure = data["figures"]["last"][0][0]
    assert figure == {"mean": 66.667, "error": None, "seeds": [[0, 66.667]], "paper": None}


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
    assert any(figure["mean"] for figure in figures)
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
    assert len(benchmark_page(experiment(), long).encode()) < 8_000_000
