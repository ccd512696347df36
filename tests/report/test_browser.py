"""The page of a run in a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest

from bne.report.run_page import write_report
from tests.report.browsing import HOSTILE, hovered, opened, opened_in_peace
from tests.report.models import analysis, training

pytest.importorskip("plotly", reason="needs plotly, without which a page holds no script")

READY = "#stage.ready"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose domains, classes and files have names that would break an unwary page."""
    _, found = analysis(images=12, layers=["bn2"])
    observed = replace(
        found.observed,
        domains=(*found.observed.domains[:-1], f"w{HOSTILE}"),
        classes=tuple(f"{name}{HOSTILE}" for name in found.observed.classes),
    )
    rename = {"webcam": f"w{HOSTILE}"}
    change = lambda one: replace(  # noqa: E731
        one, name=one.name + HOSTILE, domain=rename.get(one.domain, one.domain)
    )
    numbers = _renamed(found.numbers, rename)
    images = found.prepared.images
    prepared = replace(
        found.prepared,
        images=replace(images, domains=tuple(rename.get(d, d) for d in images.domains)),
    )
    hostile = replace(
        found,
        observed=observed,
        prepared=prepared,
        numbers=numbers,
        points=[change(one) for one in found.points],
        examples={kind: [change(one) for one in own] for kind, own in found.examples.items()},
    )
    trained = training(("art", "cartoon", "photo"), f"w{HOSTILE}")
    return write_report(tmp_path_factory.mktemp("page"), hostile, trained)[0]


def _renamed(content, names):
    if isinstance(content, dict):
        return {names.get(key, key): _renamed(value, names) for key, value in content.items()}
    return [_renamed(one, names) for one in content] if isinstance(content, list) else content


@pytest.mark.parametrize("width", [1280, 390])
def test_it_renders_without_a_complaint(
    browser, page_file: Path, width: int, tmp_path: Path
) -> None:
    page = opened_in_peace(browser, page_file, width, READY)
    assert page.title() == f"bne, tested on w{HOSTILE}"
    assert page.locator(".charts .chart .scatterlayer .trace").count() == 1 + 4  # loss, domains
    for text in ("last layer alone", "warm-up", "distance training"):
        assert page.locator("#curve-accuracy .annotation-text", has_text=text).count() == 1
    page.screenshot(path=tmp_path / f"{width}.png", full_page=True)
    assert (tmp_path / f"{width}.png").stat().st_size > 50_000
    assert (
        page.locator("#plot .scatterlayer .trace").count() == 9
    )  # 5 domains, 4 of lines and stars
    page.close()


def test_pointing_at_an_image_shows_it(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, READY)
    before = page.get_attribute("#hover-image", "src")
    lines = page.locator("#plot .scatterlayer .trace").nth(5).locator("path.js-line")
    drawn = lines.first.get_attribute("d")
    expected = page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById("map-data").textContent);
          const own = data.points.flatMap((one, i) => (one.domain === 2 ? [i] : []));
          return [data.thumbnails[own[3]], data.points[own[3]].name];
        }"""
    )
    point = page.locator("#plot .scatterlayer .trace").nth(2).locator("path.point").nth(3)
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_function(
        "name => document.getElementById('hover-name').textContent === name", arg=expected[1]
    )
    source = page.get_attribute("#hover-image", "src")
    assert source == "data:image/jpeg;base64," + expected[0] != before
    assert page.locator("#hover-weights .bar").count() == 3
    page.wait_for_function(
        "before => document.querySelectorAll('#plot .scatterlayer .trace')[5]"
        ".querySelector('path.js-line').getAttribute('d') !== before",
        arg=drawn,
    )
    page.select_option("#layer", label="bn2")
    moved = page.evaluate("document.getElementById('plot').data[0].x[0]")
    assert moved == page.evaluate(
        "JSON.parse(document.getElementById('map-data').textContent).maps[1].x[0]"
    )
    assert said == []
    page.close()


def test_pointing_at_a_curve_tells_its_epoch(browser, page_file: Path) -> None:
    page, said, _ = opened(browser, page_file, 1280, ".charts.ready")
    told = hovered(page, "#curve-accuracy .trace:nth-child(2) path.point", 3)
    assert told == "cartoon, held-out imagesepoch 4, warm-up: 64"
    page.locator("#settings summary").click()
    assert page.get_by_text("train.warm_up", exact=True).is_visible()
    assert said == []
    page.close()
