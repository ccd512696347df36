"""The space of domains, as parts of a page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from bne.report import look
from bne.report import look as parts
from bne.report.figures import answers, mean_share, share
from bne.report.look import json_script, thumbnails

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bne.inspection.analysis import Analysis
    from bne.inspection.examples import Example
    from bne.inspection.maps import Map
    from bne.inspection.observe import Observed
    from bne.report.look import Look

BARS = 8  # of weights beside an image: the largest, where there are more
ALT = "A map of images and known domains, with lines from one image to the domains."
_PANEL = """<aside id="hover" aria-live="polite"><img id="hover-image" alt="">
<div><div id="hover-name"></div><div id="hover-verdict"></div><div id="hover-weights"></div></div>
</aside>"""


def interactive_map(
    maps: Sequence[Map],
    observed: Observed,
    points: Sequence[Example],
    thumbnails: Sequence[str],
    looks: Mapping[str, Look],
    chosen: int,
) -> str:
    """HTML of the maps with the image under the pointer beside them, for `map.js` to fill.

    Args:
        maps: at least one.
        observed: the images on them.
        points: the same images, in the maps' order.
        thumbnails: of these images, as JPEG in base64.
        looks: of the domains, by name.
        chosen: the image shown first, a row of the maps.
    """
    data = {
        "maps": [_coordinates(one) for one in maps],
        "points": [_point(point, observed) for point in points],
        "thumbnails": thumbnails,
        "domains": [
            {
                "name": name,
                "colour": looks[name].colour,
                "symbol": looks[name].symbol,
                "seen": looks[name].seen,
            }
            for name in observed.domains
        ],
        "branches": [{"name": name, "colour": looks[name].colour} for name in observed.branches],
        "chosen": chosen,
        "bars": BARS,
    }
    return (
        '<p><label>Layer <select id="layer"></select></label></p>\n'
        f'<div id="stage"><div id="plot" role="img" aria-label="{ALT}"></div>\n{_PANEL}</div>\n'
        f"{json_script('map-data', data)}"
    )


def _coordinates(found: Map) -> dict[str, Any]:
    return {
        "name": found.name,
        "x": _short(found.images[:, 0]),
        "y": _short(found.images[:, 1]),
        "dx": _short(found.domains[:, 0]),
        "dy": _short(found.domains[:, 1]),
        "distances": [[float(f"{value:.3g}") for value in row] for row in found.distances],
    }


def _point(point: Example, observed: Observed) -> dict[str, Any]:
    return {
        "name": point.name,
        "domain": observed.domains.index(point.domain),
        "truth": point.truth,
        "answer": point.answer,
        "weights": [round(weight, 3) for weight in point.weights.values()],
    }


def _short(values: NDArray[Any]) -> list[float]:
    return [round(float(value), 2) for value in values]


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
        look.paragraph(note),
        look.picture(pictures["accuracy"], "The accuracies of the table below as points."),
        look.table(
            "Accuracy, %", ("answer of", *(marked(domain, analysis) for domain in domains)), rows
        ),
    ]


def calibration_section(analysis: Analysis, pictures: Mapping[str, bytes]) -> list[str]:
    """Whether answers are as sure as they should be."""
    errors = analysis.numbers["calibration_error"].items()
    return [
        look.paragraph(
            "Answers given with a confidence of 80 % should be right in 80 % of cases, on the "
            "dashed line; points below it are too sure. ECE is the mean gap; larger dots stand for "
            "more images."
        ),
        look.picture(pictures["calibration"], "Accuracy against confidence for every domain."),
        look.table(
            "Expected calibration error, %",
            ("images of", "ECE"),
            [(marked(domain, analysis), f"{100 * error:.1f}") for domain, error in errors],
        ),
    ]


def confusion_section(pictures: Mapping[str, bytes]) -> list[str]:
    """Which classes are taken for which."""
    return [
        look.paragraph("Which classes are taken for which; analysis.json has the counts."),
        look.picture(pictures["confusion"], "A confusion matrix for every domain."),
    ]


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
