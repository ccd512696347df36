from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from bne import models
from bne.models import registry

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
    backbone = registry.find(name)
    assert backbone is not None
    model = backbone.create(512)
    for path in backbone.classifier:
        layer = model.get_submodule(path)
        bound = layer.weight[0].numel() ** -0.5
        for values in (layer.weight, layer.bias):
            assert 0.95 * bound < values.abs().max() <= bound


def test_networks_that_are_no_classifiers_are_refused() -> None:
    with pytest.raises(ValueError, match="no classifier of square images"):
        registry.find("vit_base_patch16_sapiens2")


def test_encoders_that_name_a_classifier_but_have_none_are_refused() -> None:
    with pytest.raises(ValueError, match="mobilenetv5_300m_enc is no classifier"), META:
        models.build("timm/mobilenetv5_300m_enc", 7)
