"""docs/results.md says what the records say.

Figures are computed here once more, from the lines of the files as they are.
"""

import json
import sys
from copy import deepcopy
from pathlib import Path
from statistics import fmean, pstdev, stdev
from types import ModuleType

import pytest

from bne.benchmark.records import Record, settings
from bne.recipes.files import load
from tests.results.reading import (
    FOLDER,
    TARGETS,
    Line,
    accuracy,
    lines,
    numbers,
    on_target,
    row,
    standard_runs,
    text,
    with_seed,
    write,
)


def test_the_page_is_what_the_records_give(make: ModuleType) -> None:
    for name, expected in make.pages().items():
        written = (make.DOCS / name).read_text(encoding="utf-8")
        assert written == expected, "run python results/make.py"
        weights = "resnet18_imagenet (reconstructed torchvision V1)"
        assert written.index(weights) < written.index("| ")


@pytest.mark.parametrize("rule", ["last", "validation", "oracle"])
def test_the_gap(make: ModuleType, tables: list[Line], tmp_path: Path, rule: str) -> None:
    page = text(make, write(tmp_path, tables=tables, search=lines("search.jsonl")))
    by_hand = {(line["method"], *line["target"]): accuracy(line, rule) for line in tables}
    gaps = [by_hand["bne", target] - by_hand["deepall", target] for target in TARGETS]
    label = {"oracle": "ours, oracle (on the target)"}.get(rule, f"ours, {rule}")
    section = page[page.index("## The paper's orders") :]
    assert numbers(row(section, label)) == pytest.approx([*gaps, fmean(gaps)], abs=0.051)
    assert "[1/3]" in page
    assert "| BNE (dt,no-warmup) | paper | 79.8 |" in page  # not run: the paper's alone


def test_the_course_of_long_runs(make: ModuleType, tmp_path: Path) -> None:
    long = [line for line in lines("tables.jsonl") if line["settings"]["train"]["epochs"] == 60]
    page = text(make, write(tmp_path, tables=long))
    runs = [line for line in long if line["settings"]["train"]["optimiser"]["name"] == "adam"]
    section = page[page.index("Does the gap grow?") :]
    course: dict[str, dict[str, list[float]]] = {"deepall": {}, "bne": {}}
    for line in runs:
        epochs = [epoch["target"].values() for epoch in line["epochs"] if epoch["phase"] == "train"]
        accuracies = [100 * s["correct"] / s["images"] for (s,) in epochs]
        course[line["method"]][line["target"][0]] = accuracies

    def tens(method: str, *targets: str) -> list[float]:
        own = course[method]
        return [fmean(v for t in targets for v in own[t][s : s + 10]) for s in range(0, 60, 10)]

    for method, own in course.items():
        assert numbers(row(section, method)) == pytest.approx(tens(method, *TARGETS), abs=0.051)
        wandering = page[page.index("How much the last epoch") :]
        cells = row(wandering, f"{method} by `pacs-resnet18`, `epoch=220`")
        spreads = [float(cell.split("±")[1]) for cell in cells]
        expected = fmean(pstdev(run[40:]) for run in own.values())
        assert spreads[-1] == pytest.approx(expected, abs=0.051)
    pairs = zip(tens("bne", "sketch"), tens("deepall", "sketch"), strict=True)
    gaps = [bne_ - deepall for bne_, deepall in pairs]
    assert numbers(row(section, "gap, sketch")) == pytest.approx(gaps, abs=0.051)
    assert "10 (warm-up) | 11–20 (warm-up) | 21–30 (DT)" in section
    # On other targets there is nothing to compare.
    other = [line for line in runs if (line["method"] == "bne") == (line["target"] == ["photo"])]
    assert "Does the gap grow?" not in text(make, write(tmp_path, tables=other))


def test_the_main_table(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    page = make.pages(write(tmp_path, tables=tables))["results.md"]
    by_hand = {(line["method"], *line["target"]): accuracy(line, "last") for line in tables}
    cells = row(page, "**BNE (c)**: after a warm-up, the whole method")
    own = [by_hand["bne", target] for target in TARGETS]
    assert numbers(cells) == pytest.approx([*own, fmean(own)], abs=0.051)
    assert [cell.split("(")[1] for cell in cells] == ["78.8)", "78.9)", "94.8)", "79.7)", "83.1)"]
    assert row(page, "InstanceNorm")[0] == "… (62.6)"


def test_orders_are_open_within_the_error(
    make: ModuleType, tables: list[Line], tmp_path: Path
) -> None:
    def verdict(fewer: int, targets: tuple[str, ...]) -> list[str]:
        """With InstanceNorm as DeepAll, but for so many fewer correct answers on each target."""
        overrides = {"method": "instance-norm", "target": ["sketch"]}
        usual = settings(load("pacs-resnet18-standard", overrides))
        others = []
        for line in tables:
            if line["method"] == "deepall" and line["target"][0] in targets:
                other = with_seed(line, 0, -fewer)
                other["method"] = other["settings"]["method"] = "instance-norm"
                other["settings"]["options"] = usual["options"]
                others.append(Record.from_dict(other).to_dict())
        page = text(make, write(tmp_path, tables=tables + others))
        return row(page, "BatchNorm > InstanceNorm")[1:3]

    assert verdict(4, TARGETS)[0] == "open"
    assert verdict(150, TARGETS)[0] == "yes"
    assert verdict(-80, TARGETS)[0] == "**no**"
    assert verdict(150, TARGETS[1:3]) == ["yes", "+7.7 (cartoon, photo)"]


def test_the_form_of_the_distance(make: ModuleType) -> None:
    page = make.pages()["results.md"]
    form, *_ = (json.loads(line) for line in (FOLDER.parent / "distances.jsonl").open())
    assert (form["spread"], form["form"]) == ("σ", "squared")
    printed = {"art_painting": (1.18, 0.70, 1.15), "cartoon": (0.94, 1.02, 0.90)}
    printed["photo"] = (1.19, 0.70, 1.25)
    differences = []
    for source, similarities in form["similarity"]["sketch"].items():
        ours = [100 * v / sum(similarities.values()) for v in similarities.values()]
        papers = [100 * v / sum(printed[source]) for v in printed[source]]
        differences += [abs(a - b) for a, b in zip(ours, papers, strict=True)]
    cells = numbers(row(page, "(μ, σ), squared"))
    assert cells[1] == pytest.approx(fmean(differences), abs=0.051)
    accuracies = [form["domain_accuracy"][target] for target in TARGETS]
    assert cells[2:] == pytest.approx([*accuracies, fmean(accuracies)], abs=0.051)


def test_several_seeds(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    more = [with_seed(line, 1, 40 if line["method"] == "bne" else 0) for line in tables]
    page = text(make, write(tmp_path, tables=tables + more))
    assert "(2 seeds), DeepAll" in page
    gaps = []
    for runs in (tables, more):
        base, own = (
            fmean(accuracy(line, "last") for line in runs if line["method"] == method)
            for method in ("deepall", "bne")
        )
        gaps.append(own - base)
    mean, error = row(page[page.index("## The paper's orders") :], "ours, last")[-1].split(" ± ")
    assert float(mean) == pytest.approx(fmean(gaps), abs=0.051)
    assert float(error) == pytest.approx(stdev(gaps) / 2**0.5, abs=0.051)


def test_runs_of_no_table_are_shown(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    odd = deepcopy(next(line for line in tables if line["method"] == "bne"))
    odd["settings"]["options"]["layers"] = ["bn1"]
    page = text(make, write(tmp_path, tables=tables, further=[odd]))
    (target,) = odd["target"]
    assert f"| run | rule | {target} | seeds |" in page
    cells = row(page, "bne, `options.layers=['bn1']` | last")
    assert cells == [f"{accuracy(odd, 'last'):.1f}", "1"]


def test_nothing_is_hidden_when_little_is_recorded(
    make: ModuleType, search: list[Line], tables: list[Line], tmp_path: Path
) -> None:
    empty = text(make, write(tmp_path))
    assert "No search is recorded." in empty
    assert "No run is recorded." in empty
    assert "| Variants of the method |" in empty
    assert "0 of 60" in empty
    alone = [line for line in search if line["method"] == "deepall"]
    page = text(make, write(tmp_path, search=alone, tables=tables[:1]))
    assert "No setting was tried with every method on every target." in page
    assert "are not both recorded" in page
    assert "1 of 60" in page


def test_what_is_inside(make: ModuleType, tables: list[Line], tmp_path: Path) -> None:
    page = text(make, write(tmp_path, tables=tables))
    (line,) = (one for one in tables if (one["method"], one["target"]) == ("bne", ["sketch"]))
    found, sources = line["analysis"]["target"]["accuracy"], line["analysis"]["sources"]
    scores = [found["prediction"], *found["by_rank"]]
    scores += [found["by_weighting"][name] for name in ("bhattacharyya", "uniform")]
    expected = [100 * s["sketch"]["correct"] / s["sketch"]["images"] for s in scores]
    inside = page[page.index("## Inside") :]
    assert numbers(row(inside, "bne | sketch")) == pytest.approx(expected, abs=0.051)
    blocks = inside[inside.index("Share of each block") :]
    shares = numbers(row(blocks, "bne | sketch"))
    assert shares[0] == pytest.approx(100 * sources["layers"]["bn1"]["share"], abs=0.051)
    assert sum(shares) == pytest.approx(100, abs=0.3)
    own = [s["correct"] / s["images"] for s in sources["domain_accuracy"]["train"].values()]
    domains = inside[inside.index("How often images") :]
    assert numbers(row(domains, "bne | sketch"))[0] == pytest.approx(100 * fmean(own), abs=0.051)


def test_past_the_paper(pages: str) -> None:
    page = pages[pages.index("## Past the paper") : pages.index("## What was run")]
    labels = {"oracle": "oracle (on the target)", "running": "last, running statistics"}

    def figure(line: Line, rule: str) -> float:
        return on_target(line, rule) if rule == "running" else accuracy(line, rule)

    for rule in ("last", "validation", "oracle", "running"):
        label = labels.get(rule, rule)
        means = []
        for name, shown in (("deepall", "DeepAll"), ("wasserstein", "BNE (dt,warmup)")):
            runs = standard_runs(name, "pacs-resnet18-strong")
            each = [[figure(r, rule) for (t, _), r in runs.items() if t == own] for own in TARGETS]
            means.append([fmean(values) for values in each])
            cells = numbers(row(page, f"{shown} | {label}"))
            assert cells == pytest.approx([*means[-1], fmean(means[-1])], abs=0.051)
        gaps = [own - base for base, own in zip(*means, strict=True)]
        cells = numbers(row(page, f"gap | {label}"))
        assert cells == pytest.approx([*gaps, fmean(gaps)], abs=0.051)


def test_dson_with_both_weights(pages: str) -> None:
    page = pages[pages.index("### DSON under") : pages.index("## What was run")]
    runs = standard_runs("dson")
    found = []
    for name, label in (
        ("uniform", "averaged, as in DSON"),
        ("wasserstein", "weighted by distance, as in BNE"),
    ):
        values = []
        for target in TARGETS:
            own = [r["analysis"]["target"]["accuracy"] for (t, _), r in runs.items() if t == target]
            scores = [one["by_weighting"][name][target] for one in own]
            values.append(fmean(100 * s["correct"] / s["images"] for s in scores))
        assert numbers(row(page, label)) == pytest.approx([*values, fmean(values)], abs=0.051)
        found.append(values)
    gaps = [weighted - averaged for averaged, weighted in zip(*found, strict=True)]
    shown = numbers(row(page, "difference"))
    assert shown == pytest.approx([*gaps, fmean(gaps)], abs=0.051)


def test_before_anything_past_the_paper_is_run(make: ModuleType, tmp_path: Path) -> None:
    runs = [line for line in lines("tables.jsonl") if line["method"] in ("deepall", "bne-a")]
    page = make.pages(write(tmp_path, tables=runs))["results.md"]
    assert "### Step by step" in page
    assert "## Past the paper" not in page


def test_runs_that_were_not_analysed_or_stand_twice(make: ModuleType, tmp_path: Path) -> None:
    runs = [*standard_runs("wasserstein").values(), *standard_runs("dson").values()]
    runs += standard_runs("deepall").values()
    assert "### By class" in text(make, write(tmp_path, tables=runs, twice=runs))
    bare = [{**line, "analysis": {}} for line in runs]
    (tmp_path / "twice.jsonl").unlink()
    page = text(make, write(tmp_path, tables=bare))
    assert "### All variants" in page
    assert "### By class" not in page
    assert "### DSON under" not in page


def test_a_length_that_only_one_method_was_run_at(make: ModuleType, tmp_path: Path) -> None:
    runs = [*standard_runs("wasserstein").values(), *standard_runs("deepall").values()]
    longer = deepcopy(standard_runs("deepall")["sketch", 0])
    longer["settings"]["train"] |= {"epochs": 60, "warm_up": 20}
    longer = Record.from_dict(longer).to_dict()
    search = lines("search.jsonl")
    pages = [
        text(make, write(tmp_path, search=search, tables=own)) for own in (runs, [*runs, longer])
    ]
    sections = [p[p.index("### Length of training") : p.index("### Optimiser")] for p in pages]
    assert sections[0] == sections[1]
    assert "| sketch | 20 (6) |" in sections[0]
    assert "| photo |" not in sections[0]  # run at one length


def test_the_other_finalist(make: ModuleType) -> None:
    page = make.pages()["results.md"]
    (sentence,) = [line for line in page.splitlines() if "The other finalist" in line]
    runs = [
        line
        for line in lines("tables.jsonl")
        if line["settings"]["train"]["optimiser"]["learning_rate"] == 3e-4
    ]
    for rule in ("last", "validation", "oracle"):
        found = {(line["method"], line["target"][0]): accuracy(line, rule) for line in runs}
        mean = fmean(found["bne", target] - found["deepall", target] for target in TARGETS)
        shown = f"{mean:+.1f}".replace("-", "−").replace("+0.0", "0.0").replace("−0.0", "0.0")
        assert shown in sentence


def test_ranks_are_averaged_as_the_paper_does(pages: str) -> None:
    """By images, not by targets."""
    section = pages[pages.index("## The paper's orders") :]
    correct: list[list[int]] = [[], [], []]
    images = []
    for line in standard_runs("bne-a").values():
        by_rank = line["analysis"]["target"]["accuracy"]["by_rank"]
        for found, scores in zip(correct, by_rank, strict=True):
            (score,) = scores.values()
            found.append(score["correct"])
        images.append(score["images"])
    means = [100 * sum(found) / sum(images) for found in correct]
    for place, name in enumerate(("closest > second", "second > third")):
        shown = numbers(row(section, f"{name} | closest-domain-accuracy-pacs-resnet18")[1:2])
        assert shown == pytest.approx([means[place] - means[place + 1]], abs=0.051)


def test_how_many_orders_have_the_papers_size(pages: str) -> None:
    records = [Record.from_dict(line) for line in lines("tables.jsonl")]
    orders = {(o.better, o.worse): o for o in sys.modules["page.order_section"].orders(records)}
    assert orders["BatchNorm", "InstanceNorm"].alike  # +5.7 and +6.8, error 0.6
    assert not orders["BNE (dt,warmup)", "DeepAll"].alike  # +1.7 and +4.6
    number = sum(order.alike for order in orders.values())
    assert f"In {number} of all the paper's difference is ours within twice the error." in pages
    shown = [row(pages, f"{o.better} > {o.worse} | {o.table}") for o in orders.values()]
    within = [numbers(cells[1:3]) for cells in shown if cells[0] == "open"]
    opposed = sum(ours < 0 for ours, _ in within)
    far = sum(abs(ours - papers) > 1.25 for ours, papers in within)
    sentence = f"Of those within it {opposed} have the other sign, and in {far} the paper's"
    assert sentence in pages
    assert [int(cells[-1]) for cells in shown] == [3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 3, 3]
