import os
import pickle
import re
import struct
from pathlib import Path

import pytest
import torch
from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from bne.errors import SettingsError
from bne.models.registry import find
from bne.models.weights import fields, read_caffemodel, read_weights, varints
from tests.models.caffe_schema import messages

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
    with pytest.raises(SettingsError, match=re.escape(str(path)) + ".*never unpickled"):
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
    with pytest.raises(SettingsError, match=re.escape(f"{path} cannot be used as weights: it ")):
        read_weights(path, find("alexnet_cvgj"))


@pytest.mark.parametrize(
    "content", [[1, 2], {"a": 1}, {1: torch.ones(2)}, torch.ones(2), {"state_dict": [1]}]
)
def test_a_file_without_state_dict_is_named(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(SettingsError, match=r"weights\.pt .*holds no state dict"):
        read_weights(tmp_path / "weights.pt", find("resnet18"))


def test_missing_files_and_unknown_kinds_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(str(tmp_path / "no.pth"))):
        read_weights(tmp_path / "no.pth", find("resnet18"))
    with pytest.raises(SettingsError, match=r"'imagenet' are neither .*\.safetensors, \.pth"):
        read_weights(Path("imagenet"), find("resnet18"))


def test_caffe_weights_fit_one_network_only(tmp_path: Path) -> None:
    (tmp_path / "net.caffemodel").write_bytes(b"")
    with pytest.raises(SettingsError, match=r"net\.caffemodel .*alexnet_cvgj only"):
        read_weights(tmp_path / "net.caffemodel", find("resnet18"))


CAFFE = messages()


def write(path: Path, net) -> Path:
    path.write_bytes(net.SerializeToString())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "net.caffemodel"


@pytest.mark.parametrize("packed", [True, False])
def test_reads_layers(file: Path, packed: bool) -> None:
    caffe = messages(packed)
    net = caffe.NetParameter(name="net")
    net.layer.add(name="input", type="Input", phase=1)
    conv = net.layer.add(name="conv", type="Convolution", loss_weight=[0.5])
    conv.blobs.add(data=range(24), diff=[9] * 24, shape={"dim": [4, 3, 2, 1]})
    conv.blobs.add(double_data=[0.5, 1 / 3], shape={"dim": [2]})
    layers = read_caffemodel(write(file, net))
    assert list(layers) == ["conv"]
    weight, bias = layers["conv"]
    assert torch.equal(weight, torch.arange(24.0).reshape(4, 3, 2, 1))
    assert torch.equal(bias, torch.tensor([0.5, 1 / 3]))


def test_reads_v1_layers_with_four_axes(file: Path) -> None:
    net = CAFFE.NetParameter()
    layer = net.layers.add(name="fc", type=14)
    layer.blobs.add(data=range(6), num=1, channels=1, height=2, width=3)
    (weight,) = read_caffemodel(write(file, net))["fc"]
    assert torch.equal(weight, torch.arange(6.0).reshape(1, 1, 2, 3))


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        ({"data": [1, 2], "shape": {"dim": [3]}}, r"shape \[3\] with 8 bytes"),
        ({"data": [1, 2], "shape": {"dim": [-1, -2]}}, "with 8 bytes"),
        ({"data": [1], "shape": {"dim": [2**62, 2**62]}}, "with 4 bytes"),
        ({"data": [1], "shape": {"dim": [1] * 33}}, "more than 32 axes"),
        ({"data": [1, 2], "num": 2}, r"shape \[2, 0, 0, 0\]"),
        ({"shape": {"dim": [0]}}, "with 0 bytes"),
    ],
)
def test_refuses_blobs_whose_shape_is_not_that_of_their_values(file, blob, reason) -> None:
    net = CAFFE.NetParameter()
    net.layer.add(name="conv").blobs.add(**blob)
    with pytest.raises(ValueError, match=reason):
        read_caffemodel(write(file, net))


def test_refuses_files_without_weights_and_repeated_layers(file: Path) -> None:
    net = CAFFE.NetParameter(name="empty")
    with pytest.raises(ValueError, match="no layer with weights"):
        read_caffemodel(write(file, net))
    for _ in range(2):
        net.layer.add(name="conv").blobs.add(data=[1], shape={"dim": [1]})
    with pytest.raises(ValueError, match="two layers named 'conv'"):
        read_caffemodel(write(file, net))


def test_every_truncation_within_a_layer_is_noticed(file: Path) -> None:
    net = CAFFE.NetParameter()
    net.layer.add(name="conv").blobs.add(data=range(8), shape={"dim": [8]})
    whole = net.SerializeToString()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"truncated|no layer"):
            read_caffemodel(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=40), at=st.integers(0, 60))
def test_damage_is_harmless(file: Path, noise: bytes, at: int) -> None:
    net = CAFFE.NetParameter()
    net.layer.add(name="conv").blobs.add(data=range(8), shape={"dim": [2, 4]})
    whole = net.SerializeToString()
    file.write_bytes(whole[:at] + noise + whole[at + len(noise) :])
    try:
        layers = read_caffemodel(file)
    except ValueError:
        return
    assert all(blob.numel() * 4 <= len(whole) + 40 for blobs in layers.values() for blob in blobs)


def read(message: bytes) -> list[tuple[int, int | bytes]]:
    return [
        (number, value if isinstance(value, int) else bytes(value))
        for number, value in fields(memoryview(message))
    ]


@given(st.integers(1, 2**64 - 1))
def test_varints_are_those_google_writes(value: int) -> None:
    message = wrappers_pb2.UInt64Value(value=value).SerializeToString()
    assert read(message) == [(1, value)]
    assert list(varints(memoryview(message[1:] * 3))) == [value] * 3


def test_other_wire_types_come_as_raw_bytes() -> None:
    double = wrappers_pb2.DoubleValue(value=1.5).SerializeToString()
    single = wrappers_pb2.FloatValue(value=-2.5).SerializeToString()
    text = wrappers_pb2.StringValue(value="σ").SerializeToString()
    assert read(double + single + text) == [
        (1, struct.pack("<d", 1.5)),
        (1, struct.pack("<f", -2.5)),
        (1, "σ".encode()),
    ]


def test_fields_keep_file_order_and_high_numbers() -> None:
    stamp = timestamp_pb2.Timestamp(seconds=7, nanos=9).SerializeToString()
    nested = struct_pb2.Value(struct_value={}).SerializeToString()
    assert read(stamp + nested) == [(1, 7), (2, 9), (5, b"")]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x0a\x05abc", "2 bytes of a field are missing"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc", "truncated"),  # claims 2**63 bytes
        (b"\x0d\x00\x00", "2 bytes of a field are missing"),
        (b"\x08\x80", "inside a number"),
        (b"\x08" + b"\x80" * 20, "inside a number"),
        (b"\x02\x00", "numbered 0"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_malformed_messages_are_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(message)
