"""Domains added and removed without training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bne
from bne.core.norm import domain_layers
from bne.data.images import resize
from bne.deploy import bundle
from bne.deploy.answers import Calibration
from bne.deploy.classifier import Classifier
from bne.deploy.manifest import KEY
from bne.errors import DataError, SettingsError
from bne.methods import create
from bne.models import build
from bne.training.files import snapshot
from bne.training.model_folder import save_model
from tests.training.test_model_folder import info

Runs = dict[str, Path]


@pytest.fixture(scope="module")
def photos(runs: Runs) -> list[Path]:
    return sorted(runs["data"].glob("photo/*/*.png"))


@pytest.fixture(scope="module")
def old(runs: Runs) -> list[Path]:
    return sorted(runs["data"].glob("art/*/*.png"))


@pytest.fixture(scope="module")
def before(runs: Runs):
    return bne.load(runs["bne"], "cpu")


@pytest.fixture(scope="module")
def after(before, photos):
    return before.enroll("photo", photos)


def test_the_mixture_moves_by_the_weight_of_the_new_branch(before, after, old, photos) -> None:
    for files in (old, photos):
        first, second = before.predict(files), after.predict(files)
        new = second.weights[:, 2:].astype(np.float64)
        assert new.min() > 0
        np.testing.assert_allclose(
            second.weights[:, :2], (1 - new) * first.weights, rtol=1e-5, atol=1e-7
        )
        np.testing.assert_array_equal(second.distances[:, :2], first.distances)
        alone = after.forget("art").forget("sketch").predict(files).seen.logits
        expected = (1 - new) * first.seen.logits + new * alone
        np.testing.assert_allclose(second.seen.logits, expected, rtol=0, atol=1e-6)


def test_the_statistics_are_those_of_one_batch_under_torch(runs: Runs, before, photos) -> None:
    """Four images fit one batch, whose moments torch's own layers must find."""
    model = before.enroll("photo", photos[:4])
    pixels = [np.asarray(resize(_rgb(p), 40, model.engine.way.fit)) for p in photos[:4]]
    images = model.engine.transform(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2))
    plain = before.engine.method.net
    before_lean, plain.lean = plain.lean, 0
    plain = plain.to_plain("art").train()
    before.engine.method.net.lean = before_lean
    for layer in plain.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 1.0
    plain(images)
    found = {layer.name: layer for layer in domain_layers(model.engine.method)}
    for name, layer in plain.named_modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            torch.testing.assert_close(
                found[name].running_mean[2], layer.running_mean, rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(
                found[name].running_var[2], layer.running_var, rtol=2e-2, atol=1e-5
            )  # torch divides by 63, not 64


def _rgb(path: Path):
    from PIL import Image

    return Image.open(path).convert("RGB")


@pytest.mark.parametrize("recenter", [False, True])
def test_forgetting_gives_the_model_back(before, photos, recenter: bool, tmp_path: Path) -> None:
    model = before.enroll("photo", photos, recenter=recenter).forget("photo")
    assert (model.id, model.info) == (before.id, before.info)
    expected = before.predict(photos)
    for one, other in zip(model.predict(photos).seen, expected.seen, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_file_keeps_what_was_enrolled(after, photos, tmp_path: Path) -> None:
    from safetensors import safe_open

    after.save(tmp_path / "new.bne")
    again = bne.load(tmp_path / "new.bne", "cpu")
    assert again.id == after.id
    assert again.domains == ("art", "sketch", "photo")
    assert again.info.domains == ("art", "sketch")
    told = again.info.enrolled["photo"]
    assert (told["images"], told["central"]) == (len(photos), False)
    np.testing.assert_array_equal(again.predict(photos).weights, after.predict(photos).weights)
    with safe_open(tmp_path / "new.bne", "pt") as file:
        assert '"format": 2' in file.metadata()[KEY]
    unwatched = replace(after.info, enrolled={}, calibration=Calibration())
    assert unwatched.format == 1  # which earlier versions read
    again.forget("art").save(tmp_path / "other.bne")
    assert bne.load(tmp_path / "other.bne", "cpu").domains == ("sketch", "photo")


def test_a_map_of_other_domains_is_left_out(before, photos) -> None:
    places = {"branches": {"art": [0, 0], "sketch": [1, 0]}, "images": []}
    model = Classifier(before.engine.method, replace(before.info, map=places), "cpu")
    for made in (model.enroll("photo", photos), model.forget("art")):
        assert made.info.map is None


def test_the_centre_stays_unless_told_otherwise(runs: Runs, photos, tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu", mix="centre")
    expected = model.predict(photos).seen
    kept = model.enroll("photo", photos)
    moved = model.enroll("photo", photos, recenter=True)
    np.testing.assert_array_equal(kept.predict(photos).seen.logits, expected.logits)
    np.testing.assert_allclose(kept.predict(photos[:1]).weights, [[0.5, 0.5, 0]])
    assert not np.allclose(moved.predict(photos).seen.logits, expected.logits, rtol=1e-4)
    both = moved.enroll("more", photos[:3])
    assert both.domains == ("art", "sketch", "photo", "more")
    both.save(tmp_path / "new.bne")
    again = bne.load(tmp_path / "new.bne", "cpu").predict(photos).seen.logits
    np.testing.assert_array_equal(again, moved.predict(photos).seen.logits)
    third = kept.enroll("more", photos[:3], recenter=True)
    assert third.domains == ("art", "sketch", "more", "photo")
    central = [layer.centre.mean for layer in domain_layers(third.engine.method)]
    rows = [layer.running_mean[:3].mean(0) for layer in domain_layers(third.engine.method)]
    for one, other in zip(central, rows, strict=True):
        torch.testing.assert_close(one[0], other)


def test_a_domain_enrolled_anew_under_its_name_stays_out_of_the_centre(
    runs: Runs, photos, tmp_path: Path
) -> None:
    model = bne.load(runs["bne"], "cpu", mix="centre")
    made = model.forget("sketch").enroll("sketch", photos)
    assert (made.domains, made.info.central) == (model.domains, 1)
    made.save(tmp_path / "new.bne")
    again = bne.load(tmp_path / "new.bne", "cpu").predict(photos).seen.logits
    np.testing.assert_array_equal(again, made.predict(photos).seen.logits)


def test_nothing_of_the_old_model_changes(before, photos) -> None:
    state = snapshot(before.engine.method.state_dict())
    before.enroll("photo", photos)
    before.forget("art")
    for name, value in before.engine.method.state_dict().items():
        assert torch.equal(value, state[name])


@pytest.mark.parametrize("name", ["dson", "dson-bne", "dnet", "deepall", "deepall-points"])
def test_methods_without_such_branches_refuse(name: str, tmp_path: Path) -> None:
    method = create(name, build("tiny", 3), ["a", "b", "c"])
    save_model(tmp_path / "model", snapshot(method.state_dict()), info(name, ["a", "b", "c"]))
    model = bne.load(tmp_path / "model", "cpu")
    image = np.zeros((9, 9, 3), np.uint8)
    for act in (lambda: model.enroll("d", [image, image]), lambda: model.forget("a")):
        with pytest.raises(SettingsError, match=f"{name} has no branches"):
            act()


def test_what_cannot_be_is_one_sentence(before, photos) -> None:
    for act, kind, words in (
        (lambda: before.enroll("art", photos), SettingsError, "has a domain of that name"),
        (lambda: before.enroll(" ", photos), SettingsError, "empty"),
        (lambda: before.enroll("photo ", photos), SettingsError, "ends with a space"),
        (lambda: before.enroll("a\x1b[31mb", photos), SettingsError, "cannot be printed"),
        (lambda: before.enroll("photo", photos[:1]), DataError, "1 image cannot tell"),
        (lambda: before.enroll("photo", []), DataError, "0 images cannot tell"),
        (lambda: before.enroll("photo", [*photos, "no.png"]), DataError, "no.png"),
        (lambda: before.forget("sketsh"), SettingsError, "the nearest is 'sketch'"),
        (lambda: before.forget("art").forget("sketch"), SettingsError, "last domain"),
    ):
        with pytest.raises(kind, match=words):
            act()


def test_clusters_and_points_take_new_domains(tmp_path: Path) -> None:
    for name in ("bne-pseudo", "points"):
        method = create(name, build("tiny", 3), ["a", "b"])
        save_model(tmp_path / name, snapshot(method.state_dict()), info(name, ["a", "b"]))
        images = list(np.random.default_rng(0).integers(0, 255, (5, 9, 9, 3), np.uint8))
        model = bne.load(tmp_path / name, "cpu").enroll("new", images)
        bundle.write(tmp_path / "new.bne", model.engine.method, model.info)
        again = bne.load(tmp_path / "new.bne", "cpu")
        assert again.domains[-1] == "new"
        np.testing.assert_array_equal(
            again.predict(images).seen.logits, model.predict(images).seen.logits
        )
