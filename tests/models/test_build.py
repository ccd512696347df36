import copy
import logging
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

from bne import models
from bne.errors import SettingsError
from bne.models import Preprocessing
from bne.models.build import load
from bne.models.registry import Backbone, terms_of


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


def test_weights_from_torchvision(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    reference = torchvision.models.resnet18()
    calls = []

    def fetch(url: str, **options: object) -> dict[str, torch.Tensor]:
        calls.append((url, options["weights_only"], options["check_hash"]))
        return dict(reference.state_dict())

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    built = models.build("resnet18", num_classes=1000, weights="torchvision")
    assert calls == [(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url, True, True)]
    assert terms_of("resnet18", "torchvision") in caplog.messages
    assert not torch.equal(built.fc.weight, reference.fc.weight)  # ImageNet's is never kept
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(features(built, images), features(reference, images))


def test_failed_downloads_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetch)
    with pytest.raises(SettingsError, match=r"weights of resnet18 .* from torchvision.*no route"):
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
    with pytest.raises(SettingsError, match=f"{weights} has no weights for {name}: {advice}"):
        models.build(name, 7, weights=weights)


def test_classifiers_need_classes() -> None:
    with pytest.raises(SettingsError, match="num_classes is 0"):
        models.build("resnet18", num_classes=0)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save(torchvision.models.resnet34().state_dict(), tmp_path / "r34.pth")
    with pytest.raises(SettingsError, match=r"r34.pth does not fit .* is unknown to it"):
        models.build("resnet18", 7, weights=str(tmp_path / "r34.pth"))


def test_input_needs_travel_with_the_network() -> None:
    network = models.build("resnet18", num_classes=2)
    expected = Preprocessing(size=224)
    assert models.preprocessing("resnet18") == expected
    assert models.preprocessing(network) == expected
    assert models.preprocessing(nn.Sequential(copy.deepcopy(network))) == expected


def test_each_backbone_has_its_own_needs() -> None:
    assert models.preprocessing("alexnet_bn") == Preprocessing(size=227)
    caffe = models.preprocessing("alexnet_cvgj")
    assert (caffe.size, caffe.mean, caffe.std) == (227, (0, 0, 0), (1 / 255,) * 3)


def test_random_weights_are_all_fresh() -> None:
    network = models.build("resnet18", num_classes=2)
    origin = models.origin(network)
    assert (origin.backbone, origin.weights, origin.unused) == ("resnet18", None, ())
    assert set(origin.fresh) == set(network.state_dict())


def test_other_networks_have_no_origin() -> None:
    with pytest.raises(SettingsError, match=r"not built by bne\.models\.build"):
        models.preprocessing(nn.Linear(1, 1))


def create(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, num_classes))


BACKBONE = Backbone(create, classifier=("2",), preprocessing=Preprocessing(size=1))
NORM_OPTIONAL = Backbone(create, ("2",), Preprocessing(size=1), optional=("1.",))


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {name: torch.rand_like(tensor * 1.0) for name, tensor in create(5).state_dict().items()}


@pytest.mark.parametrize(("num_classes", "keep"), [(2, False), (2, True), (5, False)])
def test_loads_all_but_the_classifier(state, num_classes: int, keep: bool) -> None:
    model = create(num_classes)
    head = model[2].weight.clone()
    fresh, unused = load(model, BACKBONE, state, "file", keep_classifier=keep)
    assert fresh == unused == ("2.weight", "2.bias")
    assert torch.equal(model[2].weight, head)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_var"):
        assert torch.equal(model.state_dict()[name], state[name])


def test_a_file_with_as_many_classes_keeps_its_classifier(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own, images = models.build("small_cnn", num_classes=4).eval(), torch.randn(2, 3, 32, 32)
    torch.save(own.state_dict(), tmp_path / "own.pt")
    again = models.build("small_cnn", num_classes=4, weights=tmp_path / "own.pt").eval()
    assert torch.equal(again(images), own(images))
    assert models.origin(again).fresh == models.origin(again).unused == ()
    assert "own.pt is kept" in caplog.text
    caplog.clear()
    other = models.build("small_cnn", num_classes=5, weights=tmp_path / "own.pt").eval()
    assert other(images).shape == (2, 5)
    assert len(models.origin(other).fresh) == 2
    assert not caplog.records


def test_a_damaged_classifier_is_refused(state) -> None:
    state["2.bias"][0] = torch.nan
    with pytest.raises(SettingsError, match=r"'2.bias' has .* not finite"):
        load(create(5), BACKBONE, state, "file", keep_classifier=True)


def test_casts_to_the_precision_of_the_model(state) -> None:
    model = create(2).double()
    load(
        model,
        BACKBONE,
        {name: tensor.half() for name, tensor in state.items()},
        "file",
        keep_classifier=True,
    )
    assert model[0].weight.dtype is torch.float64
    assert torch.equal(model[0].weight, state["0.weight"].half().double())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"0.weight": None}, "tensor '0.weight' is missing"),
        ({"1.running_mean": None}, "tensor '1.running_mean' is missing"),
        ({"0.wieght": torch.ones(1)}, "tensor '0.wieght' is unknown to it"),
        ({"0.bias": torch.ones(7)}, r"'0.bias' has shape \(7,\) instead of \(3,\)"),
        ({"0.weight": None, "0.bias": None}, r"'0.weight' is missing \(and 1 more\)"),
        ({"1.running_var": torch.tensor([1, torch.nan, 1])}, "'1.running_var' has .* not finite"),
        ({"0.bias": torch.tensor([1, 1, 1e300]).double()}, "'0.bias' has .* not finite"),
    ],
)
def test_whatever_else_does_not_fit_is_an_error(state, change, reason: str) -> None:
    changed = {name: tensor for name, tensor in {**state, **change}.items() if tensor is not None}
    model = create(2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(SettingsError, match=f"some.pth does not fit the network: .*{reason}"):
        load(model, BACKBONE, changed, "some.pth", keep_classifier=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_counters_of_batches_may_be_absent(state) -> None:
    del state["1.num_batches_tracked"]
    fresh, _ = load(create(2), BACKBONE, state, "file", keep_classifier=True)
    assert fresh == ("2.weight", "2.bias")


def test_absent_optional_tensors_are_reported(state, caplog: pytest.LogCaptureFixture) -> None:
    norm = [name for name in state if name.startswith("1.")]
    with caplog.at_level(logging.WARNING):
        load(create(2), NORM_OPTIONAL, state, "file", keep_classifier=True)
    assert not caplog.records
    for name in norm:
        del state[name]
    with caplog.at_level(logging.WARNING):
        fresh, _ = load(create(2), NORM_OPTIONAL, state, "file", keep_classifier=True)
    assert fresh[:4] == ("1.weight", "1.bias", "1.running_mean", "1.running_var")
    assert "file lacks 1.weight, 1.bias, 1.running_mean, 1.running_var" in caplog.text
