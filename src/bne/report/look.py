"""Pieces of a page; every text given is escaped."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages

# Okabe and Ito's colours, which colour-blind readers can tell apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
SEEN, UNSEEN = (
    (("o", "circle"), ("s", "square"), ("p", "pentagon")),
    (
        ("^", "triangle-up"),
        ("D", "diamond"),
        ("v", "triangle-down"),
    ),
)


@dataclass(frozen=True)
class Look:
    """How a domain is drawn.

    Attributes:
        colour: as #RRGGBB.
        marker: matplotlib's name of its shape.
        symbol: plotly's name of the same shape.
        seen: whether the model was trained on it.
    """

    colour: str
    marker: str
    symbol: str
    seen: bool


def looks(domains: Sequence[str], seen: Collection[str]) -> dict[str, Look]:
    """A look for every domain: seen ones are round or broad, unseen ones pointed.

    The first eight differ in colour; then the colours come again with other shapes.
    """
    found = {}
    for number, domain in enumerate(domains):
        shapes = SEEN if domain in seen else UNSEEN
        turn, colour = divmod(number, len(PALETTE))
        found[domain] = Look(PALETTE[colour], *shapes[turn % len(shapes)], domain in seen)
    return found


SIDES = (128, 96, 72, 56, 40, 28, 20)
QUALITY = 72


def thumbnails(
    prepared: PreparedImages, numbers: Sequence[int], largest: int, budget: int
) -> list[str]:
    """Small JPEGs in base64, as large as their budget allows.

    Args:
        prepared: the images.
        numbers: of those wanted.
        largest: their height and width in pixels at most.
        budget: characters of all of them together.
    """
    found: list[str] = []
    for side in (side for side in SIDES if side <= largest):
        found = [base64.b64encode(jpeg(prepared.pixels[n], side)).decode() for n in numbers]
        if sum(map(len, found)) <= budget:
            break
    return found


def jpeg(pixels: Tensor, side: int) -> bytes:
    """A JPEG of an image, (H, W, 3) uint8, no larger than `side` pixels unless it is smaller."""
    from PIL import Image

    image = Image.fromarray(pixels.numpy())
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()


def data_url(kind: str, content: bytes) -> str:
    """An address that holds its content.

    Args:
        kind: its media type.
        content: the bytes.
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def plotly() -> str | None:
    """The library that draws charts; None if it, which is optional, is not installed."""
    try:
        from plotly.offline.offline import get_plotlyjs
    except ModuleNotFoundError:
        return None
    return str(get_plotlyjs())


def own(name: str) -> str:
    """A script of ours."""
    return (resources.files("bne.report") / f"{name}.js").read_text()


# Nothing may be asked of any network; plotly hands pictures over as blobs.
_POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


def document(
    title: str,
    lead: Sequence[str],
    sections: Mapping[str, tuple[str, Sequence[str]]],
    scripts: Sequence[str],
) -> str:
    """A whole page that asks nothing of any network.

    Args:
        title: of the page.
        lead: HTML between the title and the sections.
        sections: a heading and HTML each, by anchor; one without HTML is left out.
        scripts: that run, in this order, when everything else is there.
    """
    there = {anchor: content for anchor, content in sections.items() if any(content[1])}
    links = "".join(f'<a href="#{a}">{escape(heading)}</a>' for a, (heading, _) in there.items())
    body = [
        f"<h1>{escape(title)}</h1>",
        *lead,
        f'<nav aria-label="Sections">{links}</nav>',
        *(section(anchor, heading, *html) for anchor, (heading, html) in there.items()),
        *(f"<script>{script}</script>" for script in scripts),
    ]
    style = (resources.files("bne.report") / "style.css").read_text()
    content = "\n".join(body)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><style>
{style}</style></head>
<body>
{content}
</body></html>
"""


def section(anchor: str, title: str, *parts: str) -> str:
    """A section with a heading, from HTML."""
    content = "\n".join(part for part in parts if part)
    return f'<section id="{escape(anchor)}"><h2>{escape(title)}</h2>\n{content}\n</section>'


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the rows."""
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in texts)
        + "</tr>\n"
        for name, *texts in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption>\n<tr>{cells}</tr>\n{lines}</table></div>"
    )


def folded(summary: str, *parts: str) -> str:
    """HTML that is shown when its summary is clicked."""
    content = "\n".join(parts)
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Figures to see first, each with what it is."""
    inner = "".join(
        f'<div class="tile"><b>{escape(figure)}</b><span>{escape(text)}</span></div>'
        for figure, text in figures
    )
    return f'<div class="tiles">{inner}</div>'


def picture(png: bytes, alt: str) -> str:
    """A figure of 150 pixels an inch, with a text for those who cannot see it."""
    width = int.from_bytes(png[16:20]) * 96 // 150  # a PNG begins with its size
    source = data_url("image/png", png)
    return (
        f'<figure class="figure"><img width="{width}" alt="{escape(alt)}" src="{source}"></figure>'
    )


def bars(weights: Mapping[str, float], colours: Mapping[str, str]) -> str:
    """Shares by name, as bars in their colours."""
    return "".join(
        f'{escape(name)} {100 * weight:.0f} %<span class="bar" '
        f'style="width:{100 * weight:.1f}%;background:{colours[name]}"></span>'
        for name, weight in weights.items()
    )


def json_script(anchor: str, content: object) -> str:
    """Data for scripts, in which no text can end the element."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{escape(anchor)}">{text}</script>'
