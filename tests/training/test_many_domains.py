"""Steps that take images of some of the domains, and statistics of small domains."""

from dataclasses import replace

import pytest
import torch

from bne.data.batches import draw
from bne.errors import Interrupted, SettingsError
from bne.recipes.checks import check_settings
from bne.recipes.inputs import Inputs
from bne.recipes.schema import HeadPhase, Phase
from tests.training import small


@pytest.fixture(scope="module")
def images():
    return small.images()


SHORT = {"head": HeadPhase(0), "train": Phase(2, 1), "exact_statistics": True}


@pytest.mark.parametrize("method", ["bne", "points", "deepall", "mldg"])
def test_a_run_on_two_of_three_domains_resumes_exactly(images, tmp_path, method: str) -> None:
    recipe = small.recipe(method, domains_per_step=2, **SHORT)
    whole = small.run(recipe, images, tmp_path / "whole")
    with pytest.raises(Interrupted):
        small.run(recipe, images, tmp_path / "parts", listeners=[small.StopAt(3)])
    parts = small.run(recipe, images, tmp_path / "parts", resume=True)
    assert small.timeless(parts.epochs) == small.timeless(whole.epochs)
    ours, theirs = (
        small.tensors(tmp_path / name / "model/model.safetensors") for name in ("parts", "whole")
    )
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    full = small.run(replace(recipe, domains_per_step=None), images, tmp_path / "full")
    assert full.epochs[-1].loss != whole.epochs[-1].loss


def test_an_epoch_still_sees_as_many_images(images, tmp_path) -> None:
    recipe = small.recipe("deepall", epoch="largest", validation=0.0, **SHORT)
    steps = [
        small.run(replace(recipe, domains_per_step=some), images, tmp_path / str(some)).epochs[0]
        for some in (None, 1, 2)
    ]
    assert [epoch.steps for epoch in steps] == [6, 18, 9]


def test_statistics_are_measured_on_as_few_domains_at_a_time() -> None:
    members = {"a": range(9), "b": range(9, 14), "c": range(14, 23)}
    whole = list(draw(members, 2, 0))
    parts = list(draw(members, 2, 0, domains_per_step=2))
    assert {len(batch.numbers) for batch in parts} == {4, 2}
    for field in ("numbers", "domains", "counts"):
        ours, theirs = (torch.cat([getattr(b, field) for b in each]) for each in (parts, whole))
        assert torch.equal(ours, theirs)


def test_shrinkage_draws_the_domains_together(images, tmp_path) -> None:
    def spread(shrinkage: float) -> float:
        recipe = small.recipe(shrinkage=shrinkage, **SHORT)
        small.run(recipe, images, tmp_path / str(shrinkage))
        found = small.tensors(tmp_path / str(shrinkage) / "model/model.safetensors")
        return sum(float(v.std(0).sum()) for key, v in found.items() if "running_mean" in key)

    assert spread(1e6) < 1e-3 * spread(0.0)
    assert spread(0.0) > spread(18.0) > spread(1e6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shrinkage": 1.0, "exact_statistics": False}, "shrinkage needs exact_statistics"),
        ({"domains_per_step": 2, "options": {"branch_loss": 0.5}}, "options.branch_loss"),
        ({"domains_per_step": 2, "method": "bne-adapt"}, "needs the target in each step"),
    ],
)
def test_what_contradicts_is_refused(changes, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_settings(replace(small.recipe(), **changes))


def test_more_domains_than_there_are_is_refused(images, tmp_path) -> None:
    with pytest.raises(SettingsError, match="domains_per_step is 4, of 3 domains"):
        small.run(small.recipe(domains_per_step=4), images, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert Inputs.of(small.recipe(domains_per_step=3), images.images)
