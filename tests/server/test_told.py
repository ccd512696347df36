"""Answers as JSON, as the library has them and as far as they are asked for; and places on maps."""

import json

import numpy as np
import pytest

from bne.deploy.answers import Answers, Seen
from bne.server.told import Asked, map_of, place, tell
from tests.deploy.models import manifest

DOMAINS = ("art", "photo", "sketch")
LOGITS = np.zeros((2, 2), np.float32)


def test_images_of_one_batch_are_told_what_was_asked_of_each() -> None:
    model = manifest(classes=tuple("abcd"))
    seen = Seen(np.float32([[0, 3, 1, 2], [0, 0, 0.5, 0], [2, 1, 0, 3]]))
    asked = [Asked(top=3), Asked(abstain=0.9), Asked(top=2, abstain=0.5)]
    told = tell(model, seen, ["x", 'ä"', "z"], asked, None)
    first, second, third = map(json.loads, told.rows)
    assert [row["name"] for row in (first, second, third)] == ["x", 'ä"', "z"]
    assert [row["class"] for row in (first, second, third)] == ["b", None, "d"]
    expected = Answers(model, seen).top(4)
    for row, own, one in zip((first, second, third), expected, asked, strict=True):
        found = [(best["class"], best["probability"]) for best in row["top"]]
        assert found == own[: one.top]
        assert row["probability"] == pytest.approx(own[0][1])
    assert told.classes == {"b": 1, "c": 1, "d": 1}  # also of those left open
    assert (told.nearest, told.unusual, told.windows) == ({}, [], ())


def test_only_who_asks_for_them_is_told_weights_whoever_else_is_in_the_batch() -> None:
    model = manifest(branches=("art", "photo"))
    seen = Seen(np.float32([[0, 3]] * 2), weights=np.float32([[0.25, 0.75]] * 2))
    told = tell(model, seen, ["x", "y"], [Asked(), Asked(places=False)], None)
    asked, other = map(json.loads, told.rows)
    assert set(asked) - set(other) == {"nearest", "weights", "place"}
    assert other == {key: asked[key] for key in other} | {"name": "y"}


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
