"""The page of a run: what was trained, how that went, and what the network does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.engine.selection import mean_accuracy, pooled
from bne.report import answer_sections, latent_sections, parts, scripts, training_sections
from bne.report.answer_sections import marked
from bne.report.figures import mean_share, share
from bne.report.settings_sections import environment_table, flat, settings_table, value_text
from bne.report.training import NO_NETWORK, NO_RUN
from bne.report.words import RULES, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.report.content import Analysis
    from bne.report.theme import Look
    from bne.report.training import Training

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
    library = scripts.plotly()
    left_out = [NO_RUN] if training is None else [*training.left_out]
    left_out += [NO_NETWORK] if analysis is None else analysis.numbers["left_out"]
    sections: Sections = {}
    drawn = []
    if training is not None:
        still = pictures.get("curves") if library is None else None
        sections["results"] = ("Accuracy", training_sections.accuracy_section(training))
        sections["training"] = ("Training", training_sections.curve_section(curves, still))
        drawn += ["curves"] if curves else []
    if analysis is not None:
        sections |= _network(analysis, pictures, styles, still=library is None)
        drawn += ["map"] if analysis.maps else []
    sections["left-out"] = ("Left out", [parts.paragraph(sentence) for sentence in left_out])
    sections |= _background(analysis, training)
    own = [library, *map(scripts.own, ["charts", *drawn])] if library and drawn else []
    title = _title(analysis, training)
    return parts.document(title, _lead(analysis, training), sections, own)


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
        sentences += training_sections.what_was_trained(training, sources)
    if sentences and analysis is not None:
        sentences.append(_data(analysis))
    if not sentences and analysis is not None:
        sentences.append(
            f"A network, {analysis.info.backbone}, trained on {listed(analysis.info.domains)} "
            "and tested on the domains below. Seen domains are those it was trained on; their "
            "images here include training images."
        )
    return [*map(parts.paragraph, sentences), parts.tiles(_tiles(analysis, training))]


def _data(analysis: Analysis) -> str:
    images = analysis.prepared.images
    name = f"The data, {analysis.data}, has" if analysis.data else "The data has"
    return f"{name} {len(images)} images of {len(images.classes)} classes. {analysis.network}"


def _tiles(analysis: Analysis | None, training: Training | None) -> list[tuple[str, str]]:
    found = []
    chosen = training_sections.recorded_accuracy(training) if training else {}
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
        "map": ("The map", latent_sections.map_section(analysis, pictures, styles, still=still)),
        "similarity": (
            "Similarity of domains",
            latent_sections.similarity_section(analysis, pictures),
        ),
        "accuracy": ("Who is right", answer_sections.answer_section(analysis, pictures)),
        "layers": ("Layers", latent_sections.layer_section(analysis, pictures)),
        "calibration": ("Calibration", answer_sections.calibration_section(analysis, pictures)),
        "confusion": ("Confusion", answer_sections.confusion_section(pictures)),
        "images": (
            "Confident and mixed images",
            latent_sections.example_section(analysis, styles),
        ),
    }


def _background(analysis: Analysis | None, training: Training | None) -> Sections:
    found: Sections = {}
    if analysis is not None:
        rows = _analysed(analysis)
        found["analysed"] = (
            "Model and images",
            [parts.table("What was looked into", ("", ""), rows)],
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
