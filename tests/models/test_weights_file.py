import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bne.models.registry import find
from bne.models.weights import read_weights

STATE = {"a.weight": torch.arange(300.0), "a.bias": torch.ones(2)}


def same(read: dict[str, Tensor]) -> bool:
    return read.keys() == STATE.keys() and all(torch.equal(read[k], STATE[k]) for k in STATE)


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {"state_dict": STATE, "epoch": 3, "optimizer": {"lr": 0.1}},
        {"model": STATE},
        {"state_dict": {f"module.{name}": tensor for name, tensor in STATE.items()}},
    ],
)
@pytest.mark.parametrize("suffix", [".pth", ".pt"])
def test_reads_state_dicts_however_wrapped(tmp_path: Path, content, suffix: str) -> None:
    torch.save(content, tmp_path / f"weights{suffix}")
    assert same(read_weights(tmp_path / f"weights{suffix}", find("resnet18")))


def test_reads_safetensors(tmp_path: Path) -> None:
    save_file(STATE, tmp_path / "weights.safetensors")
    assert same(read_weights(tmp_path / "weights.safetensors", find("resnet18")))


class Malice:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_code_in_a_pickle_never_runs(tmp_path: Path, writer: str) -> None:
    path, marker = tmp_path / "weights.pth", tmp_path / "owned"
    content = {"state_dict": {**STATE, "x": Malice(marker)}}
    if writer == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*never unpickled"):
        read_weights(path, find("resnet18"))
    assert not marker.exists()
    if writer == "pickle":  # the file is indeed a live one
        pickle.loads(path.read_bytes())
        assert marker.exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".caffemodel"])
@pytest.mark.parametrize("kept", [0, 0.1, 0.5, 0.99])
def test_truncated_files_are_named(tmp_path: Path, suffix: str, kept: float) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(STATE, path)
    elif suffix == ".pth":
        torch.save(STATE, path)
    else:
        path.write_bytes(b"\x0a\x7f" + bytes(127) + b"\xa2\x06\x7f" + bytes(127))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=re.escape(str(path)) + " cannot be used as weights: it "):
        read_weights(path, find("alexnet_cvgj"))


@pytest.mark.parametrize(
    "content", [[1, 2], {"a": 1}, {1: torch.ones(2)}, torch.ones(2), {"state_dict": [1]}]
)
def test_a_file_without_state_dict_is_named(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"weights\.pt .*holds no state dict"):
        read_weights(tmp_path / "weights.pt", find("resnet18"))


def test_missing_files_and_unknown_kinds_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "no.pth"))):
        read_weights(tmp_path / "no.pth", find("resnet18"))
    with pytest.raises(ValueError, match=r"weights 'imagenet' are neither .*\.safetensors, \.pth"):
        read_weights(Path("imagenet"), find("resnet18"))


def test_caffe_weights_fit_one_network_only(tmp_path: Path) -> None:
    (tmp_path / "net.caffemodel").write_bytes(b"")
    with pytest.raises(ValueError, match=r"net\.caffemodel .*alexnet_cvgj only"):
        read_weights(tmp_path / "net.caffemodel", find("resnet18"))
