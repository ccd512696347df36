"""Runs that cannot begin or go on, and what is said of them."""

import dataclasses
import resource

import pytest
import torch

from bne.errors import BneError, TrainingError
from bne.recipes.schema import HeadPhase, Phase
from bne.training.folder import RunFolder
from tests.training import small
from tests.training.small import run


@pytest.fixture(scope="module")
def images():
    return small.images()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resize": 12}, "prepared with 10 pixels, but resize is 12"),
        ({"fit": "letterbox"}, "prepared with fit squash, but the recipe has letterbox"),
        ({"range": (0.0, 9.0)}, r"prepared with range None, but the recipe has \(0.0, 9.0\)"),
        (
            {"method": "bne-pseudo", "options": {"clusters": 99}},
            r"options\.clusters is 99, but there are 54 images to train on; ask for fewer",
        ),
        ({"options": {"nearest": 4}}, r"options\.nearest is 4, but there are 3 branches"),
        ({"size": 11}, "resized to 10 pixels are too small for a crop of 11"),
        ({"train": Phase(0)}, r"train\.epochs is 0"),
        ({"per_domain": 3, "accumulate": 2}, "accumulate=2"),
    ],
)
def test_recipes_made_in_python_are_checked_too(images, tmp_path, changes, message) -> None:
    with pytest.raises(BneError, match=message):
        run(small.recipe(**changes), images, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_trains_though_a_source_lacks_a_class(images, tmp_path) -> None:
    kept = [n for n, f in enumerate(images.images.files) if not f.name.startswith("photo/tree")]
    less = small.only(images, kept)
    recipe = small.recipe("deepall", head=HeadPhase(0), train=Phase(1))
    result = run(recipe, less, tmp_path / "run", allow_gaps=True)
    assert result.epochs[-1].validation["photo"].images == 4
    target = dataclasses.replace(recipe, target=("photo",))  # which may lack what it likes
    assert run(target, less, tmp_path / "target").accuracy["last"]["photo"].images == 16


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": __file__}, "backbone tiny: .*test_refused.py.* are neither"),
        ({"options": {"nearest": 0}}, "method bne: .*nearest must be at least 1, not 0"),
    ],
)
def test_what_no_network_can_be_made_of_is_named(images, tmp_path, changes, message) -> None:
    with pytest.raises(TrainingError, match=message):
        run(small.recipe(**changes), images, tmp_path / "run")


def test_two_processes_cannot_train_in_one_folder(images, tmp_path) -> None:
    with (
        RunFolder(tmp_path / "run").alone(),
        pytest.raises(TrainingError, match=r"Another process trains in .*run; wait"),
    ):
        run(small.recipe(), images, tmp_path / "run")
    assert len(run(small.recipe(), images, tmp_path / "run").epochs) == 6


@pytest.mark.parametrize("name", ["images.csv", "model/mine.txt", "best", "model.bne"])
def test_files_of_others_are_not_replaced(images, tmp_path, name) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(TrainingError, match=rf"{name.partition('/')[0]} is of no run, which would"):
        run(small.recipe(), images, tmp_path)
    assert mine.read_text() == "mine"


def test_a_run_goes_on_after_a_folder_that_could_not_be_written(images, tmp_path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, hard))  # bytes, less than a checkpoint has
    try:
        with pytest.raises(TrainingError, match=r"run cannot be written \(File too large\)"):
            run(small.recipe(), images, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(run(small.recipe(), images, tmp_path / "run", resume=True).epochs) == 6


def test_graphs_without_a_gpu_are_refused(images, tmp_path) -> None:
    with pytest.raises(TrainingError, match="graphs needs"):
        run(small.recipe(), images, tmp_path / "run", graphs=True)


def test_a_gpu_that_is_full_is_one_sentence(images, tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.11 GiB. GPU 0 has")

    monkeypatch.setattr("bne.training.run._train", full)
    with pytest.raises(TrainingError, match=r"memory.*\(CUDA out of memory\).*accumulate"):
        run(small.recipe(), images, tmp_path / "run")
