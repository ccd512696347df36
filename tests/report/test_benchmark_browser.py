"""The page of a benchmark in a real browser."""

from pathlib import Path

import pytest

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.tables import find_records
from bne.report.benchmark_page import benchmark_page
from tests.report.benchmarks import RECORDS, benchmark, experiment
from tests.report.browsing import HOSTILE, hovered, opened, opened_in_peace

pytest.importorskip("plotly", reason="needs plotly")

READY = "#filters.ready"
METHODS = {"DeepAll": "deepall", f"BNE {HOSTILE}": "bne", "third": "bne"}
FIGURES = {
    "DeepAll": [[700, 800, 600], [712, 790, 610]],
    f"BNE {HOSTILE}": [[801, 900, 700], [811, 910, 710]],
    "third": [[750, 850, None], [None, None, None]],
}


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of methods one of which has a name that would break an unwary page."""
    file = tmp_path_factory.mktemp("benchmark") / "report.html"
    file.write_text(benchmark_page(experiment(title=HOSTILE), benchmark(FIGURES, METHODS)))
    return file


@pytest.mark.parametrize("width", [1280, 390])
def test_it_renders_without_a_complaint(
    browser, page_file: Path, width: int, tmp_path: Path
) -> None:
    page = opened_in_peace(browser, page_file, width, READY)
    assert page.title() == "Benchmark of-mine"
    assert page.locator("#dots .scatterlayer .points path.point").count() > 0
    assert page.locator("#run-curves .chart").count() == 3
    for plot in page.locator("#run-curves .chart").all():  # each as wide as its box
        drawn = plot.locator(".main-svg").first.bounding_box()["width"]
        assert drawn == pytest.approx(plot.bounding_box()["width"], abs=4)
    wide = page.locator("[data-rule=last] .wide")
    assert wide.evaluate("box => getComputedStyle(box).overflowX") == "auto"
    page.screenshot(path=tmp_path / f"{width}.png", full_page=True)
    assert (tmp_path / f"{width}.png").stat().st_size > 50_000
    page.close()


def visible(page, selector: str) -> list[str]:
    """The texts of what can be seen."""
    seen = [one for one in page.locator(selector).all() if one.is_visible()]
    return [one.text_content().replace("\u00a0", " ") for one in seen]


def test_the_whole_table_is_seen_at_once(browser, tmp_path: Path) -> None:
    """Targets, averages and gains beside the paper's, of seeds that are not all there."""
    table = choose(table="ablation-pacs-resnet18", recipe="pacs-resnet18-standard")
    runs = plan(table, 3, {}, weights="resnet18_imagenet.safetensors")
    file = tmp_path / "report.html"
    file.write_text(benchmark_page(table, find_records(runs, read(RECORDS))))
    page, _, _ = opened(browser, file, 1280, READY)
    for rule in ("last", "oracle"):
        page.select_option("#rule", rule)
        box = page.locator(f"[data-rule={rule}] .wide")
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.close()


def test_a_rule_is_chosen(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, READY)
    assert visible(page, "[data-rule] h3") == ["Network of the last epoch"]
    assert "70.6 ± 0.6" in visible(page, "[data-rule] td")
    before = page.evaluate("document.getElementById('dots').data[1].y[0]")
    page.select_option("#rule", "oracle")
    (title,) = visible(page, "[data-rule] h3")
    assert "no fair choice, an upper bound" in title
    after = page.evaluate("document.getElementById('dots').data[1].y[0]")
    assert (before, after) == (70, 71)  # the oracle is right in ten images more
    assert "71.6 ± 0.6" in visible(page, "[data-rule] td")
    assert "70.6 ± 0.6" not in visible(page, "[data-rule] td")
    assert said == []
    page.close()


def test_methods_are_chosen(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, READY)
    page.locator("#runs summary").click()
    rows = "[data-rule=last] th[scope=row]"
    assert [name for name in visible(page, rows) if name] == list(METHODS)
    assert len(visible(page, "#runs tr")) == 1 + 18
    assert page.locator("#curves-0 .scatterlayer .trace").count() == 2 + 2 + 1
    page.locator("#filters input[name=method]").nth(1).uncheck()
    assert [name for name in visible(page, rows) if name] == ["DeepAll", "third"]
    assert len(visible(page, "#runs tr")) == 1 + 12
    assert page.locator("#curves-0 .scatterlayer .trace").count() == 2 + 1
    assert page.evaluate("document.getElementById('dots').data.length") == 2 * 3
    page.locator("#filters input[name=method]").nth(1).check()
    assert [name for name in visible(page, rows) if name] == list(METHODS)
    assert said == []
    page.close()


def test_targets_are_chosen(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, READY)
    page.locator("#runs summary").click()
    heads = "[data-rule=last] th[scope=col]"
    columns = ["art", "photo", "sketch", "Avg. DA", "Avg.", "Δ%"]
    assert visible(page, heads)[-6:] == columns
    ticks = "#dots .xaxislayer-above text"
    assert visible(page, ticks) == ["art", "photo", "sketch", "average"]
    page.locator("#filters input[name=target]").nth(1).uncheck()
    assert visible(page, heads)[-5:] == [name for name in columns if name != "photo"]
    assert visible(page, ticks) == ["art", "sketch"]  # no average of some of the targets
    assert visible(page, "#run-curves figcaption") == ["Target art", "Target sketch"]
    assert len(visible(page, "#runs tr")) == 1 + 12
    for box in page.locator("#filters input[name=target]").all():
        box.uncheck()
    assert visible(page, "#run-curves figcaption") == []
    assert said == []
    page.close()


def test_pointing_tells_what_is_drawn(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, READY)
    told = hovered(page, "#dots .trace:nth-child(2) path.point", 1)
    assert told == "DeepAll, art, seed 1: 71.2 %"
    page.mouse.move(0, 0)
    told = hovered(page, "#dots .trace:nth-child(4) path.point", 1)
    assert told == f"BNE {HOSTILE}, art, seed 1: 81.1 %"
    page.mouse.move(0, 0)
    page.select_option("#measure", "target_accuracy")
    shown = page.evaluate("document.getElementById('curves-0').data[0].y")
    assert shown == [16.5, 18, 19.5, 21, 22.5, 24]
    for number in (1, 2):  # whose lines lie on the first
        page.locator("#filters input[name=method]").nth(number).uncheck()
    told = hovered(page, "#curves-0 .trace:nth-child(1) path.point", 4)
    assert told == "DeepAll, seed 0epoch 5, distance training: 22.5"
    assert said == []
    page.close()
