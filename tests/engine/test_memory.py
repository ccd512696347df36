import pytest
import torch

from bne.engine import run as engine
from bne.engine.errors import TrainingError
from tests.engine import small


def test_a_gpu_that_is_full_is_one_sentence(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.11 GiB. GPU 0 has")

    monkeypatch.setattr(engine, "_train", full)
    with pytest.raises(TrainingError) as caught:
        engine.run(small.recipe(), small.images(), tmp_path / "run")
    assert str(caught.value) == (
        "The GPU's memory does not suffice (CUDA out of memory); leave more of it to this run, or "
        "lower its need (accumulate, options.max_branches)."
    )
