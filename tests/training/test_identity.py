"""What makes two runs the same, in folders and in records."""

import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bne.benchmark.plan import choose, plan
from bne.data.images import ImageSet
from bne.data.sources import open_images
from bne.data.strong import Strong
from bne.errors import TrainingError
from bne.recipes.inputs import Inputs
from bne.recipes.schema import Amplitudes, Optimiser, Phase, Recipe, flat, keys
from bne.training.folder import Result, RunFolder, read_training
from bne.training.identity import FIRST, Identity, settings_of
from tests.data.small import names, write
from tests.training import small

EARLIER = Path(__file__).parent / "earlier_run"
PHASE = Phase(epochs=20, warm_up=6)
RECIPE = Recipe(target=("photo",), weights=None, train=PHASE, exact_statistics=False)
SETTINGS = settings_of(RECIPE)


def digest(settings: dict[str, object]) -> str:
    return Identity(settings).digest


def test_an_option_at_its_default_changes_nothing() -> None:
    said = replace(RECIPE, options={"distance": "wasserstein"})
    assert digest(settings_of(said)) == digest(SETTINGS)
    other = replace(RECIPE, options={"distance": "uniform"})
    assert digest(settings_of(other)) != digest(SETTINGS)


def test_an_option_is_the_same_with_and_without_a_point() -> None:
    whole, point = (settings_of(replace(RECIPE, options={"branch_loss": n})) for n in (1, 1.0))
    assert digest(whole) == digest(point) != digest(SETTINGS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"target": ("sketch",)}, "target is ['photo'] there and ['sketch'] here"),
        ({"method": "bne-a"}, "method is 'bne' there"),
        ({"train": replace(PHASE, warm_up=7)}, "train.warm_up is 6 there and 7 here"),
        (
            {"train": replace(PHASE, optimiser=Optimiser(learning_rate=2e-4))},
            "train.optimiser.learning_rate is 0.001 there and 0.0002 here",
        ),
        ({"weights": "torchvision"}, "weights is None there and 'torchvision' here"),
        ({"balance": "weights"}, "balance is 'none' there and 'weights' here"),
        ({"size": 64}, "size is None there and 64 here"),
        ({"fit": "letterbox"}, "fit is 'squash' there and 'letterbox' here"),
        ({"range": (0.0, 4095.0)}, "range is 'full' there and [0.0, 4095.0] here"),
        ({"channels": 1}, "channels is 3 there and 1 here"),
        ({"strong": Strong(gray=0.5)}, "strong.gray is 0.1 there and 0.5 here"),
        ({"amplitudes": Amplitudes("random")}, "amplitudes.name is None there and 'random' here"),
        ({"label_smoothing": 0.1}, "label_smoothing is 0.0 there and 0.1 here"),
        ({"patience": 3}, "patience is None there and 3 here"),
        ({"exact_statistics": True}, "statistics is None there and 2 here"),
    ],
)
def test_every_setting_counts(change: dict[str, object], words: str) -> None:
    other = Identity(settings_of(replace(RECIPE, **change)))
    assert other.digest != digest(SETTINGS)
    assert other.difference(Identity(SETTINGS)).startswith(words)
    assert not other.may_be(Identity(SETTINGS))


def test_a_record_from_before_a_setting_or_option_existed_still_counts() -> None:
    old = settings_of(RECIPE)
    del (
        old["patience"],
        old["size"],
        old["balance"],
        old["fit"],
        old["range"],
        old["channels"],
        old["strong"],
        old["amplitudes"],
        old["label_smoothing"],
        old["train"]["optimiser"]["clip"],
        old["options"]["layers"],
    )
    assert digest(old) == digest(SETTINGS)
    # What recipes no longer know counts for nothing.
    old |= {"compile": True, "head": {**old["head"], "warm_up": 3}}
    old["options"] |= {"synchronise": False}
    assert Identity(old).may_be(Identity(SETTINGS))


def test_a_digest_depends_on_no_default() -> None:
    """Which may change: all that runs had when the first were recorded is written down."""
    assert flat({**FIRST, "options": None}).keys() == keys().keys() - {"method", "target", "lean"}
    first = {"method": "bne", "target": ["photo"], "options": {}, **FIRST}
    short = hashlib.sha256(b'{"method": "bne", "target": ["photo"]}').hexdigest()[:16]
    assert digest(first) == short


def test_weights_and_images_are_known_by_what_they_hold(tmp_path: Path) -> None:
    folders = {"one": 2, "again": 2, "more": 3}
    for name, count in folders.items():
        write(tmp_path / name, *names("art photo", "cat dog", count))
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"weights")
    experiment = choose(recipe="default", methods=["bne"], held_out=[("photo",)])
    sets = [open_images(tmp_path / name) for name in folders]
    one, again, more = (plan(experiment, 1, {}, weights=str(file), images=s)[0] for s in sets)
    assert one.materials["weights"] == hashlib.sha256(b"weights").hexdigest()
    assert one.identity.may_be(again.identity)
    assert one.identity.difference(more.identity).startswith("images is ")
    nothing = plan(experiment, 1, {})[0]  # is at hand
    assert nothing.materials == {"weights": None, "images": None}


def identity(recipe: Recipe, images: ImageSet) -> Identity:
    one = Identity.of(Inputs.of(recipe, images), None)
    assert Identity.from_dict(json.loads(json.dumps(asdict(one)))) == one  # it survives its file
    return one


def test_a_folder_of_the_version_before_is_the_same_run_and_shown(tmp_path: Path) -> None:
    images = small.images().images
    folder = shutil.copytree(EARLIER, tmp_path / "run")
    result = Result.from_dict(json.loads((folder / "result.json").read_text()))
    assert RunFolder(folder).check(identity(small.recipe(), images), resume=False) == result
    fewer = replace(images, files=images.files[1:])
    for other, words in (
        (identity(small.recipe(seed=4), images), "seed is 3 there and 4 here"),
        (identity(small.recipe(validation=0.5), images), "validation is 0.25 there and 0.5 here"),
        (identity(small.recipe(), fewer), r"training images\.art is '18 of digest"),
    ):
        with pytest.raises(TrainingError, match=words):
            RunFolder(folder).check(other, resume=True)
    shown = read_training(folder)
    assert (shown.result, list(shown.epochs), shown.left_out) == (result, result.epochs, ())
    assert shown.settings["train"]["warm_up"] == 2
