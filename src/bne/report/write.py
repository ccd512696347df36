"""Writes an analysis: a page, figures for a paper, and numbers for programs."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from bne.engine.files import write_json, write_text
from bne.report import figures
from bne.report.figure_map import map_figure
from bne.report.page import page
from bne.report.theme import looks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from bne.report.content import Analysis
    from bne.report.theme import Look

RESOLUTION = 150


def write_analysis(folder: Path, analysis: Analysis) -> list[Path]:
    """Writes `index.html`, `analysis.json` and every figure as PNG and PDF.

    Files of the same names are replaced, others left alone.

    Args:
        folder: that is there.
        analysis: to write.

    Returns:
        What was written.
    """
    domains = dict.fromkeys([*analysis.observed.domains, *analysis.observed.branches])
    styles = looks(list(domains), analysis.info.domains)
    written = []
    pictures = {}
    for name, figure in draw(analysis, styles).items():
        for form in ("png", "pdf"):
            content = _bytes(figure, form)
            path = folder / f"{name}.{form}"
            path.write_bytes(content)
            written.append(path)
            if form == "png":
                pictures[name] = content
    write_json(folder / "analysis.json", analysis.to_dict())
    write_text(folder / "index.html", page(analysis, pictures, styles))
    return [folder / "index.html", folder / "analysis.json", *written]


def draw(analysis: Analysis, styles: Mapping[str, Look]) -> dict[str, Figure]:
    """Every figure that applies, by the name of its files."""
    numbers = analysis.numbers
    found = {
        map_name(one.name): map_figure(one, analysis.observed, styles, analysis.chosen)
        for one in analysis.maps
    }
    if "similarity_share" in numbers:
        found["similarity"] = figures.similarity(numbers["similarity_share"])
    found["accuracy"] = figures.accuracies(numbers["accuracy"])
    if "layers" in numbers:
        found["layers"] = figures.layers(numbers["layers"])
    found["calibration"] = figures.calibration(numbers["reliability"], numbers["calibration_error"])
    found["confusion"] = figures.confusions(numbers["confusion"], analysis.observed.classes)
    return found


def map_name(layer: str) -> str:
    """The name of a map's files."""
    return "map-" + re.sub(r"[^\w.-]", "-", layer)


def _bytes(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    # Without a date the same numbers make the same file.
    metadata = {"CreationDate": None} if form == "pdf" else {}
    figure.savefig(buffer, format=form, dpi=RESOLUTION, metadata=metadata)
    return buffer.getvalue()
