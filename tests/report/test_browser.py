"""Pages in a real browser, made of names that would break an unwary page."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import confusion_matrix

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.tables import find_records
from bne.report.benchmark_page import benchmark_page
from bne.report.run_page import write_report
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.models import analysis, training
from tests.report.pages import HOSTILE, fits, hovered, opened

pytest.importorskip("plotly", reason="needs plotly")

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


@pytest.mark.parametrize("width", [1280, 390])
def test_a_run_is_drawn(browser, run_file: Path, width: int) -> None:
    with opened(browser, run_file, width, RUN_READY) as page:
        fits(page, width)
        assert page.title() == f"bne, tested on w{HOSTILE}"
        counts = {"curve-loss": 1, "curve-accuracy": 4, "chart-answers": 5, "calibration-4": 2}
        for name, count in counts.items():  # of lines and groups of dots
            assert page.locator(f"#{name} .scatterlayer .trace").count() == count
        for text in ("last layer alone", "warm-up", "distance training"):
            assert page.locator("#curve-accuracy .annotation-text", has_text=text).count() == 1
        assert page.locator("#plot .scatterlayer .trace").count() == 9  # 5 domains, lines, stars
        assert page.locator("#chart-share .bars path").count() == 4
        assert page.locator("#confusion-4 .heatmaplayer image").count() == 1


def test_charts_show_what_the_network_says(browser, analysed, run_file: Path) -> None:
    """The numbers that are drawn, against the images shown again."""
    model, found = analysed
    numbers = found.observed.numbers
    inputs = model.transform(model.prepared.pixels[numbers].permute(0, 3, 1, 2))
    with torch.no_grad():
        answers = model.method.predict(inputs).argmax(1)
        distances = model.method.explain(inputs).distances
    truth = torch.tensor([model.prepared.images.files[n].label for n in numbers])
    ask = "([name, trace, key]) => document.getElementById(name).data[trace][key]"
    with opened(browser, run_file, ready=RUN_READY) as page:
        for d in range(5):
            here = found.observed.domain == d
            counts = confusion_matrix(truth[here], answers[here], labels=range(3), normalize="true")
            assert page.evaluate(ask, [f"confusion-{d}", 0, "z"]) == pytest.approx(100 * counts)
            right = 100 * (answers == truth)[here].double().mean()
            assert page.evaluate(ask, ["chart-answers", d, "x"])[0] == pytest.approx(float(right))
            means = (1 / distances[here]).mean(0)
            shares = page.evaluate(ask, ["chart-similarity", 0, "z"])[d]
            assert shares == pytest.approx((100 * means / means.sum()).tolist(), rel=1e-3)
        assert sum(page.evaluate(ask, ["chart-share", 0, "x"])) == pytest.approx(100)
        second = page.evaluate(ask, ["chart-domains", 0, "x"])[1]
        assert hovered(page, "#chart-domains .bars path", 1) == f"bn2: {second:.1f} %"


def test_pointing_at_an_image_shows_it(browser, run_file: Path) -> None:
    with opened(browser, run_file, ready=RUN_READY) as page:
        traces = page.locator("#plot .scatterlayer .trace")
        line = "document.querySelectorAll('#plot .scatterlayer .trace')[5].innerHTML"
        before = page.evaluate(line)
        picture, name = page.evaluate(
            """() => {
              const data = charts.data("map-data");
              const own = data.points.flatMap((one, i) => (one.domain === 2 ? [i] : []));
              return [data.thumbnails[own[3]], data.points[own[3]].name];
            }"""
        )
        assert page.get_attribute("#hover-image", "src") != picture
        point = traces.nth(2).locator("path.point").nth(3)
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function(
            "name => document.getElementById('hover-name').textContent === name", arg=name
        )
        assert page.get_attribute("#hover-image", "src") == picture
        assert page.locator("#hover-weights .bar").count() == 3
        page.wait_for_function(f"before => {line} !== before", arg=before)
        page.select_option("#layer", label="bn2")
        moved = page.evaluate("document.getElementById('plot').data[0].x[0]")
        assert moved == page.evaluate("charts.data('map-data').maps[1].x[0]")
        told = hovered(page, "#curve-accuracy .trace:nth-child(2) path.point", 3)
        assert told == "cartoon, held-out imagesepoch 4, warm-up: 64"
        page.locator("#settings summary").click()
        assert page.get_by_text("train.warm_up", exact=True).is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_benchmark_is_drawn(browser, page_file: Path, width: int) -> None:
    with opened(browser, page_file, width, READY) as page:
        fits(page, width)
        assert page.title() == "Benchmark of-mine"
        assert page.locator("#dots .scatterlayer .points path.point").count() > 0
        assert page.locator("#run-curves .chart").count() == 3
        wide = page.locator("[data-rule=last] .wide")
        assert wide.evaluate("box => getComputedStyle(box).overflowX") == "auto"


def test_the_whole_table_is_seen_at_once(browser, tmp_path: Path) -> None:
    """Targets, averages and gains beside the paper's, of seeds that are not all there."""
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 3, {}, weights="resnet18_imagenet.safetensors")
    file = tmp_path / "report.html"
    file.write_text(benchmark_page(table, find_records(runs, read(RECORDS))))
    with opened(browser, file, ready=READY) as page:
        for rule in ("last", "oracle"):
            page.select_option("#rule", rule)
            box = page.locator(f"[data-rule={rule}] .wide")
            assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def visible(page, selector: str) -> list[str]:
    """The texts of what can be seen."""
    seen = [one for one in page.locator(selector).all() if one.is_visible()]
    return [one.text_content().replace("\u00a0", " ") for one in seen]


def test_rules_and_methods_are_chosen(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        first = "document.getElementById('dots').data[1].y[0]"
        for rule, dot, figure in (("oracle", 71, "71.6 ± 0.6"), ("last", 70, "70.6 ± 0.6")):
            page.select_option("#rule", rule)
            assert page.evaluate(first) == dot  # the oracle is right in ten images more
            assert len(visible(page, "[data-rule] h3")) == 1
            figures = {"71.6 ± 0.6", "70.6 ± 0.6"} & {*visible(page, "[data-rule] td")}
            assert figures == {figure}
        page.locator("#runs summary").click()
        for ticked, names, runs, lines in (
            (True, list(METHODS), 18, 5),
            (False, ["DeepAll", "third"], 12, 3),
            (True, list(METHODS), 18, 5),
        ):
            page.locator("#filters input[name=method]").nth(1).set_checked(ticked)
            rows = visible(page, "[data-rule=last] th[scope=row]")
            assert [name for name in rows if name] == names
            assert len(visible(page, "#runs tr")) == 1 + runs
            assert page.locator("#curves-0 .scatterlayer .trace").count() == lines
            assert page.evaluate("document.getElementById('dots').data.length") == 3 * len(names)


def test_targets_are_chosen(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        page.locator("#runs summary").click()
        heads, ticks = "[data-rule=last] th[scope=col]", "#dots .xaxislayer-above text"
        columns = ["art", "photo", "sketch", "Avg. DA", "Avg.", "Δ%"]
        assert visible(page, heads)[-6:] == columns
        assert visible(page, ticks) == ["art", "photo", "sketch", "average"]
        page.locator("#filters input[name=target]").nth(1).uncheck()
        assert visible(page, heads)[-5:] == [name for name in columns if name != "photo"]
        assert visible(page, ticks) == ["art", "sketch"]  # no average of some of the targets
        assert visible(page, "#run-curves figcaption") == ["Target art", "Target sketch"]
        assert len(visible(page, "#runs tr")) == 1 + 12
        for box in page.locator("#filters input[name=target]").all():
            box.uncheck()
        assert visible(page, "#run-curves figcaption") == []


def test_pointing_tells_what_is_drawn(browser, page_file: Path) -> None:
    with opened(browser, page_file, ready=READY) as page:
        told = hovered(page, "#dots .trace:nth-child(2) path.point", 1)
        assert told == "DeepAll, art, seed 1: 71.2 %"
        told = hovered(page, "#dots .trace:nth-child(4) path.point", 1)
        assert told == f"BNE {HOSTILE}, art, seed 1: 81.1 %"
        page.select_option("#measure", "target_accuracy")
        shown = page.evaluate("document.getElementById('curves-0').data[0].y")
        assert shown == [16.5, 18, 19.5, 21, 22.5, 24]
        for number in (1, 2):  # whose lines lie on the first
            page.locator("#filters input[name=method]").nth(number).uncheck()
        told = hovered(page, "#curves-0 .trace:nth-child(1) path.point", 4)
        assert told == "DeepAll, seed 0epoch 5, distance training: 22.5"
