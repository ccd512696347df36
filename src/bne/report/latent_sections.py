"""The space of domains, as parts of a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bne.report import parts
from bne.report.answer_sections import marked
from bne.report.figures import mean_share, share
from bne.report.interactive import ALT, BARS, interactive_map
from bne.report.pictures import thumbnails

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.evaluation.remarkable import Example
    from bne.report.content import Analysis
    from bne.report.theme import Look

# Pixels, and characters of all images together, so that a page stays under 15 MB.
MAP_SIDE, MAP_BUDGET = 72, 4_500_000
EXAMPLE_SIDE, EXAMPLE_BUDGET = 128, 1_000_000
MAP = (
    "Every small point is an image, placed by the mean and standard deviation of its own features "
    "in the network; stars are the domains the network knows. Lines show how far one image is "
    "from each of them: the nearer, the more that domain's branch counts in the answer. t-SNE "
    "keeps neighbours together, but lengths on the map are not to scale; the numbers on the lines "
    "are."
)


def map_section(
    analysis: Analysis,
    pictures: Mapping[str, bytes],
    styles: Mapping[str, Look],
    *,
    still: bool,
) -> list[str]:
    """Images and domains in the plane; `still` shows a picture of the first map only."""
    if not analysis.maps:
        return []
    if still:
        first = next(content for name, content in pictures.items() if name.startswith("map-"))
        return [parts.paragraph(MAP), parts.picture(first, ALT)]
    numbers = [point.number for point in analysis.points]
    return [
        parts.paragraph(f"{MAP} Point at an image, or tap it, to see it."),
        interactive_map(
            analysis.maps,
            analysis.observed,
            analysis.points,
            thumbnails(analysis.prepared, numbers, MAP_SIDE, MAP_BUDGET),
            styles,
            analysis.chosen,
        ),
    ]


def similarity_section(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    """How near each domain's images lie to the known domains."""
    numbers = analysis.numbers
    if "similarity" not in numbers:
        return []
    rows = [
        (
            marked(domain, analysis),
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
            "The mean of 1 / distance from a domain's images to each known domain; of seen "
            "domains, only of images that were trained on. Its scale is arbitrary: compare the "
            "shares of a row."
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


def layer_section(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    """Which layers tell domains apart."""
    if "layers" not in analysis.numbers:
        return []
    rows = [
        (layer, f"{100 * own['share']:.1f}", f"{mean_share(own['domain_accuracy']):.1f}")
        for layer, own in analysis.numbers["layers"].items()
    ]
    return [
        parts.paragraph(
            "How much each layer adds to the distances, and how often a training image of a known "
            "domain lies nearest to its own when that layer alone is compared."
        ),
        parts.picture(pictures["layers"], "Bars for every layer, the table below drawn."),
        parts.folded(
            "As a table",
            parts.table(
                "By layer, %", ("layer", "share in the distances", "domain accuracy"), rows
            ),
        ),
    ]


def example_section(analysis: Analysis, styles: Mapping[str, Look]) -> list[str]:
    """Images worth a look."""
    numbers = [one.number for examples in analysis.examples.values() for one in examples]
    images = thumbnails(analysis.prepared, numbers, EXAMPLE_SIDE, EXAMPLE_BUDGET)
    colours = {name: styles[name].colour for name in analysis.observed.branches}
    left = iter(images)
    found = []
    for kind, examples in analysis.examples.items():
        cards = "".join(_card(one, next(left), colours) for one in examples)
        found.append(f'<h3>{escape(kind).capitalize()}</h3><div class="examples">{cards}</div>')
    if found:
        most = f", the {BARS} largest of each image" if len(colours) > BARS else ""
        note = f"Bars are the weights of the branches in the answer{most}."
        found.insert(0, parts.paragraph(note))
    return found


def _card(one: Example, image: str, colours: Mapping[str, str]) -> str:
    right = one.truth == one.answer
    verdict = f"{one.truth}, seen as {'such' if right else one.answer}"
    return (
        f'<figure class="example"><img alt="{escape(one.name)}" '
        f'src="data:image/jpeg;base64,{image}"><figcaption>'
        f'<b>{escape(one.domain)}</b><br><span class="{"right" if right else "wrong"}">'
        f"{escape(verdict)}</span><br>{parts.bars(_heaviest(one.weights), colours)}"
        "</figcaption></figure>"
    )


def _heaviest(weights: Mapping[str, float]) -> dict[str, float]:
    """The largest, in their order."""
    most = sorted(weights, key=weights.__getitem__, reverse=True)[:BARS]
    return {name: weight for name, weight in weights.items() if name in most}
