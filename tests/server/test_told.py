"""Answers as JSON: each image's is the library's, as far as it was asked for."""

import json

import numpy as np
import pytest

from bne.deploy.answers import Answers, Seen
from bne.server.told import Asked, tell
from tests.deploy.manifests import manifest


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
