"""Pages in a real browser, made of names that would break an unwary page."""

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp
from sklearn.metrics import confusion_matrix

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.tables import find_records, signed
from bne.inspection.maps import Map
from bne.report.benchmark_page import benchmark_page
from bne.report.page import render
from bne.report.run_page import run_page, write_report
from tests.inspection.models import analysis
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.models import training
from tests.report.pages import HOSTILE, fits, hovered, opened, readable, told

RUN_READY, READY = "body.ready #stage.ready", "#filters.ready"
METHODS = {"DeepAll": "deepall", f"BNE {HOSTILE}": "bne", "third": "bne"}
FIGURES = {
    "DeepAll": [[700, 800, 600], [712, 790, 610]],
    f"BNE {HOSTILE}": [[801, 900, 700], [811, 910, 710]],
    "third": [[750, 850, None], [None, None, None]],
}


def renamed(content):
    """The same with other names of a domain, of a class and of their files."""
    if isinstance(content, str):
        return content.replace("webcam", f"w{HOSTILE}").replace("emu", f"e{HOSTILE}")
    if isinstance(content, dict):
        return {renamed(key): renamed(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(map(renamed, content))
    if is_dataclass(content):
        own = {one.name: renamed(getattr(content, one.name)) for one in fields(content)}
        return replace(content, **own)
    return content


@pytest.fixture(scope="module")
def analysed():
    return analysis(images=12, layers=["bn2"])


@pytest.fixture(scope="module")
def run_file(analysed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained = training(("art", "cartoon", "photo"), "webcam")
    return write_report(tmp_path_factory.mktemp("page"), *map(renamed, (analysed[1], trained)))[0]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("benchmark") / "report.html"
    file.write_text(benchmark_page(experiment(title=HOSTILE), benchmark(FIGURES, METHODS)))
    return file


SIZES = pytest.mark.parametrize(("width", "color"), [(1280, "light"), (390, "dark")])


@SIZES
def test_a_run_is_drawn(browser, run_file: Path, width: int, color: str) -> None:
    with opened(browser, run_file, width, RUN_READY, color) as page:
        fits(page, width)
        readable(page)
        assert page.title() == f"bne, tested on w{HOSTILE}"
        lines = {"curve-loss": 1, "curve-accuracy": 4}
        for name, count in lines.items():
            assert page.locator(f"#{name} path.line").count() == count
        for text in ("last layer alone", "warm-up", "distance training"):
            assert page.locator("#curve-accuracy text", has_text=text).count() == 1
        assert page.locator("#chart-share .bar-mark").count() == 4
        assert page.locator("#confusion-4 .bar-mark").count() == 9
        answer = page.locator(".answer").bounding_box()
        assert answer["y"] < page.locator("#chart-lead").bounding_box()["y"] < 700


def test_charts_show_what_the_network_says(browser, analysed, run_file: Path) -> None:
    """The numbers that are told, against the images shown again."""
    model, found = analysed
    numbers = found.observed.numbers
    inputs = model.transform(model.prepared.pixels[numbers].permute(0, 3, 1, 2))
    with torch.no_grad():
        answers = model.method.predict(inputs).argmax(1)
        distances = model.method.explain(inputs).distances
    truth = torch.tensor([model.prepared.images.files[n].label for n in numbers])
    with opened(browser, run_file, ready=RUN_READY) as page:
        likeness, who = told(page, "chart-similarity"), told(page, "chart-answers")
        for d, domain in enumerate(map(renamed, found.observed.domains)):
            here = found.observed.domain == d
            counts = confusion_matrix(truth[here], answers[here], labels=range(3))
            classes = [renamed(name) for name in found.observed.classes]
            assert told(page, f"confusion-{d}") == [
                f"{a}, seen as {b}: {counts[i, j]} of {counts[i].sum()}"
                for i, a in enumerate(classes)
                for j, b in enumerate(classes)
            ]
            right = 100 * (answers == truth)[here].double().mean()
            assert f"the model, images of {domain}: {right:.1f} %" in who
            means = (1 / distances[here]).mean(0)
            for k, name in enumerate(found.observed.branches):
                share = next(one for one in likeness if one.startswith(f"{domain} to {name}: "))
                value = float(share.split(": ")[-1].split()[0])
                assert value == pytest.approx(100 * float(means[k] / means.sum()), abs=0.06)
        shares = [float(one.split(": ")[-1].split()[0]) for one in told(page, "chart-share")]
        assert sum(shares) == pytest.approx(100, abs=0.3)
        assert told(page, "curve-accuracy")[9] == "cartoon (held out)\nepoch 4, warm-up: 64"
        page.locator("#settings summary").click()
        assert page.get_by_text("train.warm_up", exact=True).is_visible()


SHOWN = "document.getElementById('hover-name').textContent"


def place_of(page, one, number: int) -> tuple[float, float]:
    """Where an image is on a map, in the window, when nothing was moved."""
    box, both = page.locator("#canvas").bounding_box(), np.concatenate([one.images, one.domains])
    low, high = both.min(0), both.max(0)
    scale = min((np.array([box["width"] - 60, box["height"] - 70])) / (high - low))
    right, up = scale * (one.images[number] - (low + high) / 2)
    return box["x"] + box["width"] / 2 + right, box["y"] + box["height"] / 2 - up


def test_the_map_is_explored(browser, analysed, run_file: Path) -> None:
    """Pointed at, pinned, filtered, circled, and walked by keys."""
    _, found = analysed
    names = [renamed(point.name) for point in found.points]
    with opened(browser, run_file, ready=RUN_READY) as page:
        page.locator("#plot").scroll_into_view_if_needed()
        at = place_of(page, found.maps[0], 3)
        page.mouse.move(*at)
        page.wait_for_function(f"name => {SHOWN} === name", arg=names[3])
        assert page.locator("#neighbors").is_hidden()
        page.mouse.click(*at)
        near = [f"{names[i]}: " for i in found.maps[0].neighbors[3]]
        shown = [
            one.get_attribute("title") for one in page.locator("#neighbor-images button").all()
        ]
        assert len(near) == 5
        assert all(title.startswith(name) for title, name in zip(shown, near, strict=True))
        page.mouse.move(*place_of(page, found.maps[0], 8))
        assert page.evaluate(SHOWN) == names[3]  # it is pinned
        page.select_option("#layer", label="bn2")  # whose own weights are shown
        away = found.maps[1].distances[3]
        weights = 100 * (1 / away) / (1 / away).sum()
        bars = [one.text_content() for one in page.locator("#hover-weights > div").all()]
        for text, name, weight in zip(bars, found.observed.branches, weights, strict=True):
            assert text.startswith(f"{name}: {weight:.0f} %")
        page.select_option("#layer", label="all layers")
        page.keyboard.press("Escape")
        page.locator("#canvas").focus()
        page.keyboard.press("Escape")
        before = page.evaluate(SHOWN)
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert page.evaluate(SHOWN) != before
        assert page.locator("#unpin").is_visible()

        page.select_option("#only-verdict", "wrong")
        wrong = [point for point in found.points if point.truth != point.answer]
        assert page.locator("#map-count").text_content() == f"{len(wrong)} of {len(names)} images"
        page.select_option("#only-verdict", "")
        page.locator("#map-controls input[name=domain]").nth(0).uncheck()
        kept = [point for point in found.points if point.domain != found.observed.domains[0]]
        assert page.locator("#map-legend li").count() == 4
        page.select_option("#coloring", "right")
        assert page.locator("#map-legend li").count() == 2
        box = page.locator("#canvas").bounding_box()
        left, top, right, low = box["x"] + 2, box["y"] + 2, box["x"] + box["width"] - 2, 0
        low = box["y"] + box["height"] - 2
        page.keyboard.down("Shift")
        page.mouse.move(left, top)
        page.mouse.down()
        for x, y in ((right, top), (right, low), (left, low)):
            page.mouse.move(x, y)
        page.mouse.up()
        page.keyboard.up("Shift")
        assert page.locator("#region-told").text_content().startswith(f"{len(kept)} images")
        assert page.locator("#region-images button").count() == len(kept)


def grown(one: Map, count: int, draw: np.random.Generator) -> Map:
    """A map of as many points: noise, of which little is to be saved, and neighbors alike."""
    distances = np.exp(draw.normal(3, 1, (count, one.distances.shape[1])))
    places, domain = draw.normal(0, 40, (count, 2)), np.arange(count)[:, None] * 4 // count
    near = (domain * count + draw.integers(0, count, (count, 5))) // 4  # of the same of 4 domains
    return replace(one, images=places, distances=distances, neighbors=near)


def test_twenty_thousand_points_are_drawn(browser, analysed, tmp_path: Path) -> None:
    """All of them, and again when the map is zoomed, on a page of two megabytes and pictures."""
    _, found = analysed
    draw, count = np.random.default_rng(0), 20_000
    names = [f"art_painting/elephant/pic_{n:06d}.jpg" for n in draw.permutation(count)]
    points = [replace(found.points[n % 60], name=name) for n, name in enumerate(names)]
    shares = (dict(zip(found.observed.branches, draw.random(3), strict=True)) for _ in points)
    points = [
        replace(one, weights=own, confidence=draw.random())
        for one, own in zip(points, shares, strict=True)
    ]
    maps = [grown(found.maps[number > 0], count, draw) for number in range(4)]
    observed = replace(found.observed, mapped=found.observed.mapped.repeat(334)[:count])
    content = run_page(replace(found, observed=observed, maps=maps, points=points), None)
    file = tmp_path / "many.html"
    file.write_text(render("run", content))
    text = re.sub(r"data:image/[^\"]*", "", file.read_text())
    assert len(text.encode()) < 2_000_000
    with opened(browser, file, ready=RUN_READY) as page:
        assert page.locator("#map-count").text_content() == "20000 of 20000 images"
        drawn = "document.getElementById('canvas').toDataURL()"
        before = page.evaluate(drawn)
        page.locator("#canvas").focus()
        page.keyboard.press("+")
        page.wait_for_function(f"before => {drawn} !== before", arg=before)
        page.keyboard.press("Enter")
        titles = [one.get_attribute("title") for one in page.locator("#neighbor-images > *").all()]
        near = maps[0].neighbors[names.index(page.evaluate(SHOWN))]
        assert [title.split(":")[0] for title in titles] == [names[n] for n in near]


@SIZES
def test_a_benchmark_is_drawn(browser, page_file: Path, width: int, color: str) -> None:
    with opened(browser, page_file, width, READY, color) as page:
        fits(page, width)
        readable(page)
        assert page.title() == "Benchmark of-mine"
        assert page.locator("#dots path.point").count() > 0
        assert page.locator("#run-curves .chart").count() == 3
        assert page.locator("#curves-0 .band").count() == 2  # of the methods that have two seeds
        wide = page.locator("[data-rule=last] .wide")
        assert wide.evaluate("box => getComputedStyle(box).overflowX") == "auto"


@pytest.fixture(scope="module")
def paper_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of the paper, of seeds that are not all there."""
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 3, {}, weights="resnet18_imagenet.safetensors")
    file = tmp_path_factory.mktemp("paper") / "report.html"
    file.write_text(benchmark_page(table, find_records(runs, read(RECORDS))))
    return file


def test_the_whole_table_is_seen_at_once(browser, paper_file: Path) -> None:
    """Targets, averages and gains beside the paper's."""
    with opened(browser, paper_file, ready=READY) as page:
        for rule in ("last", "oracle"):
            page.select_option("#rule", rule)
            box = page.locator(f"[data-rule={rule}] .wide")
            assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_no_name_is_cut_on_a_phone(browser, paper_file: Path) -> None:
    """Names of lines that have no room beside them stand in a legend."""
    cut = """[...document.querySelectorAll(".chart svg text")]
      .filter((one) => one.getBBox().x + one.getBBox().width > one.ownerSVGElement.clientWidth + 1)
      .map((one) => one.textContent)"""
    with opened(browser, paper_file, 390, READY) as page:
        assert page.locator("#curves-0 text", has_text="BNE (dt,no-warmup)").count() == 1
        assert page.evaluate(cut) == []


def test_the_answer_is_that_of_what_is_ticked(browser, paper_file: Path) -> None:
    """Against scipy, from the figures that the page has by seed."""
    with opened(browser, paper_file, ready=READY) as page:
        data = page.evaluate("charts.data('benchmark-data')")
        names = [one["name"] for one in data["methods"]]
        ours, base = names.index("BNE (dt,warmup)"), names.index("DeepAll")

        def averages(method: int, targets: list[int]) -> dict[int, float]:
            cells = [dict(data["figures"]["last"][method][target]["seeds"]) for target in targets]
            common = set.intersection(*map(set, cells))
            return {seed: float(np.mean([cell[seed] for cell in cells])) for seed in common}

        def gain(targets: list[int]) -> str:
            own, other = averages(ours, targets), averages(base, targets)
            gaps = [own[seed] - other[seed] for seed in own.keys() & other.keys()]
            low, high = ttest_1samp(gaps, 0).confidence_interval()
            signs = [signed(value, 1) for value in (np.mean(gaps), low, high)]
            return "{} (95\u00a0% interval {} to {})".format(*signs)

        paper = page.locator("#reproduced")
        assert f"ours is {gain([0, 1, 2, 3])}" in paper.text_content()
        assert "+4.5 points, is reproduced in part" in paper.text_content()
        assert page.locator("#answer").text_content().startswith("DNet (dt,warmup) is ahead: ")
        for number in {*range(len(names))} - {ours, base}:
            page.locator("#filters input[name=method]").nth(number).uncheck()
        now = page.locator("#answer").text_content()
        assert now.startswith("Of what is ticked: BNE (dt,warmup) is best: ")
        assert now.endswith("more than chance.")
        page.locator("#filters input[name=target]").nth(3).uncheck()
        mean = np.mean([*averages(ours, [0, 1, 2]).values()])
        assert (
            f"{mean:.1f}\u00a0% on average over 3 targets" in page.locator("#answer").text_content()
        )
        assert f"ours is {gain([0, 1, 2])}" in paper.text_content()
        shown = next(
            one for one in told(page, "gains") if one.startswith(f"{names[ours]}, average")
        )
        assert gain([0, 1, 2]).split()[0] in shown
        page.locator("#filters input[name=method]").nth(base).uncheck()
        assert paper.is_hidden()
        assert "DeepAll" not in page.locator("#answer").text_content()


def test_a_chart_is_saved_and_a_page_printed(browser, paper_file: Path) -> None:
    with opened(browser, paper_file, ready=READY, color="dark") as page:
        with page.expect_download() as got:
            page.locator(".lead .save button", has_text="SVG").click()
        drawn = ElementTree.parse(got.value.path()).getroot()
        assert got.value.suggested_filename == "gains.svg"
        text = ElementTree.tostring(drawn, encoding="unicode")
        assert "var(" not in text
        assert "art_painting" in text
        page.evaluate("window.print = () => {}")
        page.locator(".lead .save button", has_text="PDF").click()
        size = page.locator("#sheet svg").get_attribute("viewBox").split()[2:]
        alone = page.pdf(prefer_css_page_size=True)
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        whole = page.pdf(format="A4", print_background=False)
        assert pages_of(alone) == 1
        points = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", alone).groups()
        assert [float(one) for one in points] == pytest.approx(
            [0.75 * float(n) for n in size], abs=1
        )
        assert pages_of(whole) > 3
        assert b"/Type3" not in alone
        page.emulate_media(media="print")
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
        for table in page.locator("[data-rule=last] table, #settings table").all():
            assert table.evaluate("one => one.getBoundingClientRect().right") <= 719
        assert page.locator("#filters").is_hidden()


def pages_of(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def visible(page, selector: str) -> list[str]:
    """The texts of what can be seen."""
    seen = [one for one in page.locator(selector).all() if one.is_visible()]
    return [one.text_content().replace("\u00a0", " ") for one in seen]


def test_rules_and_methods_are_chosen(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        for rule, dot, figure in (("oracle", 71, "71.6 ± 0.6"), ("last", 70, "70.6 ± 0.6")):
            page.select_option("#rule", rule)
            assert told(page, "dots")[:2] == [
                f"DeepAll, art: {figure} %",  # as the table has it
                f"DeepAll, art, seed 0: {dot}.0 %",  # the oracle is right in ten images more
            ]
            assert len(visible(page, "[data-rule] h3")) == 1
            figures = {"71.6 ± 0.6", "70.6 ± 0.6"} & {*visible(page, "[data-rule] td")}
            assert figures == {figure}
        page.locator("#runs summary").click()
        for ticked, names, runs in (
            (True, list(METHODS), 18),
            (False, ["DeepAll", "third"], 12),
            (True, list(METHODS), 18),
        ):
            page.locator("#filters input[name=method]").nth(1).set_checked(ticked)
            rows = visible(page, "[data-rule=last] th[scope=row]")
            assert [name for name in rows if name] == names
            assert len(visible(page, "#runs tr")) == 1 + runs
            assert page.locator("#curves-0 path.line").count() == len(names)
            assert len(visible(page, ".expected li")) == len([n for n in names if n != "third"])


def test_targets_are_chosen(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        page.locator("#runs summary").click()
        heads = "[data-rule=last] th[scope=col]"
        columns = ["art", "photo", "sketch", "Avg. DA", "Avg.", "Δ%"]
        assert visible(page, heads)[-6:] == columns
        page.locator("#filters input[name=target]").nth(1).uncheck()
        assert visible(page, heads)[-2:] == ["art", "sketch"]  # no average over all targets
        assert visible(page, ".expected li") == []
        assert visible(page, "#run-curves figcaption") == ["Target art", "Target sketch"]
        assert len(visible(page, "#runs tr")) == 1 + 12
        for box in page.locator("#filters input[name=target]").all():
            box.uncheck()
        assert visible(page, "#run-curves figcaption") == []


def test_pointing_tells_what_is_drawn(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        colors = [one["color"] for one in page.evaluate("charts.data('benchmark-data').methods")]
        text, color = hovered(page, "gains", 0)
        assert text.startswith(f"BNE {HOSTILE}, art: +10.0 points over DeepAll\n95 % interval")
        assert color == f"rgb{tuple(bytes.fromhex(colors[1][1:]))}"
        page.select_option("#measure", "target_accuracy")
        lines = told(page, "curves-0")
        first = "DeepAll, epoch 5, distance training: 22.75 (2 seeds: 22.5 to 23)"
        assert lines[4] == first
