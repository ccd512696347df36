"""Writes what is known of a run: a page, figures for a paper, and numbers for programs."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.report import figures, look, model_sections, run_sections
from bne.report.figures import curve_figure, map_figure, mean_share, share
from bne.report.look import looks
from bne.report.model_sections import marked
from bne.report.run_folder import NO_NETWORK, NO_RUN
from bne.report.run_sections import curve_data, environment_table, flat, settings_table, value_text
from bne.training.files import write_json, write_text
from bne.training.scores import RULES, mean_accuracy, pooled
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matplotlib.figure import Figure

    from bne.inspection.analysis import Analysis
    from bne.report.look import Look
    from bne.report.run_folder import Training

Sections = dict[str, tuple[str, list[str]]]


def page(
    analysis: Analysis | None,
    training: Training | None,
    curves: Mapping[str, Any] | None,
    pictures: Mapping[str, bytes],
    styles: Mapping[str, Look],
) -> str:
    """One page that needs nothing else.

    Args:
        analysis: of the trained network, if there is one.
        training: of it, as far as it is known.
        curves: of its training, if there are any.
        pictures: all figures as PNG, by name.
        styles: of the domains, by name.
    """
    library = look.plotly()
    left_out = [NO_RUN] if training is None else [*training.left_out]
    left_out += [NO_NETWORK] if analysis is None else analysis.numbers["left_out"]
    sections: Sections = {}
    drawn = []
    if training is not None:
        still = pictures.get("curves") if library is None else None
        sections["results"] = ("Accuracy", run_sections.accuracy_section(training))
        sections["training"] = ("Training", run_sections.curve_section(curves, still))
        drawn += ["curves"] if curves else []
    if analysis is not None:
        sections |= _network(analysis, pictures, styles, still=library is None)
        drawn += ["map"] if analysis.maps else []
    sections["left-out"] = ("Left out", [look.paragraph(sentence) for sentence in left_out])
    sections |= _background(analysis, training)
    own = [library, *map(look.own, ["charts", *drawn])] if library and drawn else []
    title = _title(analysis, training)
    return look.document(title, _lead(analysis, training), sections, own)


def _title(analysis: Analysis | None, training: Training | None) -> str:
    if training is not None and training.settings:
        return f"{training.settings['method']}, tested on {listed(training.target)}"
    if analysis is not None:
        return f"{analysis.info.method} on {', '.join(analysis.observed.domains)}"
    return "A run without settings"


def _lead(analysis: Analysis | None, training: Training | None) -> list[str]:
    sentences: list[str] = []
    if training is not None:
        sources = training.sources
        if analysis is not None:
            sources = tuple(d for d in analysis.info.domains if d not in training.target)
        sentences += run_sections.what_was_trained(training, sources)
    if sentences and analysis is not None:
        sentences.append(_data(analysis))
    if not sentences and analysis is not None:
        sentences.append(
            f"A network, {analysis.info.backbone}, trained on {listed(analysis.info.domains)} "
            "and tested on the domains below. Seen domains are those it was trained on; their "
            "images here include training images."
        )
    return [*map(look.paragraph, sentences), look.tiles(_tiles(analysis, training))]


def _data(analysis: Analysis) -> str:
    images = analysis.prepared.images
    name = f"The data, {analysis.data}, has" if analysis.data else "The data has"
    return f"{name} {len(images)} images of {len(images.classes)} classes. {analysis.network}"


def _tiles(analysis: Analysis | None, training: Training | None) -> list[tuple[str, str]]:
    found = []
    chosen = run_sections.recorded_accuracy(training) if training else {}
    for rule in ("last", "validation"):
        if rule in chosen:
            score = pooled(chosen[rule].target.values())
            rules = RULES[rule]
            what = f"correct on {listed(chosen[rule].target)}, the target; {rules}"
            found.append((f"{score.accuracy:.1f} %", what))
    if chosen and chosen["last"].validation:
        mean = mean_accuracy(chosen["last"].validation)
        found.append((f"{mean:.1f} %", "correct on held-out source images; the last epoch"))
    if analysis is None:
        return found
    if not chosen:
        found += [
            (f"{share(score):.1f} %", f"correct, {marked(domain, analysis)}")
            for domain, score in analysis.numbers["accuracy"]["prediction"].items()
        ]
    if scores := analysis.numbers.get("domain_accuracy"):
        what = "of images of known domains lie nearest to their own"
        found.append((f"{mean_share(scores):.1f} %", what))
    return found


def _network(
    analysis: Analysis,
    pictures: Mapping[str, bytes],
    styles: Mapping[str, Look],
    *,
    still: bool,
) -> Sections:
    """What the trained network does with images."""
    return {
        "map": ("The map", model_sections.map_section(analysis, pictures, styles, still=still)),
        "similarity": (
            "Similarity of domains",
            model_sections.similarity_section(analysis, pictures),
        ),
        "accuracy": ("Who is right", model_sections.answer_section(analysis, pictures)),
        "layers": ("Layers", model_sections.layer_section(analysis, pictures)),
        "calibration": ("Calibration", model_sections.calibration_section(analysis, pictures)),
        "confusion": ("Confusion", model_sections.confusion_section(pictures)),
        "images": (
            "Confident and mixed images",
            model_sections.example_section(analysis, styles),
        ),
    }


def _background(analysis: Analysis | None, training: Training | None) -> Sections:
    found: Sections = {}
    if analysis is not None:
        rows = _analysed(analysis)
        found["analysed"] = (
            "Model and images",
            [look.table("What was looked into", ("", ""), rows)],
        )
    if training is not None and training.settings:
        table = settings_table("Every setting of the training", flat(training.settings))
        found["settings"] = ("Settings", [table])
    if training is not None and training.environment:
        found["environment"] = ("Environment", [environment_table([_environment(training)])])
    return found


def _environment(training: Training) -> dict[str, Any]:
    if training.result is None:
        return dict(training.environment)
    return {**training.environment, "precision": training.result.precision}


def _analysed(analysis: Analysis) -> Sequence[tuple[str, str]]:
    info = analysis.info
    return [
        ("method", info.method),
        ("options", value_text(info.options) if info.options else "none"),
        ("network", info.backbone),
        ("initial weights", Path(info.weights).name if info.weights else "random"),
        ("trained on", ", ".join(info.domains)),
        ("classes", str(len(info.classes))),
        ("trained by bne", info.bne),
        *([("data", analysis.data)] if analysis.data else []),
        *((f"images of {d}", _counts(n)) for d, n in analysis.images.items()),
        ("images on the map", str(len(analysis.points))),
        ("seed of the draw", str(analysis.seed)),
    ]


def _counts(images: Mapping[str, int]) -> str:
    held_out = f", {images['held_out']} of them held out" if images["held_out"] else ""
    return f"{images['used']} of {images['there']}{held_out}"


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
