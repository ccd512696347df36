import pytest
import timm

from bne.models import list_models, registry


def test_lists_own_names_and_timms() -> None:
    assert list_models("*net*")[:5] == [
        "resnet18",
        "resnet34",
        "resnet50",
        "alexnet_cvgj",
        "alexnet_bn",
    ]
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
    with pytest.raises(ValueError, match="unknown backbone") as caught:
        registry.find(name)
    assert repr(name) in str(caught.value)
    assert nearest in str(caught.value)
