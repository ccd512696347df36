"""Writes what is known of a run: a page, figures for a paper, and numbers for programs."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from bne.engine.files import write_json, write_text
from bne.report import figures
from bne.report.figure_curves import curve_figure
from bne.report.figure_map import map_figure
from bne.report.page import page
from bne.report.theme import looks
from bne.report.training_sections import curve_data

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure

    from bne.report.content import Analysis
    from bne.report.theme import Look
    from bne.report.training import Training

RESOLUTION = 150


def write_report(
    folder: Path, analysis: Analysis | None, training: Training | None = None
) -> list[Path]:
    """Writes `index.html`, `analysis.json` and every figure as PNG and PDF.

    Files of the same names are replaced, others left alone.

    Args:
        folder: that is there.
        analysis: of the trained network; without one there is no `analysis.json`.
        training: of it, as far as it is known.

    Returns:
        What was written.
    """
    styles = looks(*_domains(analysis, training))
    curves = curve_data(training, styles) if training and training.epochs else None
    drawn = {"curves": curve_figure(curves)} if curves else {}
    drawn |= draw(analysis, styles) if analysis else {}
    written = []
    pictures = {}
    for name, figure in drawn.items():
        for form in ("png", "pdf"):
            content = _bytes(figure, form)
            path = folder / f"{name}.{form}"
            path.write_bytes(content)
            written.append(path)
            if form == "png":
                pictures[name] = content
    if analysis:
        write_json(folder / "analysis.json", analysis.to_dict())
        written.insert(0, folder / "analysis.json")
    write_text(folder / "index.html", page(analysis, training, curves, pictures, styles))
    return [folder / "index.html", *written]


def _domains(
    analysis: Analysis | None, training: Training | None
) -> tuple[list[str], Collection[str]]:
    """All domains to draw, and those that were trained on."""
    observed = analysis.observed if analysis else None
    drawn = [*observed.domains, *observed.branches] if observed else []
    last = training.epochs[-1] if training and training.epochs else None
    recorded = [*last.validation, *last.target] if last else []
    seen = analysis.info.domains if analysis else last.validation if last else ()
    return list(dict.fromkeys([*drawn, *recorded])), seen


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
