from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bne.models.weights import read_caffemodel
from tests.models.caffe_schema import messages

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
