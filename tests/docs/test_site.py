"""The site: what its hooks make, and how it behaves in a real browser."""

import runpy
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import bne
from bne.cli.app import app
from bne.recipes.files import names
from tests.docs.pages import ROOT
from tests.docs.running import commands


@pytest.fixture(scope="module")
def hooks() -> Any:
    pytest.importorskip("mkdocs", reason="needs mkdocs")
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks.py")))


def test_the_page_of_commands_has_every_command_and_option(hooks: Any) -> None:
    page = hooks.commands_page()
    for command in commands(typer.main.get_command(app)):
        section = page.split(f"{command.name}\n\n{command.help}", 1)[1].split("\n## ")[0]
        for parameter in command.params:
            assert all(f"`{name}" in section or f" {name}" in section for name in parameter.opts)


def test_the_page_of_recipes_has_every_recipe(hooks: Any) -> None:
    page = hooks.recipes_page()
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == names()
    assert "A table of the paper: `bne benchmark --table sota-pacs-alexnet`." in page
    assert "| BNE (6-per-domain) | `method: bne, per_domain: 6` |" in page


def test_the_reference_has_every_public_name_of_the_core() -> None:
    page = (ROOT / "docs" / "api" / "core.md").read_text()
    assert {name for name in bne.__all__ if f"::: bne.{name}\n" not in page} == set()


@pytest.fixture(scope="module")
def address() -> Any:
    """Of a server of the site that `make docs` built, as `make test` does before this."""
    site = ROOT / "site"
    if not (site / "index.html").is_file():
        pytest.skip("needs the site, which `make docs` builds")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_ask_for_nothing_from_elsewhere(browser: Any, address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for name in ("index", "docs/method", "docs/commands", "docs/api/core", "results/index"):
        page.goto(f"{address}/{name}.html", wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    assert said == []
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    page.close()


@pytest.mark.parametrize("from_disk", [False, True])
def test_search_finds_a_question(browser: Any, address: str, from_disk: bool) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said, asked = [], []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    start = (ROOT / "site").as_uri() if from_disk else address
    # What is typed before the page has its index is lost.
    page.goto(f"{start}/docs/api/core.html", wait_until="networkidle")
    page.locator("input.md-search__input").press_sequentially("mixed batches")
    page.wait_for_selector(".md-search-result__link")
    found = page.eval_on_selector_all(".md-search-result__link", "all => all.map(a => a.href)")
    assert any("questions.html" in link for link in found)
    assert said == []
    assert [url for url in asked if not url.startswith((start, "data:"))] == []
    page.close()


def test_a_reader_chooses_dark(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page.goto(f"{address}/docs/gallery.html")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    for _ in range(2):  # from the system's to light, from light to dark
        page.locator("form[data-md-component=palette] label:visible").click()
    assert page.evaluate(paper) != before
    page.goto(f"{address}/index.html")  # which remembers it
    assert page.evaluate(paper) != before
    page.close()


def test_the_gallery_has_pages_that_open(browser: Any, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/docs/gallery.html")
    links = page.eval_on_selector_all("article a[href$='.html']", "all => all.map(a => a.href)")
    pages = {link for link in links if "/gallery/" in link}
    assert len(pages) == 4
    for link in pages:
        page.goto(link)
        assert page.locator(".answer").first.text_content()
        assert page.locator(".chart svg").count() > 0
    page.close()
