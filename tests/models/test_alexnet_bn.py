import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torchvision.models import alexnet

from bne import models

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
    with pytest.raises(ValueError, match=r"partial.safetensors .*'features.0.bias' is missing"):
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
