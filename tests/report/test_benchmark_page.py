"""The page of a benchmark, against figures made otherwise."""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from bne.benchmark.execute import Outcome
from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.render import result_grid
from bne.benchmark.tables import accuracy_table, find_records
from bne.report import benchmark_page as pages
from bne.report.benchmark_sections import MOST, chart_data, filter_form, progress, verdict
from bne.report.curves import thinned
from bne.report.run_sections import environment_table
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.browsing import HOSTILE

BNE = [[800, 900, 700], [810, 920, 690], [790, 910, 720]]
CLOSE = [[790, 905, 700], [815, 915, 690], [795, 900, 715]]
FAR = [[700, 800, 600], [715, 820, 585], [690, 810, 620]]


def sentences(figures, rule="last", baseline=None) -> str:
    table = accuracy_table("t", benchmark(figures), None, rule)
    return " ".join(verdict(table, baseline))


def standard_error(values) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def test_a_clear_winner() -> None:
    text = sentences({"far": FAR, "ours": BNE})
    ours, far = np.mean(BNE, 1) / 10, np.mean(FAR, 1) / 10
    assert text == (
        f"ours is best: {ours.mean():.1f} ± {standard_error(ours):.1f} % (mean ± standard error "
        "over 3 seeds) on average over 3 targets. "
        f"Against far ({far.mean():.1f} %) that is +{(ours - far).mean():.1f} ± "
        f"{standard_error(ours - far):.1f} points, seed by seed over 3 seeds: more than twice its "
        "standard error."
    )


def test_within_the_error() -> None:
    """The difference is seed by seed: what both gain by a lucky seed is no error of it."""
    gap = (np.mean(BNE, 1) - np.mean(CLOSE, 1)) / 10
    assert 0 < gap.mean() < 2 * standard_error(gap)
    text = sentences({"close": CLOSE, "ours": BNE})
    assert f"+{gap.mean():.1f} ± {standard_error(gap):.1f} points" in text
    assert text.endswith("within twice its standard error, so the two cannot be told apart.")


def test_one_seed_has_no_error() -> None:
    text = sentences({"far": FAR[:1], "ours": BNE[:1]})
    assert text.startswith("ours is best: 80.0 % (1 seed) on average over 3 targets.")
    assert "+10.0 points in the one seed that both have: how much of it is chance" in text


def test_two_seeds_tell_little() -> None:
    text = sentences({"far": FAR[:2], "ours": BNE[:2]})
    assert text.endswith("more than twice its standard error, but two seeds tell little of that.")


def test_the_baseline_is_compared_too() -> None:
    text = sentences({"DA": FAR, "close": CLOSE, "ours": BNE}, baseline="DA")
    assert text.count("Against close (80.3 %)") == text.count("Against DA (70.4 %)") == 1


def test_half_finished() -> None:
    figures = {"ours": BNE, "far": [FAR[0], [700, None, 600], [None, None, None]], "new": [[None]]}
    text = sentences(figures)
    assert "in the one seed that both have" in text
    assert text.endswith("There is no average yet of new.")
    assert progress(benchmark(figures)) == (
        "3 methods, 3 targets and 3 seeds make 19 runs; 14 of them are finished, so everything "
        "below is provisional."
    )
    assert "+10.0 points in the one seed that both have" in sentences({"ours": BNE[:1], "far": FAR})
    nothing = {"ours": [[800, None, 700]]}
    assert sentences(nothing).startswith("No method has been run on every target")
    assert sentences({"ours": BNE, "far": [[None] * 3, FAR[1]]}).count("in the one seed") == 1


def test_only_one_method_and_one_target() -> None:
    assert sentences({"ours": [[800], [810]]}) == (
        "ours has 80.5 ± 0.5 % (mean ± standard error over 2 seeds) on the only target."
    )


class Tables(HTMLParser):
    """The texts of all tables of a page, by caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found, self._cell, self._caption = {}, None, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self._cell = ""

    def handle_data(self, data):
        if self._caption is not None:
            self._caption += data
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self.rows = self.found.setdefault(self._caption, [])
            self._caption = None
        elif tag in ("th", "td"):
            self.rows[-1].append(self._cell)
            self._cell = None


def written(*arguments) -> str:
    pytest.importorskip("plotly", reason="needs plotly")
    text = pages.benchmark_page(*arguments)
    return re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_real_records_are_shown_as_the_table_has_them() -> None:
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 1, {}, weights="resnet18_imagenet.safetensors")
    found = find_records(runs, read(RECORDS)[:8])  # lines are only ever added
    tables = Tables(written(table, found)).found
    rules = ("last", "validation", "oracle")
    grids = [result_grid(table, found, [rule]) for rule in rules]
    expected = [list(row) for grid in grids for row in (grid.head, *grid.rows)]
    assert tables["ablation-pacs-resnet18"] == expected
    assert expected[7][:2] == ["BNE (dt,warmup)", "ours, last"]
    by_run = tables["Accuracy on the target, %, by the epoch that is tested"]
    assert ["DeepAll", "photo", "0", "93.8", "94.0", "94.4", "80 s"] in by_run
    assert sum(row[3] == "–" for row in by_run) == 12
    environment = dict(tables["What it ran in"][1:])
    assert environment["device"].startswith("NVIDIA")
    assert environment["initial weights"].startswith("resnet18_imagenet.safetensors, SHA-256 d703b")


def test_settings_are_told_apart() -> None:
    found = benchmark({"DeepAll": BNE, "BNE": BNE}, {"DeepAll": "deepall"})
    tables = Tables(written(experiment(), found)).found
    common = dict(tables["Settings that all runs have in common"])
    assert (common["per_domain"], common["train.epochs"]) == ("16", "20")
    assert not common.keys() & {"method", "target", "seed"}
    head, *rows = tables["Settings in which the methods differ"]
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
    environments = [{"torch": "2.11"}, {"torch": "2.11", "device": "a GPU"}, {"torch": "2.12"}]
    rows = Tables(environment_table(environments)).found["What it ran in"]
    assert ["torch", "2.11 (2 runs); 2.12 (1 run)"] in rows
    assert ["device", "not known (2 runs); a GPU (1 run)"] in rows


def test_names_to_choose_from_are_texts() -> None:
    form = filter_form([{"name": HOSTILE, "colour": "#000000"}], [HOSTILE], ["last"])
    assert form.count(html.escape(HOSTILE)) == 2
    assert HOSTILE not in form


def test_what_is_missing_is_said() -> None:
    found = benchmark({"ours": [[800, None, 700]]})
    mute = replace(found[0][1], epochs=({"phase": "train"},))
    failed = [Outcome(found[1][0], problem="no luck (see x.error)")]
    text = html.unescape(written(experiment(), [(found[0][0], mute), *found[1:]], failed))
    assert "1 of 3 runs are not finished." in text
    assert "ours, photo, seed 0 failed: no luck (see x.error)" in text
    assert "1 finished run recorded no epochs: no curves." in text
    data = json.loads(re.search(r'id="benchmark-data">(.*?)</script>', text)[1])
    assert [run["target"] for run in data["runs"]] == [2]


def test_nothing_is_finished() -> None:
    text = written(experiment(), benchmark({"ours": [[None, None]]}))
    assert "0 of them are finished" in text
    for absent in ("targets", "curves", "environment"):
        assert f'<section id="{absent}">' not in text


def test_runs_that_held_nothing_out_have_no_such_rule() -> None:
    found = [
        (one, replace(known, accuracy={k: known.accuracy[k] for k in ("last", "oracle")}))
        for one, known in benchmark({"ours": BNE})
    ]
    text = written(experiment(), found)
    assert re.findall(r'data-rule="(\w+)"', text) == ["last", "oracle"]


def test_tables_of_the_latent_space_have_a_page() -> None:
    table = choose(table="similarity-pacs-resnet18-sketch-unseen")
    found = find_records(plan(table, 1, {}, weights="w.safetensors"), [])
    tables = Tables(written(table, found)).found
    assert tables[table.name][2][:2] == ["", "paper"]


def test_figures_that_are_no_accuracies_are_not_drawn_among_them() -> None:
    """The paper's rows of that table have the names of ours."""
    table = choose(table="domain-accuracy-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 1, {}, weights="resnet18_imagenet.safetensors")
    found = find_records(runs, read(RECORDS))
    text = written(table, found)
    data = json.loads(re.search(r'id="benchmark-data">(.*?)</script>', text)[1])
    figures = [figure for rule in data["figures"].values() for row in rule for figure in row]
    assert any(figure["mean"] for figure in figures)
    assert {figure["paper"] for figure in figures} == {None}
    assert "Diamonds" not in text


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


@pytest.mark.parametrize(("count", "most"), [(1, 5), (5, 5), (6, 5), (100, 12), (13, 12)])
def test_thinning_keeps_the_ends(count: int, most: int) -> None:
    places = thinned(count, most)
    assert len(places) == len(set(places)) == min(count, most)
    assert (places[0], places[-1]) == (0, count - 1)


def test_many_runs_stay_small(tmp_path: Path) -> None:
    """900 runs of 100 epochs: ten methods, three targets, thirty seeds."""
    pytest.importorskip("plotly", reason="needs plotly")
    found = benchmark({f"method {k}": BNE * 10 for k in range(10)})
    lines = [
        (one, replace(known, epochs=tuple(known.epochs[k % 6] for k in range(100))))
        for one, known in found
    ]
    assert len(lines) == 900
    assert len(pages.benchmark_page(experiment(), lines).encode()) < 8_000_000
