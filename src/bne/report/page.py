"""The page of an analysis."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from bne.report import parts
from bne.report.figures import answers, mean_share, share
from bne.report.interactive import interactive_map
from bne.report.pictures import data_url, jpeg, thumbnails

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.evaluation.remarkable import Example
    from bne.report.content import Analysis
    from bne.report.theme import Look

EXAMPLE_SIDE = 128


def page(analysis: Analysis, pictures: Mapping[str, bytes], styles: Mapping[str, Look]) -> str:
    """One page that needs nothing else.

    Args:
        analysis: to show.
        pictures: its figures as PNG, by name.
        styles: of the domains, by name.
    """
    sections = {
        "map": ("The map", _map(analysis, pictures, styles)),
        "similarity": ("Similarity of domains", _similarity(analysis, pictures)),
        "accuracy": ("Accuracy", _accuracy(analysis, pictures)),
        "layers": ("Layers", _layers(analysis, pictures)),
        "calibration": ("Calibration", _calibration(analysis, pictures)),
        "confusion": ("Confusion", _confusion(pictures)),
        "images": ("Confident and mixed images", _examples(analysis, styles)),
        "left-out": ("Left out", [parts.paragraph(s) for s in analysis.numbers["left_out"]]),
        "settings": ("Model and images", [_settings(analysis)]),
    }
    there = {anchor: content for anchor, content in sections.items() if content[1]}
    links = "".join(f'<a href="#{a}">{escape(title)}</a>' for a, (title, _) in there.items())
    title = f"{analysis.info.method} on {', '.join(analysis.observed.domains)}"
    body = [
        f"<h1>{escape(title)}</h1>",
        parts.paragraph(
            f"A {analysis.info.backbone} network trained on {', '.join(analysis.info.domains)}, "
            "and tested on the domains below. Seen domains are those it was trained on; their "
            "images here include training images."
        ),
        _tiles(analysis),
        f'<nav aria-label="Sections">{links}</nav>',
        *(parts.section(anchor, title, *content) for anchor, (title, content) in there.items()),
    ]
    style = (resources.files("bne.report") / "style.css").read_text()
    return parts.document(title, style, "\n".join(body))


def _tiles(analysis: Analysis) -> str:
    tiles = [
        (f"{share(score):.1f} %", f"correct, {_marked(domain, analysis)}")
        for domain, score in analysis.numbers["accuracy"]["prediction"].items()
    ]
    if scores := analysis.numbers.get("domain_accuracy"):
        tiles.append((f"{mean_share(scores):.1f} %", "of images lie nearest to their own domain"))
    inner = "".join(
        f'<div class="tile"><b>{escape(figure)}</b><span>{escape(text)}</span></div>'
        for figure, text in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _marked(domain: str, analysis: Analysis) -> str:
    return f"{domain} ({'seen' if domain in analysis.seen else 'unseen'})"


def _map(
    analysis: Analysis, pictures: Mapping[str, bytes], styles: Mapping[str, Look]
) -> list[str]:
    if not analysis.maps:
        return []
    numbers = [point.number for point in analysis.points]
    return [
        parts.paragraph(
            "Every small point is an image, placed by the mean and standard deviation of its own "
            "features in the network; stars are the domains the network knows. Lines show how far "
            "one image is from each of them: the nearer, the more that domain's branch counts in "
            "the answer. Point at an image, or tap it, to see it. t-SNE keeps neighbours "
            "together, but lengths on the map are not to scale; the numbers on the lines are."
        ),
        interactive_map(
            analysis.maps,
            analysis.observed,
            analysis.points,
            thumbnails(analysis.prepared, numbers),
            styles,
            analysis.chosen,
            next(content for name, content in pictures.items() if name.startswith("map-")),
        ),
    ]


def _similarity(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    numbers = analysis.numbers
    if "similarity" not in numbers:
        return []
    rows = [
        (
            _marked(domain, analysis),
            *(
                f"{value:.4g} ({numbers['similarity_share'][domain][name] * 100:.0f} %)"
                for name, value in row.items()
            ),
        )
        for domain, row in numbers["similarity"].items()
    ]
    scores = numbers["domain_accuracy"]
    lines = [(domain, f"{share(s):.1f}", str(s["images"])) for domain, s in scores.items()]
    return [
        parts.paragraph(
            "The mean of 1 / distance from a domain's images to each known domain. Its scale is "
            "arbitrary: compare the shares of a row."
        ),
        parts.picture(pictures["similarity"], "A matrix of similarities, the table below drawn."),
        parts.table(
            "Mean 1 / distance, and its share of the row",
            ("images of", *analysis.observed.branches),
            rows,
        ),
        parts.table("Images that lie nearest to their own domain", ("domain", "%", "images"), lines)
        if lines
        else "",
    ]


def _accuracy(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    accuracy = analysis.numbers["accuracy"]
    domains = list(accuracy["prediction"])
    rows = [
        (name, *(f"{share(scores[domain]):.1f}" for domain in domains))
        for name, scores in answers(accuracy).items()
    ]
    note = "How often the class is right, by what gives the answer."
    if accuracy.get("by_rank"):
        note += (
            " The nearest branch is that of the domain an image lies nearest to, the second that "
            "of the next one, and so on; “… weights” mixes the same branches in another way."
        )
    return [
        parts.paragraph(note),
        parts.picture(pictures["accuracy"], "The accuracies of the table below as points."),
        parts.table(
            "Accuracy, %", ("answer of", *(_marked(domain, analysis) for domain in domains)), rows
        ),
    ]


def _layers(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    if "layers" not in analysis.numbers:
        return []
    rows = [
        (layer, f"{100 * own['share']:.1f}", f"{mean_share(own['domain_accuracy']):.1f}")
        for layer, own in analysis.numbers["layers"].items()
    ]
    return [
        parts.paragraph(
            "How much each layer adds to the distances, and how often an image of a known domain "
            "lies nearest to its own when that layer alone is compared."
        ),
        parts.picture(pictures["layers"], "Bars for every layer, the table below drawn."),
        "<details><summary>As a table</summary>",
        parts.table("By layer, %", ("layer", "share in the distances", "domain accuracy"), rows),
        "</details>",
    ]


def _calibration(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
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
            [(_marked(domain, analysis), f"{100 * error:.1f}") for domain, error in errors],
        ),
    ]


def _confusion(pictures: Mapping[str, bytes]) -> list[str]:
    return [
        parts.paragraph("Which classes are taken for which; analysis.json has the counts."),
        parts.picture(pictures["confusion"], "A confusion matrix for every domain."),
    ]


def _examples(analysis: Analysis, styles: Mapping[str, Look]) -> list[str]:
    found = []
    for kind, examples in analysis.examples.items():
        cards = _cards(analysis, examples, styles)
        found.append(f'<h3>{escape(kind).capitalize()}</h3><div class="examples">{cards}</div>')
    if found:
        found.insert(0, parts.paragraph("Bars are the weights of the branches in the answer."))
    return found


def _cards(analysis: Analysis, examples: Sequence[Example], styles: Mapping[str, Look]) -> str:
    colours = {name: styles[name].colour for name in analysis.observed.branches}
    cards = []
    for one in examples:
        right = one.truth == one.answer
        verdict = f"{one.truth}, seen as {'such' if right else one.answer}"
        image = data_url("image/jpeg", jpeg(analysis.prepared.pixels[one.number], EXAMPLE_SIDE))
        cards.append(
            f'<figure class="example"><img alt="{escape(one.name)}" src="{image}"><figcaption>'
            f'<b>{escape(one.domain)}</b><br><span class="{"right" if right else "wrong"}">'
            f"{escape(verdict)}</span><br>{parts.bars(one.weights, colours)}</figcaption></figure>"
        )
    return "".join(cards)


def _settings(analysis: Analysis) -> str:
    info = analysis.info
    rows = [
        ("method", info.method),
        ("options", ", ".join(f"{k}={v}" for k, v in info.options.items()) or "none"),
        ("network", info.backbone),
        ("initial weights", Path(info.weights).name if info.weights else "random"),
        ("trained on", ", ".join(info.domains)),
        ("classes", str(len(info.classes))),
        ("trained by bne", info.bne),
        *((f"images of {d}", f"{n['used']} of {n['there']}") for d, n in analysis.images.items()),
        ("images on the map", str(len(analysis.points))),
        ("seed", str(analysis.seed)),
    ]
    return parts.table("What was analysed", ("", ""), rows)
