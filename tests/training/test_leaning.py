"""Runs are scored at every share, and keep the one that held-out images allow."""

import json

import pytest
import torch
from torch import nn

from bne.deploy.classifier import set_mode
from bne.errors import SettingsError
from bne.methods import create
from bne.recipes.checks import check_settings
from bne.training.folder import Result
from bne.training.identity import settings_of
from bne.training.model_folder import load_model
from bne.training.scores import SHARES, choose_share, leanings
from tests.training import small


@pytest.mark.parametrize("method", ["deepall", "points", "head-only"])
def test_scores_are_those_of_the_kept_network_at_each_share(tmp_path, method) -> None:
    result = small.run(
        small.recipe(method, exact_statistics=True, lean="auto"), small.images(), tmp_path
    )
    assert [one.share for one in result.leaning] == list(SHARES)
    assert result.lean == choose_share(result.leaning, 0.2 if method == "points" else 0.1)
    network, transform, info = load_model(tmp_path)
    assert network.lean == info.lean == result.lean
    prepared = small.images()
    numbers = prepared.images.indices_of(["sketch"])
    images = transform(prepared.pixels[numbers].permute(0, 3, 1, 2))
    for one in result.leaning:
        network.lean = one.share
        with torch.inference_mode():
            right = network.predict(images).argmax(1) == prepared.labels[numbers]
        assert one.target["sketch"].correct == int(right.sum())
    if method != "head-only":  # which is fitted leaning, and scored so
        assert result.leaning[0].target == result.accuracy["last"]
    held_out = {name: score.images for name, score in result.leaning[0].validation.items()}
    assert held_out == dict.fromkeys(("art", "cartoon", "photo"), 6)


@pytest.mark.parametrize("method", ["points", "deepall-points"])
def test_learned_shares_are_scored_and_kept(tmp_path, method) -> None:
    recipe = small.recipe(method, options={"learn_lean": True}, lean="auto")
    result = small.run(recipe, small.images(), tmp_path)
    assert [one.share for one in result.leaning] == [*SHARES, "learned"]
    network, transform, info = load_model(tmp_path)
    assert network.lean == info.lean == result.lean == network.learned_lean
    assert all(share != pytest.approx(0.2) for share in result.lean.values())
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    prepared = small.images()
    numbers = prepared.images.indices_of(["sketch"])
    with torch.inference_mode():
        images = transform(prepared.pixels[numbers].permute(0, 3, 1, 2))
        right = network.predict(images).argmax(1) == prepared.labels[numbers]
    assert result.leaning[-1].target["sketch"].correct == int(right.sum())
    asked = small.recipe(method, options={"learn_lean": True}, lean=0.3)
    assert small.run(asked, small.images(), tmp_path / "asked").lean == 0.3


def test_the_share_may_be_set_and_tells_no_runs_apart(tmp_path) -> None:
    asked = small.recipe("bne", lean=0.3)
    result = small.run(asked, small.images(), tmp_path)
    assert result.lean == load_model(tmp_path)[0].lean == 0.3
    again = small.run(
        small.recipe("bne", lean=0.0), small.images(), tmp_path
    )  # finished: read, not trained
    assert again.to_dict() == result.to_dict()
    assert settings_of(asked)["lean"] == 0.3


def test_results_of_earlier_versions_lean_by_nothing(tmp_path) -> None:
    fields = json.loads(
        json.dumps(small.run(small.recipe("dson"), small.images(), tmp_path).to_dict())
    )
    assert fields.pop("leaning") == []
    assert fields.pop("lean") == 0
    assert Result.from_dict(fields).lean == 0


def test_a_network_without_batch_norm_is_not_said_to_lean() -> None:
    network = create("deepall", nn.Sequential(nn.Conv2d(3, 2, 3), nn.GroupNorm(1, 2)), ["art"])
    assert leanings(None, network) == []
    assert choose_share([], 0.1) == 0
    with pytest.raises(SettingsError, match="no batch norm"):
        set_mode(network, None, lean=0.1)
    network.lean = 0.1  # as models may say that were made before
    pytest.importorskip("timm")
    bare = {"backbone": "timm/test_convnext", "resize": 160}
    check_settings(small.recipe("deepall", lean="auto", **bare))
    with pytest.raises(SettingsError, match="test_convnext has no batch norm"):
        check_settings(small.recipe("deepall", lean=0.1, **bare))


@pytest.mark.parametrize("method", ["dson", "instance-norm"])
def test_methods_that_do_not_lean_refuse_a_share(method) -> None:
    check_settings(small.recipe(method, lean="auto"))
    with pytest.raises(SettingsError, match="lean"):
        check_settings(small.recipe(method, lean=0.1))
