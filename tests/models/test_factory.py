from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

from bne import models


def features(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    model.fc = nn.Identity()
    with torch.no_grad():
        return model.eval()(images)


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_resnets_are_torchvisions(name: str) -> None:
    with torch.device("meta"):
        built = models.build(name, num_classes=7)
        reference = getattr(torchvision.models, name)(num_classes=7)
    assert str(built) == str(reference)
    assert built.state_dict().keys() == reference.state_dict().keys()


def test_imagenet_weights_fit_but_for_the_classifier(shared: Path) -> None:
    path = shared / "weights" / "resnet18_imagenet.safetensors"
    reference = torchvision.models.resnet18()
    reference.load_state_dict(load_file(path), strict=False)
    built = models.build("resnet18", num_classes=7, weights=path)
    origin = models.origin(built)
    assert origin.weights == str(path)
    assert set(origin.fresh) == set(origin.unused) == {"fc.weight", "fc.bias"}
    assert built.fc.weight.shape == (7, 512)
    assert {parameter.dtype for parameter in built.parameters()} == {torch.float32}
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(features(built, images), features(reference, images))


def test_weights_from_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = torchvision.models.resnet18()
    calls = []

    def fetch(url: str, **options: object) -> dict[str, torch.Tensor]:
        calls.append((url, options["weights_only"], options["check_hash"]))
        return dict(reference.state_dict())

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    built = models.build("resnet18", num_classes=1000, weights="torchvision")
    assert calls == [(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url, True, True)]
    assert not torch.equal(built.fc.weight, reference.fc.weight)  # the classifier is always fresh
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(features(built, images), features(reference, images))


def test_failed_downloads_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    with pytest.raises(RuntimeError, match=r"weights of resnet18 .* from torchvision.*no route"):
        models.build("resnet18", 7, weights="torchvision")


@pytest.mark.parametrize(
    ("name", "weights", "advice"),
    [
        ("resnet18", "timm", 'give "torchvision" or a file'),
        ("timm/test_resnet", "torchvision", 'give "timm" or a file'),
        ("alexnet_cvgj", "torchvision", "give a file"),
    ],
)
def test_sources_without_such_weights_are_refused(name: str, weights: str, advice: str) -> None:
    with pytest.raises(ValueError, match=f"{weights} has no weights for {name}: {advice}"):
        models.build(name, 7, weights=weights)


def test_classifiers_need_classes() -> None:
    with pytest.raises(ValueError, match="num_classes is 0"):
        models.build("resnet18", num_classes=0)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "r34.pth")
    with pytest.raises(ValueError, match=r"r34.pth does not fit the network: .* is unknown to it"):
        models.build("resnet18", 7, weights=str(tmp_path / "r34.pth"))
