from pathlib import Path
from typing import Any

import optuna
import pytest

from bne.errors import SettingsError
from bne.recipes.files import load, parse
from bne.recipes.schema import Recipe
from bne.tuning.space import Choice, Range, default_space, heeds, read_space, to_space, with_changes
from tests.tuning.pretend import RECIPE


def test_a_file_has_lists_and_ranges_nested_or_by_dotted_key(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        "lr: {low: 1e-4, high: 1, log: true}\n"
        "train: {epochs: {low: 4, high: 8, step: 2}, optimiser: {momentum: {low: 0, high: 0.9}}}\n"
        "optimizer: [adam, sgd]\n"
        "averaging.name: [null, ema]\n"
        "options: {distance: [wasserstein, uniform]}\n"
        "lean: [auto, 0.1]\n"
        "method: [deepall, bne]\n"
    )
    space = read_space(file, RECIPE)
    assert next(iter(space.dimensions)) == "method"
    assert space.dimensions["train.optimiser.learning_rate"] == Range(1e-4, 1.0, True)
    assert space.dimensions["train.epochs"] == Range(4, 8, step=2)
    assert isinstance(space.dimensions["train.optimiser.momentum"].low, float)
    assert space.dimensions["train.optimiser.name"] == Choice(("adam", "sgd"))
    assert space.dimensions["averaging.name"] == Choice((None, "ema"))
    assert space.shares == ("auto", 0.1)
    assert to_space(parse(str(space)), RECIPE) == space  # as --dry-run prints it


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"learning_rat": [1]}, "learning_rat is no setting"),
        ({"train": {"epoch": [1, 2]}}, "the nearest is 'train.epochs'"),
        ({"lr": []}, "lr has no values"),
        ({"lr": {"low": 1e-2, "high": 1e-3}}, "lr has an empty range: low is 0.01 and high 0.001"),
        ({"lr": {"low": 0, "high": 1, "log": True}}, "low above 0"),
        ({"lr": {"low": 0.1}}, "numbers low and high"),
        ({"epochs": {"low": 2, "high": 4, "step": 3}}, "step is 3"),
        ({"epochs": {"low": 2.5, "high": 4}}, "must be a whole number"),
        ({"epochs": {"low": 2, "high": 4, "step": 0.5}}, "step is 0.5; it must be a whole number"),
        ({"options.nearest": {"low": 1, "high": 3, "step": 1.5}}, "must be a whole number"),
        ({"lr": 0.1}, "a list of values or a range"),
        ({"lr": [0.1], "train.optimiser.learning_rate": [1]}, "is there twice"),
        ({"optimizer": [{"name": "adam"}]}, "a line of its own"),
        ({"target": ["photo"]}, "--target"),
        ({"seed": [1, 2]}, "--seeds"),
        ({"augmentation": ["paper", "weak"]}, "augmentation is 'weak'"),
        ({"method": ["bnee"]}, "the nearest is 'bne'"),
        ({"method": ["deepall"], "options.distance": ["uniform"]}, "no difference to deepall"),
        ({"options.distanc": ["uniform"]}, "the nearest is 'options.distance'"),
        ({"options.distance": ["unifrom"]}, "options"),
        ({"method": ["bne-adapt"]}, "the target's images"),
        ({"warm_up": [0, 99]}, "more than train.epochs"),
        ({"lean": [0.12]}, "lean is to be a list of shares"),
        ({"settings": []}, "settings is to be a list"),
        ({"settings": {"a": {"lr": 1}}}, "settings is to be a list"),
        ({"settings": [{}], "lr": [1]}, "train.optimiser.learning_rate must stand in each"),
        ({"settings": [{}, {"learning_rat": 1}]}, "number 2 of settings: learning_rat is no"),
        ({"settings": ["bne"]}, "number 1 of settings: the recipe is 'bne'"),
        ({"settings": [{"seed": 1}]}, "--seeds"),
        ({"settings": [{"lean": 0.1}]}, "name shares beside settings"),
        ({"settings": [{"method": "deepall", "options.centre": 1}]}, "has no option 'centre'"),
        ({"settings": [{"method": "bne-adapt"}]}, "the target's images"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(content: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        to_space(content, RECIPE, "mine.yaml")
    assert str(caught.value).startswith("mine.yaml: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_whole_settings_is_tried_as_it_is() -> None:
    given = [
        {"method": "deepall", "lr": 0.1},
        {"options": {"distance": "uniform"}, "amplitudes": "random"},
        {"lr": RECIPE.train.optimiser.learning_rate},  # the recipe's own
        {"train.warm_up": 0},
        {"options.distance": "uniform", "amplitudes.name": "random"},  # once more
    ]
    space = to_space({"settings": given, "lean": [0, "auto"]}, RECIPE)
    assert space.whole == (
        {},
        {"method": "deepall", "train.optimiser.learning_rate": 0.1},
        {"options.distance": "uniform", "amplitudes.name": "random"},
        {"train.warm_up": 0},
    )
    assert [space.decoded(one) for one in space.first(RECIPE)] == list(space.whole)
    assert space.shares == (0, "auto")
    assert to_space(parse(str(space)), RECIPE) == space


def test_no_more_settings_are_counted_than_there_are() -> None:
    few = {"method": ["deepall", "bne"], "warm_up": [0, 1, 2]}
    assert [to_space(few, RECIPE).count(n) for n in (4, 16)] == [4, 6]
    assert to_space({**few, "lr": {"low": 0.1, "high": 1}}, RECIPE).count(16) == 16
    assert to_space({"settings": [{"lr": 1}, {"lr": 2}]}, RECIPE).count(1) == 3  # the recipe's too


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [1\n"])
def test_a_file_that_is_no_space_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"space\.yaml"):
        read_space(file, RECIPE)
    with pytest.raises(SettingsError, match="no such file"):
        read_space(tmp_path / "none.yaml", RECIPE)


def test_the_default_space_has_possible_settings_alone() -> None:
    recipe = with_changes(load("default", {}), {"backbone": "small_cnn", "weights": None})
    recipe = with_changes(recipe, {"resize": 32})
    space = default_space(recipe)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    methods = set()
    for _ in range(12):
        changes = space.suggest(study.ask(), recipe)
        assert with_changes(recipe, changes).method == changes["method"]
        assert ("options.distance" in changes) == (changes["method"] != "deepall")
        assert ("train.warm_up" in changes) == (changes["method"] != "deepall")
        methods.add(changes["method"])
    assert methods == {"deepall", "bne", "points"}
    # What of the recipe lies in the space, so that it is tried first.
    own = space.decoded(*space.first(recipe))
    assert own.keys() == space.dimensions.keys()
    assert with_changes(recipe, own) == with_changes(recipe, {"options.distance": "wasserstein"})
    gray = default_space(with_changes(recipe, {"channels": 1}))
    assert "augmentation" not in gray.dimensions


def test_numbers_of_options_are_of_the_type_that_the_method_declares() -> None:
    space = to_space(
        {
            "options.domain_loss": [0, 1],
            "options.branch_loss": {"low": 0, "high": 1},
            "options.momentum": {"low": 0, "high": 1, "step": 0.5},
            "options.max_branches": {"low": 1, "high": 3},
        },
        RECIPE,
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(*space.first(with_changes(RECIPE, {"options.domain_loss": 1})))
    tried = [space.suggest(study.ask(), RECIPE) for _ in range(9)]
    assert tried[0]["options.domain_loss"] == 1
    assert any(0 < one["options.branch_loss"] < 1 for one in tried)
    assert {one["options.momentum"] for one in tried} == {0.0, 0.5, 1.0}
    assert {one["options.max_branches"] for one in tried} == {1, 2, 3}
    assert to_space(parse(str(space)), RECIPE) == space


def test_options_of_another_method_are_left_out() -> None:
    recipe = with_changes(RECIPE, {"options.distance": "uniform"})
    assert with_changes(recipe, {"method": "deepall"}).options == {}
    assert heeds("bne", "train.warm_up")
    assert not heeds("deepall", "train.warm_up")
    assert isinstance(recipe, Recipe)
