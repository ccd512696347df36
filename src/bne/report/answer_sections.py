"""The answers of a trained model, as parts of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.report import parts
from bne.report.figures import answers, share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.report.content import Analysis


def marked(domain: str, analysis: Analysis) -> str:
    """A domain's name with whether it was trained on."""
    return f"{domain} ({'seen' if domain in analysis.seen else 'unseen'})"


def answer_section(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    """Accuracy by what gives the answer."""
    accuracy = analysis.numbers["accuracy"]
    domains = list(accuracy["prediction"])
    rows = [
        (name, *(f"{share(scores[domain]):.1f}" for domain in domains))
        for name, scores in answers(accuracy).items()
    ]
    note = (
        "How often the class is right on the images drawn, by what gives the answer. Most images "
        "of seen domains were trained on."
    )
    if accuracy.get("by_rank"):
        note += (
            " The nearest branch is that of the domain an image lies nearest to, the second that "
            "of the next one, and so on; “… weights” mixes the same branches in another way."
        )
    return [
        parts.paragraph(note),
        parts.picture(pictures["accuracy"], "The accuracies of the table below as points."),
        parts.table(
            "Accuracy, %", ("answer of", *(marked(domain, analysis) for domain in domains)), rows
        ),
    ]


def calibration_section(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    """Whether answers are as sure as they should be."""
    errors = analysis.numbers["calibration_error"].items()
    return [
        parts.paragraph(
            "Answers given with a confidence of 80 % should be right in 80 % of cases, on the "
            "dashed line; points below it are too sure. ECE is the mean gap; larger dots stand for "
            "more images."
        ),
        parts.picture(pictures["calibration"], "Accuracy against confidence for every domain."),
        parts.table(
            "Expected calibration error, %",
            ("images of", "ECE"),
            [(marked(domain, analysis), f"{100 * error:.1f}") for domain, error in errors],
        ),
    ]


def confusion_section(pictures: Mapping[str, bytes]) -> list[str]:
    """Which classes are taken for which."""
    return [
        parts.paragraph("Which classes are taken for which; analysis.json has the counts."),
        parts.picture(pictures["confusion"], "A confusion matrix for every domain."),
    ]
