"""Pages opened in a real browser."""

from pathlib import Path

HOSTILE = '<img src=x onerror="document.title=1">$x_{$</script>&lt;'
BROKEN = "[...document.images].filter((one) => !one.complete || !one.naturalWidth).length"


def opened(browser, file: Path, width: int, ready: str):
    """The page, and what it said and asked for of others.

    Args:
        browser: that is running.
        file: of the page.
        width: of the window.
        ready: a selector of what is there once the page is.
    """
    page = browser.new_page(viewport={"width": width, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector(ready, state="attached")
    return page, said, [url for url in asked if not url.startswith("data:")]


def opened_in_peace(browser, file: Path, width: int, ready: str):
    """The page, which must say nothing, ask for nothing, fit the window and show all pictures."""
    page, said, asked = opened(browser, file, width, ready)
    assert said == []
    assert asked == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BROKEN) == 0
    return page


def hovered(page, selector: str, number: int) -> str:
    """What is told of one of several marks when the pointer is on it."""
    mark = page.locator(selector).nth(number)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector(".hoverlayer .hovertext")
    return page.locator(".hoverlayer .hovertext").first.text_content()
