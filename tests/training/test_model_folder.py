import json

import pytest
import torch

from bne.data.transform import EvalTransform
from bne.errors import DataError
from bne.methods import create, entries
from bne.models import build, preprocessing
from bne.training.files import snapshot
from bne.training.model_folder import ModelInfo, load_model, save_model
from tests.training import small


def info(method: str, domains: list[str], lean: float = 0.0) -> ModelInfo:
    transform = EvalTransform(preprocessing("tiny"), small.SIZE).to_dict()
    return ModelInfo("tiny", small.CLASSES, tuple(domains), method, {}, transform, None, lean)


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_every_method_comes_back_from_its_folder(tmp_path, name) -> None:
    torch.manual_seed(1)
    domains = ["a", "b", "c"]
    method = create(name, build("tiny", 3), domains)
    with torch.no_grad():
        for value in method.state_dict().values():
            if value.is_floating_point():
                value.uniform_(0.1, 1)
    method.lean = share = 0.2 if method.can_lean else 0.0
    save_model(tmp_path / "model", snapshot(method.state_dict()), info(name, domains, share))
    state = torch.get_rng_state()
    loaded, transform, found = load_model(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
    assert (found.method, found.domains, found.classes) == (name, ("a", "b", "c"), small.CLASSES)
    assert transform.resize == small.SIZE
    images = torch.randn(2, 3, 8, 8)
    with torch.inference_mode():
        assert torch.equal(loaded.predict(images), method.eval().predict(images))


def test_a_runs_folder_will_do_if_the_run_is_finished(tmp_path) -> None:
    method = create("bne", build("tiny", 3), ["a", "b"])
    tensors = snapshot(method.state_dict())
    save_model(tmp_path / "best", tensors, info("bne", ["a", "b"]))
    with pytest.raises(DataError, match=r"not finished; finish it with --resume, or name .*best\."):
        load_model(tmp_path)
    save_model(tmp_path / "model", tensors, info("bne", ["a", "b"]))
    assert load_model(str(tmp_path))[2].domains == ("a", "b")


def test_damage_is_told_in_one_sentence(tmp_path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(DataError, match="is no model folder"):
        load_model(folder)
    tensors = snapshot(create("deepall", build("tiny", 3), ["a"]).state_dict())
    save_model(folder, tensors, info("deepall", ["a"]))
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(DataError, match=r"model\.safetensors is damaged"):
        load_model(folder)
    fields = json.loads((folder / "model.json").read_text())
    del fields["backbone"]
    (folder / "model.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match="no model that can be used"):
        load_model(folder)
