import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from bne.benchmark.records import Materials, digest, settings
from bne.data.sources import open_images
from bne.recipes.schema import Optimiser, Phase, Recipe
from tests.data.small import names, write

RECIPE = Recipe(method="bne", target=("photo",), train=Phase(epochs=20, warm_up=6))


def test_an_option_at_its_default_changes_nothing() -> None:
    said = replace(RECIPE, options={"distance": "wasserstein"})
    assert digest(settings(said)) == digest(settings(RECIPE))
    other = replace(RECIPE, options={"distance": "uniform"})
    assert digest(settings(other)) != digest(settings(RECIPE))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"target": ("sketch",)},
        {"method": "bne-a"},
        {"train": Phase(epochs=20, warm_up=7)},
        {"train": Phase(epochs=20, warm_up=6, optimiser=Optimiser(learning_rate=2e-4))},
        {"weights": "torchvision"},
        {"patience": 3},
        {"exact_statistics": True},
    ],
)
def test_every_setting_counts(change: dict[str, object]) -> None:
    assert digest(settings(replace(RECIPE, **change))) != digest(settings(RECIPE))


def test_a_record_from_before_a_setting_or_option_existed_still_counts() -> None:
    old = settings(RECIPE)
    del old["patience"], old["train"]["optimiser"]["clip"], old["options"]["layers"]
    assert digest(old) == digest(settings(RECIPE))


def test_a_default_that_has_changed_tells_old_and_new_apart() -> None:
    old = settings(RECIPE)
    old["per_domain"] = 32  # as if that had been the default then
    assert digest(old) != digest(settings(RECIPE))


def test_weights_and_images_are_known_by_what_they_hold(tmp_path: Path) -> None:
    data = write(tmp_path / "one", *names("art photo", "cat dog", 2))
    again = write(tmp_path / "two", *names("art photo", "cat dog", 2))
    more = write(tmp_path / "three", *names("art photo", "cat dog", 3))
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"weights")
    found = Materials.of(str(file), open_images(data))
    assert found.weights == hashlib.sha256(b"weights").hexdigest()
    assert found.images == Materials.of(None, open_images(again)).images
    assert found.images != Materials.of(None, open_images(more)).images
    assert Materials.of("torchvision", None) == Materials()
