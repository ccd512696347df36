"""Pages read back: their tables and data, and how they open in a real browser."""

import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

HOSTILE = '<img src=x onerror="document.title=1">$x_{$</script>&lt;'
BROKEN = "[...document.images].filter((one) => !one.complete || !one.naturalWidth).length"
EMPTY = ("meta", "link", "img", "br", "input")


class Reader(HTMLParser):
    """The tables of a page by caption, a list of texts a row; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables, self.sections, self.asked, self.ids = {}, [], [], []
        self._open, self._text = [], ""
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        fields = dict(attributes)
        self.ids += [fields["id"]] if "id" in fields else []
        self.sections += [fields["id"]] if tag == "section" else []
        addresses = [fields[name] for name in ("src", "href") if name in fields]
        self.asked += [one for one in addresses if not one.startswith(("data:", "#"))]
        assert tag != "img" or "alt" in fields
        if tag not in EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self._rows.append([])
        if tag in ("caption", "th", "td"):
            self._text = ""

    def handle_data(self, data):
        self._text += data

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "caption":
            self._rows = self.tables.setdefault(self._text, [])
        if tag in ("th", "td"):
            self._rows[-1].append(self._text)

    def table(self, caption: str) -> dict[str, list[str]]:
        """The cells of a table by the names of its rows."""
        return {name: cells for name, *cells in self.tables[caption]}


def data_of(text: str, name: str):
    """What a page tells its scripts."""
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', text)[1])


@contextmanager
def opened(browser, file: Path, width: int = 1280, ready: str = "body"):
    """The page once `ready` is there; whatever is done with it, it says and asks for nothing."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector(ready, state="attached")
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    page.close()


def fits(page, width: int) -> None:
    """Nothing is wider than the window, all pictures are shown, all charts fill their boxes."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BROKEN) == 0
    plots = page.locator(".chart.js-plotly-plot").all()
    assert len(plots) == page.locator(".chart").count()
    for plot in plots:
        drawn = plot.locator(".main-svg").first.bounding_box()["width"]
        assert abs(drawn - plot.bounding_box()["width"]) <= 4


def hovered(page, selector: str, number: int) -> str:
    """What is told of one of several marks when the pointer is on it."""
    page.mouse.move(0, 0)
    mark = page.locator(selector).nth(number)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".hoverlayer .hovertext")
    return page.locator(".hoverlayer .hovertext").first.text_content()
