"""The interactive map of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bne.report.parts import json_script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bne.evaluation.latent_map import Map
    from bne.evaluation.observed import Observed
    from bne.evaluation.remarkable import Example
    from bne.report.theme import Look

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
