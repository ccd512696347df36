import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torchvision.models import ResNet18_Weights

from bne import models
from bne.errors import SettingsError
from bne.models import list_models, registry
from bne.models.registry import Preprocessing


def test_lists_own_names_and_timms() -> None:
    ours = ["resnet18", "resnet34", "resnet50", "alexnet_cvgj", "alexnet_bn"]
    assert list_models("*net*")[:5] == ours
    assert list_models("timm/*") == [f"timm/{name}" for name in timm.list_models()]


def test_timm_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    assert list_models("timm/*") == []


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("resnet81", "resnet18"),
        ("efficientnet_lite0", "timm/efficientnet_lite0"),
        ("timm/efficientnet_lit0", "timm/efficientnet_lite0"),
        ("timm/efficientnet_lite0.no_such_tag", "timm/efficientnet_lite0"),
        ("?", "resnet18, resnet34, resnet50, alexnet_cvgj, alexnet_bn"),
    ],
)
def test_unknown_names_get_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match="unknown backbone") as caught:
        registry.find(name)
    assert repr(name) in str(caught.value)
    assert nearest in str(caught.value)


def test_defaults_are_torchvisions_constants() -> None:
    published = ResNet18_Weights.IMAGENET1K_V1.transforms()
    preprocessing = Preprocessing(size=published.crop_size[0])
    assert list(preprocessing.mean) == published.mean
    assert list(preprocessing.std) == published.std
    with pytest.raises(FrozenInstanceError):
        preprocessing.size = 1  # type: ignore[misc]


def test_importing_models_imports_nothing_heavy_but_torch() -> None:
    code = (
        "import sys; from bne.models.registry import Preprocessing\n"
        "print(*{'torchvision', 'timm', 'safetensors', 'PIL', 'google.protobuf'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


NAME = "test_resnet"
META = torch.device("meta")  # where large networks take no memory


@pytest.fixture(scope="module")
def reference() -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model(NAME, num_classes=1000).eval()


def same_features(built: torch.nn.Module, reference: torch.nn.Module) -> bool:
    images = torch.randn(2, 3, 64, 64)
    return torch.equal(built.eval().forward_features(images), reference.forward_features(images))


def test_weights_from_a_file(reference: torch.nn.Module, tmp_path: Path) -> None:
    save_file(reference.state_dict(), tmp_path / "weights.safetensors")
    built = models.build(f"timm/{NAME}", 7, weights=tmp_path / "weights.safetensors")
    assert same_features(built, reference)
    assert models.origin(built).unused == ("fc.bias", "fc.weight")
    assert built(torch.randn(2, 3, 64, 64)).shape == (2, 7)


def test_weights_from_timm(reference, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def hub(name: str, *_: object, **__: object) -> dict[str, torch.Tensor]:
        asked.append(name)
        return dict(reference.state_dict())

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", hub)
    built = models.build(f"timm/{NAME}.r160_in1k", num_classes=1000, weights="timm")
    assert asked == [f"timm/{NAME}.r160_in1k"]
    assert same_features(built, reference)
    assert not torch.equal(built.fc.weight, reference.fc.weight)  # the classifier is always fresh


@pytest.mark.parametrize("name", [NAME, "tf_efficientnet_lite0.in1k", "mobilenetv3_small_050"])
def test_preprocessing_is_timms(name: str) -> None:
    config = timm.data.resolve_model_data_config(timm.create_model(name))
    preprocessing = models.preprocessing(f"timm/{name}")
    assert (3, preprocessing.size, preprocessing.size) == config["input_size"]
    assert preprocessing.mean == config["mean"]
    assert preprocessing.std == config["std"]


@pytest.mark.parametrize("name", ["test_vit", "test_efficientnet", "levit_128s", "test_nfnet"])
def test_classifiers_start_as_pytorch_starts_linear_layers(name: str) -> None:
    backbone = registry.find(f"timm/{name}")
    model = backbone.create(512)
    for path in backbone.classifier:
        layer = model.get_submodule(path)
        bound = layer.weight[0].numel() ** -0.5
        for values in (layer.weight, layer.bias):
            assert 0.95 * bound < values.abs().max() <= bound


def test_networks_that_are_no_classifiers_are_refused() -> None:
    if not timm.is_model("vit_base_patch16_sapiens2"):
        pytest.skip("this timm has no such network")
    with pytest.raises(SettingsError, match="no classifier of square images"):
        registry.find("timm/vit_base_patch16_sapiens2")


def test_encoders_that_name_a_classifier_but_have_none_are_refused() -> None:
    with pytest.raises(SettingsError, match="mobilenetv5_300m_enc is no classifier"), META:
        models.build("timm/mobilenetv5_300m_enc", 7)


def test_licenses_are_those_that_the_libraries_state() -> None:
    free, bound = "timm/resnet18.a1_in1k", "timm/resnet50.fb_swsl_ig1b_ft_in1k"
    for name in (free, bound):
        stated = timm.get_pretrained_cfg(name.removeprefix("timm/")).license
        assert stated in registry.terms_of(name, "timm")
    assert "license" not in ResNet18_Weights.IMAGENET1K_V1.meta  # else it should be told
    assert "no license" in registry.terms_of("resnet18", "torchvision")
    assert "yours to know" in registry.terms_of("resnet18", "own.safetensors")
