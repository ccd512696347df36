import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision.models import alexnet

import bne
from bne import models
from bne.errors import SettingsError
from bne.models import registry
from bne.models.networks import alexnet_cvgj, from_caffe
from tests.models.caffe_schema import messages

CONVOLUTIONS = [f"features.{i}.{p}" for i in (0, 3, 6, 8, 10) for p in ("weight", "bias")]


@pytest.fixture(scope="module")
def reference() -> nn.Module:
    return alexnet(num_classes=10).eval()


def test_is_torchvisions_alexnet_but_for_batch_norm(reference: nn.Module) -> None:
    model = models.build("alexnet_bn", num_classes=10).eval()
    missing, unexpected = model.load_state_dict(reference.state_dict(), strict=False)
    assert not unexpected
    parts = ("weight", "bias", "running_mean", "running_var")
    assert set(missing) == {f"features.bn{i}.{part}" for i in range(1, 6) for part in parts}
    kinds = [type(layer) for layer in model.features]
    for position, kind in enumerate(kinds):
        if kind is nn.Conv2d:
            assert kinds[position + 1 : position + 3] == [nn.BatchNorm2d, nn.ReLU]
            model.features[position + 1].eps = 1e-30  # statistics 0 and 1: now the identity
    images = torch.randn(2, 3, 227, 227)
    torch.testing.assert_close(model(images), reference(images))


def test_weights_of_convolutions_alone_fit(
    reference: nn.Module, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = {name: reference.state_dict()[name].half() for name in CONVOLUTIONS}
    save_file(state, tmp_path / "convolutions.safetensors")
    with caplog.at_level(logging.WARNING):
        model = models.build("alexnet_bn", 7, weights=tmp_path / "convolutions.safetensors")
    assert "features.bn1.running_mean" in caplog.text
    assert "features.bn1.running_mean" in models.origin(model).fresh
    assert not set(CONVOLUTIONS) & set(models.origin(model).fresh)
    assert models.origin(model).unused == ()
    assert model.features[0].weight.dtype is torch.float32
    assert torch.equal(model.features[0].weight, state["features.0.weight"].float())

    del state["features.0.bias"]
    save_file(state, tmp_path / "partial.safetensors")
    with pytest.raises(SettingsError, match=r"partial.safetensors .*'features.0.bias' is missing"):
        models.build("alexnet_bn", 7, weights=tmp_path / "partial.safetensors")


def test_whole_torchvision_weights_fit(reference, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchvision.models._api.load_state_dict_from_url", lambda *_, **__: reference.state_dict()
    )
    model = models.build("alexnet_bn", num_classes=7, weights="torchvision")
    assert torch.equal(model.classifier[1].weight, reference.classifier[1].weight)
    assert set(models.origin(model).unused) == {"classifier.6.weight", "classifier.6.bias"}


def test_published_imagenet_convolutions_fit(shared: Path) -> None:
    path = shared / "weights" / "alexnet_imagenet_conv.safetensors"
    model = models.build("alexnet_bn", num_classes=7, weights=path)
    state = model.state_dict()
    assert all(torch.equal(state[k], tensor.float()) for k, tensor in load_file(path).items())


CHANNELS, HIDDEN, CLASSES = (8, 8, 12, 12, 8), 16, 5
Layers = dict[str, list[Tensor]]


@pytest.fixture(scope="module")
def layers() -> Layers:
    """A small AlexNet_cvgj as Caffe stores it: BGR, statistics times their scale factor."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def norm(channels: int, factor: float, size: float = 1.0) -> list[Tensor]:
        variance = size**2 * (0.5 + torch.rand(channels, generator=generator))
        return [factor * size * normal(channels), factor * variance, torch.tensor([factor])]

    c1, c2, c3, c4, c5 = CHANNELS
    layers = {
        "data/bn": norm(3, factor=999.98, size=100),
        "data/scale": [normal(3), normal(3)],
        "conv1": [normal(c1, 3, 11, 11) / 19, normal(c1)],
        "conv2": [normal(c2, c1 // 2, 5, 5) / 10, normal(c2)],
        "conv3": [normal(c3, c2, 3, 3) / 8, normal(c3)],
        "conv4": [normal(c4, c3 // 2, 3, 3) / 7, normal(c4)],
        "conv5": [normal(c5, c4 // 2, 3, 3) / 7, normal(c5)],
        "fc6": [normal(HIDDEN, c5 * 36) / 17, normal(HIDDEN)],
        "fc7": [normal(HIDDEN, HIDDEN) / 4, normal(HIDDEN)],
        "fc8": [normal(CLASSES, HIDDEN) / 4, normal(CLASSES)],
    }
    for index, channels in enumerate(CHANNELS, start=1):
        layers[f"conv{index}/bn"] = norm(channels, factor=2.0 * index)
    layers["fc6/bn"], layers["fc7/bn"] = norm(HIDDEN, factor=3.0), norm(HIDDEN, factor=0.5)
    return layers


def caffe_forward(layers: Layers, bgr: Tensor, until: str = "fc8") -> Tensor:
    """The published network, layer by layer, in Caffe's own terms."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance, factor = layers[name]
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x - (mean / factor).view(shape)) / (variance / factor + 1e-5).sqrt().view(shape)

    def conv(x: Tensor, name: str, group: int = 1, stride: int = 1, pad: int = 0) -> Tensor:
        weight, bias = layers[name]
        parts = zip(x.chunk(group, 1), weight.chunk(group), bias.chunk(group), strict=True)
        y = torch.cat([F.conv2d(*part, stride=stride, padding=pad) for part in parts], dim=1)
        return norm(y, f"{name}/bn").clamp(min=0)

    def pool(x: Tensor) -> Tensor:
        return x.unfold(2, 3, 2).unfold(3, 3, 2).amax(dim=(4, 5))

    scale, bias = layers["data/scale"]
    x = norm(bgr, "data/bn") * scale.view(1, 3, 1, 1) + bias.view(1, 3, 1, 1)
    x = pool(conv(x, "conv1", stride=4))
    x = pool(conv(x, "conv2", group=2, pad=2))
    x = conv(x, "conv3", pad=1)
    x = conv(x, "conv4", group=2, pad=1)
    x = pool(conv(x, "conv5", group=2, pad=1)).flatten(1)
    for name in ("fc6", "fc7"):
        weight, bias = layers[name]
        x = norm(x @ weight.T + bias, f"{name}/bn").clamp(min=0)
    weight, bias = layers["fc8"]
    return x if until == "fc7" else x @ weight.T + bias


def small_network(num_classes: int) -> nn.Sequential:
    return alexnet_cvgj(num_classes, channels=CHANNELS, hidden=HIDDEN)


@pytest.fixture(scope="module")
def rgb() -> Tensor:
    return torch.randint(0, 256, (2, 3, 227, 227), generator=torch.Generator().manual_seed(1)) * 1.0


def test_converted_network_computes_what_caffe_computes(layers: Layers, rgb: Tensor) -> None:
    network = small_network(CLASSES).eval()
    missing, unexpected = network.load_state_dict(from_caffe(layers), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing)
    assert not unexpected
    expected = caffe_forward(layers, rgb.flip(1))
    assert expected.std() > 0.1
    torch.testing.assert_close(network(rgb), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("legacy", [False, True])
def test_build_reads_a_caffemodel(legacy, layers, rgb, tmp_path: Path, monkeypatch) -> None:
    caffe = messages()
    net = caffe.NetParameter(name="AlexNet")
    for name, blobs in layers.items():
        layer = net.layers.add(name=name) if legacy else net.layer.add(name=name)
        for blob in blobs:
            if legacy:
                n, c, h, w = (1,) * (4 - blob.ndim) + tuple(blob.shape)
                shape = {"num": n, "channels": c, "height": h, "width": w}
            else:
                shape = {"shape": {"dim": blob.shape}}
            layer.blobs.add(data=blob.flatten().tolist(), **shape)
    path = tmp_path / "small.caffemodel"
    path.write_bytes(net.SerializeToString())
    small = replace(registry.find("alexnet_cvgj"), create=small_network)
    monkeypatch.setitem(registry._BACKBONES, "alexnet_cvgj", small)

    network = models.build("alexnet_cvgj", 3, weights=path).eval()
    assert models.origin(network).fresh == models.origin(network).unused
    assert set(models.origin(network).fresh) == {"fc8.weight", "fc8.bias"}

    needs = models.preprocessing(network)
    mean, std = torch.tensor([needs.mean, needs.std]).view(2, 3, 1, 1)
    inputs = (rgb / 255 - mean) / std
    features = network[:-1](inputs)
    expected = caffe_forward(layers, rgb.flip(1), until="fc7")
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    assert network(inputs).shape == (2, 3)


def test_statistics_never_updated_are_zero(layers: Layers) -> None:
    zero = torch.zeros(1)
    state = from_caffe({**layers, "conv1/bn": [*layers["conv1/bn"][:2], zero]})
    assert not state["conv1_bn.running_mean"].any()
    assert not state["conv1_bn.running_var"].any()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"conv3": []}, "'conv3' has 0 blobs instead of 2"),
        ({"conv3/bn": [torch.ones(12)] * 2}, "'conv3/bn' has 2 blobs instead of 3"),
        ({"conv3/bn": [torch.ones(12)] * 3}, r"shape \(12,\) should have 0 axes"),
        ({"conv1": [torch.ones(8), torch.ones(8)]}, r"shape \(8,\) should have 4 axes"),
        ({"fc9": [torch.ones(1)]}, "has no layer 'fc9'"),
    ],
)
def test_other_networks_are_refused(layers: Layers, change: Layers, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_caffe({**layers, **change})


def test_full_size_is_the_published_one() -> None:
    with torch.device("meta"):
        network = models.build("alexnet_cvgj", num_classes=1000)
    parameters = sum(p.numel() for p in network.parameters())
    # 60,965,224 is AlexNet's count in Caffe; the input's scale and bias add 6.
    assert parameters == 60_965_224 + 6
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert [norm.affine for norm in norms] == [True] + [False] * 7
    assert network(torch.empty(2, 3, 227, 227, device="meta")).shape == (2, 1000)


def test_takes_the_images_it_says_and_gives_logits() -> None:
    model = models.build("small_cnn", num_classes=7)
    size = models.preprocessing(model).size
    assert model(torch.randn(4, 3, size, size)).shape == (4, 7)
    assert isinstance(model.fc, nn.Linear)


def test_every_convolution_is_normalised() -> None:
    kinds = [type(layer) for layer in models.build("small_cnn", num_classes=10)]
    convolutions = [place for place, kind in enumerate(kinds) if kind is nn.Conv2d]
    assert len(convolutions) == 4
    for place in convolutions:
        assert kinds[place + 1 : place + 3] == [nn.BatchNorm2d, nn.ReLU]


def test_every_batch_norm_layer_is_in_the_embedding() -> None:
    net = bne.convert(models.build("small_cnn", num_classes=10), ["a", "b", "c"]).eval()
    prediction = net(torch.randn(5, 3, 32, 32), details=True)
    assert prediction.branch_logits.shape == (5, 3, 10)
    assert list(prediction.embedding.layers) == ["bn1", "bn2", "bn3", "bn4"]


def test_learns() -> None:
    """Which corner of an image is bright: the mean over places alone would not tell."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(12)
    images = torch.randn(48, 3, 32, 32, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = 16 * (label // 2), 16 * (label % 2)
        image[:, top : top + 16, left : left + 16] += 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.build("small_cnn", num_classes=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    assert (model(images).argmax(1) == labels).float().mean() > 0.95
