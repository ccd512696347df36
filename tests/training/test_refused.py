"""Runs that cannot begin or go on, and what is said of them."""

import dataclasses
import resource

import pytest
import torch

from bne.errors import BneError, DataError, TrainingError
from bne.recipes.schema import Phase
from bne.training.folder import RunFolder
from bne.training.run import run
from tests.training import small


@pytest.fixture(scope="module")
def images():
    return small.images()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resize": 12}, "prepared with 10 pixels, but resize is 12"),
        ({"target": ("sketsch",)}, "no domain 'sketsch'"),
        ({"target": ()}, "hold out at least one"),
        ({"train": Phase(0)}, "train.epochs is 0"),
        ({"patience": 2, "validation": 0.0}, "patience needs images to validate on"),
        ({"per_domain": 3, "accumulate": 2}, "choose a multiple of 2"),
        ({"validation": "official"}, "no official split lies with the data"),
    ],
)
def test_what_cannot_be_trained_fails_before_anything_is_written(
    images, tmp_path, changes, message
) -> None:
    with pytest.raises(BneError, match=message):
        run(small.recipe(**changes), images, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_class_that_a_source_lacks_must_be_allowed(images, tmp_path) -> None:
    gap = [n for n, f in enumerate(images.images.files) if f.name.startswith("photo/tree")]
    kept = [n for n in range(len(images)) if n not in gap]
    selected = images.images.select(kept)
    less = dataclasses.replace(images, images=selected, pixels=images.pixels[kept])
    recipe = small.recipe("deepall", head=Phase(0), train=Phase(1))
    with pytest.raises(DataError, match=r"^photo has no images of tree to train on, though"):
        run(recipe, less, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    result = run(recipe, less, tmp_path / "run", allow_gaps=True)
    assert result.epochs[-1].validation["photo"].images == 4
    target = dataclasses.replace(recipe, target=("photo",))  # which may lack what it likes
    assert run(target, less, tmp_path / "target").accuracy["last"]["photo"].images == 16


def test_a_class_that_only_the_target_has_is_refused(images, tmp_path) -> None:
    kept = [
        number
        for number, file in enumerate(images.images.files)
        if "/tree/" not in file.name or file.name.startswith("sketch/")
    ]
    less = dataclasses.replace(
        images, images=images.images.select(kept), pixels=images.pixels[kept]
    )
    for allow_gaps in (False, True):
        with pytest.raises(DataError, match=r"^target sketch has the class 'tree', of which no"):
            run(small.recipe("deepall"), less, tmp_path / "run", allow_gaps=allow_gaps)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": __file__}, "backbone tiny: .*test_refused.py.* are neither"),
        ({"options": {"nearest": 0}}, "method bne: .*nearest must be at least 1, not 0"),
        (
            {"method": "bne-pseudo", "options": {"clusters": 99}},
            "method bne-pseudo: 54 images cannot make 99 clusters",
        ),
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


def test_a_folder_that_cannot_be_written_is_named_and_the_run_goes_on_later(
    images, tmp_path
) -> None:
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
    with pytest.raises(TrainingError) as caught:
        run(small.recipe(), images, tmp_path / "run")
    assert str(caught.value) == (
        "The GPU's memory does not suffice (CUDA out of memory); leave more of it to this run, or "
        "lower its need (accumulate, options.max_branches)."
    )
