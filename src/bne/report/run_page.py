"""The page of a run: what was trained, how that went, and what the network does with images."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.methods.method import find
from bne.report import charts, figures
from bne.report.answer import find_lead, findings, unseen
from bne.report.look import looks, thumbnails
from bne.report.page import environment_texts, render, value_text
from bne.training.files import write_json, write_text
from bne.training.folder import NO_NETWORK, NO_RUN
from bne.training.scores import choose
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.inspection.analysis import Analysis, Example
    from bne.report.answer import Lead
    from bne.report.charts import Curves, Scores
    from bne.report.look import Look
    from bne.training.events import Epoch
    from bne.training.folder import Training
    from bne.training.scores import Rule

EXAMPLE_SIDE, EXAMPLE_BUDGET = 128, 1_000_000  # pixels, and characters of all together
CHARTS = ("similarity_share", "layers", "reliability", "confusion")  # drawn from the numbers


@dataclass(frozen=True)
class RunPage:
    """What the template shows; what is None or empty is left out."""

    title: str
    training: Training | None
    analysis: Analysis | None
    sources: Sequence[str]  # the domains trained on
    sentence: str  # the paper's on the method
    chosen: Mapping[Rule, Epoch]  # the epochs that count, by the rule that chooses them
    lead: Lead | None  # the answer
    unseen: str  # what the target is called
    findings: Sequence[str]  # what the analysis tells, in sentences
    curves: Curves | None
    marked: Mapping[str, str]  # the domains with whether the network was trained on them
    answers: Mapping[str, Scores]  # by what gives the answer
    charts: Mapping[str, Any]  # for `run.js`
    map: Mapping[str, Any] | None  # for `map.js`
    examples: Mapping[str, Sequence[tuple[Example, str]]]  # with pictures, by what they are
    looks: Mapping[str, Look]
    left_out: Sequence[str]  # what is not there, in sentences
    analysed: Mapping[str, str]  # the model and the images
    environment: Mapping[str, str]


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
    content = run_page(analysis, training)
    written = [folder / "index.html"]
    write_text(written[0], render("run", content))
    if analysis:
        written.append(folder / "analysis.json")
        write_json(written[1], analysis.to_dict())
    for name, figure in figures.draw(content.curves, analysis, content.looks).items():
        for form in ("png", "pdf"):
            written.append(folder / f"{name}.{form}")
            figures.write(figure, written[-1])
    return written


def run_page(analysis: Analysis | None, training: Training | None) -> RunPage:
    """What the page of a run shows.

    Args:
        analysis: of the trained network, if there is one.
        training: of it, as far as it is known.
    """
    epochs = training.epochs if training else ()
    title, sentence = "A run without settings", ""
    if training and training.settings:
        method = training.settings["method"]
        title = f"{method}, trained on {listed(_sources(analysis, training) or ['all domains'])}"
        if training.target:
            title = f"{method}, tested on {listed(training.target)}"
        with suppress(ValueError):  # a method that was registered elsewhere
            sentence = find(method).sentence
    elif analysis:
        title = f"{analysis.info.method} on {', '.join(analysis.observed.domains)}"
    left_out = [NO_RUN] if training is None else [*training.left_out]
    left_out += [NO_NETWORK] if analysis is None else analysis.numbers["left_out"]
    styles = _looks(analysis, epochs)
    answers = charts.answers(analysis.numbers["accuracy"]) if analysis else {}
    environment = dict(training.environment) if training else {}
    if environment and training and training.result:
        environment["precision"] = training.result.precision
    return RunPage(
        title=title,
        training=training,
        analysis=analysis,
        sources=_sources(analysis, training),
        sentence=sentence,
        chosen=choose(epochs),
        lead=find_lead(analysis, training, styles),
        unseen=unseen(training),
        findings=findings(analysis) if analysis else [],
        curves=charts.curves(epochs, styles, unseen(training)) if epochs else None,
        marked={d: f"{d} ({'seen' if look.seen else 'unseen'})" for d, look in styles.items()},
        answers=answers,
        charts=_charts(analysis, styles) | {"answers": answers} if analysis else {},
        map=charts.map_data(analysis, styles) if analysis and analysis.maps else None,
        examples=_examples(analysis) if analysis else {},
        looks=styles,
        left_out=left_out,
        analysed=_analysed(analysis) if analysis else {},
        environment=environment_texts([environment]),
    )


def _looks(analysis: Analysis | None, epochs: Sequence[Epoch]) -> dict[str, Look]:
    observed = [*analysis.observed.domains, *analysis.observed.branches] if analysis else []
    recorded = [*epochs[-1].validation, *epochs[-1].target] if epochs else []
    seen = analysis.info.domains if analysis else epochs[-1].validation if epochs else ()
    return looks([*observed, *recorded], seen)


def _sources(analysis: Analysis | None, training: Training | None) -> Sequence[str]:
    if analysis is None:
        return training.sources if training else ()
    return [d for d in analysis.info.domains if not training or d not in training.target]


def _charts(analysis: Analysis, styles: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "domains": [styles[name] for name in analysis.observed.domains],
        "classes": analysis.observed.classes,
        "branches": len(analysis.observed.branches),
        **{name: analysis.numbers[name] for name in CHARTS if name in analysis.numbers},
    }


def _examples(analysis: Analysis) -> dict[str, list[tuple[Example, str]]]:
    numbers = [one.number for own in analysis.examples.values() for one in own]
    pictures = iter(thumbnails(analysis.prepared, numbers, EXAMPLE_SIDE, EXAMPLE_BUDGET))
    return {kind: [(one, next(pictures)) for one in own] for kind, own in analysis.examples.items()}


def _analysed(analysis: Analysis) -> dict[str, str]:
    info = analysis.info
    found = {
        "method": info.method,
        "options": value_text(info.options) if info.options else "none",
        "network": info.backbone,
        "initial weights": Path(info.weights).name if info.weights else "random",
        "trained on": ", ".join(info.domains),
        "classes": str(len(info.classes)),
        "trained by bne": info.bne,
    }
    if analysis.data:
        found["data"] = analysis.data
    for domain, own in analysis.images.items():
        held_out = f", {own['held_out']} of them held out" if own["held_out"] else ""
        found[f"images of {domain}"] = f"{own['used']} of {own['there']}{held_out}"
    found["images on the map"] = str(len(analysis.points))
    return found | {"seed of the draw": str(analysis.seed)}
