import logging

import pytest
import torch
from torch import nn

from bne.models.build import load
from bne.models.registry import Backbone, Preprocessing


def create(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, num_classes))


BACKBONE = Backbone(create, classifier=("2",), preprocessing=Preprocessing(size=1))
NORM_OPTIONAL = Backbone(create, ("2",), Preprocessing(size=1), optional=("1.",))


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {name: torch.rand_like(tensor * 1.0) for name, tensor in create(5).state_dict().items()}


@pytest.mark.parametrize("num_classes", [2, 5])
def test_loads_all_but_the_classifier(state, num_classes: int) -> None:
    model = create(num_classes)
    head = model[2].weight.clone()
    fresh, unused = load(model, BACKBONE, state, "file")
    assert fresh == unused == ("2.weight", "2.bias")
    assert torch.equal(model[2].weight, head)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_var"):
        assert torch.equal(model.state_dict()[name], state[name])


def test_casts_to_the_precision_of_the_model(state) -> None:
    model = create(2).double()
    load(model, BACKBONE, {name: tensor.half() for name, tensor in state.items()}, "file")
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
    with pytest.raises(ValueError, match=f"some.pth does not fit the network: .*{reason}"):
        load(model, BACKBONE, changed, "some.pth")
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_counters_of_batches_may_be_absent(state) -> None:
    del state["1.num_batches_tracked"]
    fresh, _ = load(create(2), BACKBONE, state, "file")
    assert fresh == ("2.weight", "2.bias")


def test_absent_optional_tensors_are_reported(state, caplog: pytest.LogCaptureFixture) -> None:
    norm = [name for name in state if name.startswith("1.")]
    with caplog.at_level(logging.WARNING):
        load(create(2), NORM_OPTIONAL, state, "file")
    assert not caplog.records
    for name in norm:
        del state[name]
    with caplog.at_level(logging.WARNING):
        fresh, _ = load(create(2), NORM_OPTIONAL, state, "file")
    assert fresh[:4] == ("1.weight", "1.bias", "1.running_mean", "1.running_var")
    assert "file lacks 1.weight, 1.bias, 1.running_mean, 1.running_var" in caplog.text
