"""Pages read back: their tables and data, and how they open in a real browser."""

import json
import re
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

HOSTILE = '<img src=x onerror="document.title=1">$x_{$</script>&lt;'
BROKEN = "[...document.images].filter((one) => !one.complete || !one.naturalWidth).length"
UNFILLED = """[...document.querySelectorAll(".chart")].filter((box) => box.clientWidth
  && Math.abs((box.querySelector("svg")?.clientWidth ?? 0) - box.clientWidth) > 1)
  .map((box) => box.id)"""
WALK = """(id) => {
  const box = document.getElementById(id), found = [];
  box.focus();
  for (;;) {
    box.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
    const text = document.getElementById("tip").textContent;
    if (found[0] === text) break;
    found.push(text);
  }
  box.blur();
  return found;
}"""
FAINT = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("p, td, th, li, .chart svg > text, figcaption")]
    .filter((one) => one.checkVisibility() && !one.matches("rect + text"))
    .filter((one) => {
      const ink = light(getComputedStyle(one)[one.tagName === "text" ? "fill" : "color"]);
      return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5;
    }).map((one) => one.textContent.slice(0, 40));
}"""
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
def opened(browser, file: Path, width: int = 1280, ready: str = "body", color: str = "light"):
    """The page once `ready` is there; whatever is done with it, it says and asks for nothing."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=color)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector(ready, state="attached")
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    page.close()


def fits(page, width: int) -> None:
    """Nothing is wider than the window, all pictures are shown, all charts fill their boxes."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BROKEN) == 0
    assert page.evaluate(UNFILLED) == []
    assert page.evaluate("document.querySelectorAll('form[action], a[href^=http]').length") == 0
    for button in page.locator(".save button").all():  # all that a chart offers
        assert button.text_content() in ("SVG", "PDF")


def readable(page) -> None:
    """Text stands out from the paper as WCAG asks of it, in charts too."""
    assert page.evaluate(FAINT) == []


def told(page, chart: str) -> list[str]:
    """All that a chart tells someone who walks through it by the arrow keys."""
    return page.evaluate(WALK, chart)


def hovered(page, chart: str, number: int) -> tuple[str, str]:
    """What is told of a mark when the pointer is on it, and in which color."""
    page.mouse.move(0, 0)
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    box = page.locator(f"#{chart} path.point").nth(number).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tip", state="visible")
    tip = page.locator("#tip")
    return tip.text_content(), tip.evaluate("tip => getComputedStyle(tip).borderLeftColor")
