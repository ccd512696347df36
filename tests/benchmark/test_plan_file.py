from dataclasses import replace
from pathlib import Path

import pytest

from bne.benchmark.plan_file import for_this_machine, read_plan, write_plan
from bne.data.sources import open_images
from bne.errors import DataError
from bne.training.environment import weights_sha256
from bne.training.identity import images_digest
from tests.benchmark.test_execute import item


def test_runs_are_the_same_after_a_file(tmp_path: Path) -> None:
    runs = [item("bne"), item("deepall", "art", seed=3)]
    write_plan(tmp_path / "plan.json", runs, ["sketch"])
    found, without = read_plan(tmp_path / "plan.json")
    assert without == ("sketch",)
    assert [one.recipe for one in found] == [one.recipe for one in runs]
    assert [one.digest for one in found] == [one.digest for one in runs]
    (tmp_path / "plan.json").write_text('{"without": [], "runs": [{"row": 1}]}')
    with pytest.raises(DataError, match=r"plan\.json: no plan of runs"):
        read_plan(tmp_path / "plan.json")


def test_images_and_weights_must_be_those_of_the_plan(data: Path, tmp_path: Path) -> None:
    images, file = open_images(data), tmp_path / "elsewhere" / "net.safetensors"
    file.parent.mkdir()
    file.write_bytes(b"weights")
    known = {"weights": weights_sha256(str(file)), "images": images_digest(images)}
    run = item("deepall", weights="net.safetensors")
    (here,) = for_this_machine([replace(run, materials=known)], images, str(file))
    assert (here.recipe.weights, here.digest) == (str(file), run.digest)
    with pytest.raises(DataError, match="The images are not those of the plan"):
        for_this_machine([here], images.without(["art"]), str(file))
    other = file.with_name("other.safetensors")
    other.write_bytes(b"weights")
    with pytest.raises(DataError, match=r"weights are net\.safetensors"):
        for_this_machine([here], images, str(other))
    file.write_bytes(b"changed")
    with pytest.raises(DataError, match="The weights are not those of the plan"):
        for_this_machine([here], images)
