"""Where images lie on a map of domains."""

import numpy as np
import pytest

from bne.deploy.answers import Seen
from bne.server.places import map_of, place
from tests.deploy.manifests import manifest

DOMAINS = ("art", "photo", "sketch")
LOGITS = np.zeros((2, 2), np.float32)


def test_without_a_map_the_weights_pull() -> None:
    model = manifest(branches=DOMAINS)
    corners = map_of(model)["branches"]
    assert len({tuple(at) for at in corners.values()}) == 3
    seen = Seen(LOGITS, np.array([[0.0, 1, 0], [1 / 3, 1 / 3, 1 / 3]]))
    alone, amid = place(model, seen)
    assert alone == pytest.approx(corners["photo"], abs=1e-3)
    assert amid == pytest.approx([0, 0], abs=1e-3)


def test_on_a_map_an_image_lies_amid_those_like_it() -> None:
    draw = np.random.default_rng(0)
    centers = {"art": (1, 50, 50), "photo": (50, 1, 50), "sketch": (50, 50, 1)}
    places = {"art": (0, 0), "photo": (10, 0), "sketch": (0, 10)}
    images = [
        {
            "place": [float(p + draw.normal(0, 0.1)) for p in places[name]],
            "domain": name,
            "class": "cat",
            "distances": [float(d * draw.uniform(0.8, 1.2)) for d in centers[name]],
        }
        for name in DOMAINS
        for _ in range(8)
    ]
    shown = {"branches": {name: list(at) for name, at in places.items()}, "images": images}
    model = manifest(branches=DOMAINS, map=shown)
    own = images[9]
    seen = Seen(LOGITS, np.full((2, 3), 1 / 3), np.array([own["distances"], [48.0, 51, 1.1]]))
    first, second = place(model, seen)
    assert first == pytest.approx(own["place"], abs=0.02)
    assert second == pytest.approx(places["sketch"], abs=0.3)
    for image in images:  # a file of an earlier version
        del image["distances"]
    assert place(model, seen)[0] == pytest.approx([10 / 3, 10 / 3], abs=1e-2)


def test_models_without_branches_have_no_map() -> None:
    assert map_of(manifest()) is None
    assert place(manifest(), Seen(LOGITS)) is None
    assert place(manifest(branches=DOMAINS), Seen(LOGITS)) is None  # not measured
