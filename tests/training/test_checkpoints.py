import json
import logging
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from bne.errors import Interrupted, TrainingError
from bne.recipes.inputs import Inputs
from bne.training import checkpoints
from bne.training.checkpoints import Checkpoint
from bne.training.folder import RunFolder
from bne.training.identity import Identity, settings_of
from tests.training import small
from tests.training.small import StopAt, run


def checkpoint(step: int) -> Checkpoint:
    tensors = {"a/b": torch.arange(3.0) + step, "count": torch.tensor(step)}
    return Checkpoint({"step": step, "third": 1 / 3}, tensors)


@pytest.fixture
def folder(tmp_path):
    for step in (5, 10, 15):
        checkpoints.write(checkpoints.path_of(tmp_path, step), checkpoint(step))
    return tmp_path


def test_checkpoints_come_back_exactly(folder) -> None:
    found = checkpoints.newest(folder)
    assert found is not None
    assert found.state == checkpoint(15).state
    for key, value in checkpoint(15).tensors.items():
        assert torch.equal(found.tensors[key], value)
        assert found.tensors[key].dtype == value.dtype
    assert checkpoints.newest(folder / "none") is None


def test_writing_again_replaces(folder) -> None:
    checkpoints.write(folder / "step-00000015", checkpoint(99))
    assert checkpoints.newest(folder).state["step"] == 99
    assert sorted(p.name for p in folder.iterdir()) == [f"step-{s:08d}" for s in (5, 10, 15)]


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "removed"])
def test_damage_is_noticed_and_the_one_before_is_used(folder, caplog, name, damage) -> None:
    path = folder / "step-00000015" / name
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        place = data.index(b"15") if name == "state.json" else -1  # the number of the step
        data[place] ^= 1
    path.unlink()
    if damage != "removed":
        path.write_bytes(data[:-9] if damage == "truncated" else data)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest(folder).state["step"] == 10
    assert "step-00000015 cannot be read" in caplog.text
    assert "step-00000010" in caplog.text


def test_if_all_are_damaged_nothing_is_resumed(folder) -> None:
    for path in checkpoints.all_of(folder):
        (path / "state.json").write_text("{}")
    with pytest.raises(TrainingError, match="cannot be read"):
        checkpoints.newest(folder)


def test_another_format_is_named(folder) -> None:
    path = folder / "step-00000015" / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(TrainingError, match="format 99"):
        checkpoints.read(path.parent)


def test_the_newest_two_are_kept(folder) -> None:
    checkpoints.write(folder / "step-00000020", checkpoint(20))
    checkpoints.prune(folder)
    assert [p.name for p in checkpoints.all_of(folder)] == [f"step-{s:08d}" for s in (15, 20)]


@pytest.fixture
def unfinished(tmp_path):
    """A run of the tiny network that was stopped in the middle of an epoch."""
    images = small.images()
    with pytest.raises(Interrupted, match="--resume"):
        run(small.recipe(), images, tmp_path / "run", listeners=[StopAt(22)])
    return tmp_path / "run", images


def test_ctrl_c_saves_and_says_how_to_go_on(unfinished) -> None:
    folder, images = unfinished
    assert checkpoints.all_of(folder / "checkpoints")[-1].name == "step-00000023"
    with pytest.raises(TrainingError, match=r"unfinished run.*--resume"):
        run(small.recipe(), images, folder)
    assert len(run(small.recipe(), images, folder, resume=True).epochs) == 6


def test_other_classes_domains_images_and_recipes_are_spelled_out(unfinished) -> None:
    folder, images = unfinished
    first, *others = images.images.files
    for changes, message in (
        ({"classes": ("dog", "house", "pear")}, r"classes is .*'tree'.*'pear'"),
        ({"domains": ("art", "film", "photo", "sketch")}, r"training images.film is None there"),
        ({"files": (*others, first)}, r"images.art is '18 of digest .*' there and '1\d of digest "),
    ):
        other = replace(images, images=replace(images.images, **changes))
        with pytest.raises(TrainingError, match=message):
            run(small.recipe(), other, folder, resume=True)
    recipe = (folder / "recipe.yaml").read_text()  # which people may change
    (folder / "recipe.yaml").write_text(recipe.replace("seed: 3", "seed: 5"))
    with pytest.raises(TrainingError, match=r"\(seed is 3 there and 5 here"):
        run(small.recipe(seed=5), images, folder, resume=True)


@pytest.mark.parametrize("domain", ["photo", "sketch"])
@pytest.mark.parametrize("finished", [False, True])
def test_the_result_of_other_images_is_not_given_for_these(unfinished, domain, finished) -> None:
    folder, images = unfinished
    gone, *_ = images.images.indices_of([domain])
    fewer = small.only(images, [number for number in range(len(images)) if number != gone])
    if finished:
        run(small.recipe(), images, folder, resume=True)
    message = rf"holds another run \(.* images\.{domain} is '\d+ of digest .* choose another"
    with pytest.raises(TrainingError, match=message):
        run(small.recipe(), fewer, folder, resume=True)
    assert run(small.recipe(), images, folder, resume=True).epochs


def test_a_folder_that_holds_no_run_is_free(tmp_path) -> None:
    """A recipe that lies there, or a run that never came to its first checkpoint."""
    images = small.images()
    other = Identity(settings_of(small.recipe(seed=5)))
    inputs = Inputs.of(small.recipe(), images.images)
    RunFolder(tmp_path).begin(inputs, images, other, {}, [])
    assert len(run(small.recipe(), images, tmp_path).epochs) == 6


def test_a_file_of_weights_that_has_changed_is_another(tmp_path) -> None:
    start, folder = tmp_path / "start.safetensors", tmp_path / "run"
    images, recipe = small.images(), small.recipe(weights=str(start))
    save_file(small.tiny(3).state_dict(), start)
    first = run(recipe, images, folder)
    assert run(recipe, images, folder) == first
    save_file(small.tiny(3).state_dict(), start)
    with pytest.raises(TrainingError, match=r"initial weights is '[0-9a-f]{64}' there and '"):
        run(recipe, images, folder)
    (folder / "materials.json").unlink()
    with pytest.raises(TrainingError, match=r"materials\.json is damaged, or missing as in"):
        run(recipe, images, folder)
