"""Optimisers as recipes describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bne.models import Origin
from bne.models.registry import find

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.engine.recipe import Optimiser


def make_optimiser(
    method: nn.Module, settings: Optimiser, device: torch.device
) -> torch.optim.Optimizer:
    """An optimiser of all parameters that are to be trained.

    On a GPU its steps can be recorded in a CUDA graph: learning rates are tensors there.

    Args:
        method: with a network from `bne.models.build` inside.
        settings: of the optimiser; the learning rate is set before every step.
        device: of the parameters.
    """
    trained = [p for p in method.parameters() if p.requires_grad]
    classifier = classifier_parameters(method)
    body = [p for p in trained if p not in classifier]
    head = [p for p in trained if p in classifier]
    groups: list[dict[str, Any]] = [
        {"params": parameters, "factor": factor, "lr": _zero(device)}
        for parameters, factor in ((body, 1.0), (head, settings.head_factor))
        if parameters
    ]
    graphable = device.type == "cuda"
    if settings.name == "sgd":
        sgd = torch.optim.SGD(
            groups,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=graphable or None,
        )
        if settings.momentum:
            # torch would start with the first gradient, which comes to the same, but the fused
            # one cannot where a parameter gets its first gradient later than others.
            for parameter in trained:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(
        groups, weight_decay=settings.weight_decay, capturable=graphable, fused=graphable or None
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate; the last layer's is as much larger as the recipe says."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["factor"])
        else:
            group["lr"] = rate * group["factor"]


def classifier_parameters(method: nn.Module) -> set[nn.Parameter]:
    """The parameters of the last layers of the networks inside a method."""
    return {
        parameter
        for network in method.modules()
        if isinstance(record := getattr(network, "origin", None), Origin)
        for layer in find(record.backbone).classifier
        for parameter in network.get_submodule(layer).parameters()
    }


def optimiser_tensors(optimiser: torch.optim.Optimizer, method: nn.Module) -> dict[str, Tensor]:
    """What the optimiser remembers of each parameter, as `key/parameter`."""
    return {
        f"{key}/{name}": value
        for name, parameter in method.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
        if value is not None
    }


def load_optimiser_tensors(
    optimiser: torch.optim.Optimizer, method: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Takes over what `optimiser_tensors` gave."""
    names = {parameter: name for name, parameter in method.named_parameters()}
    remembered: dict[str, dict[str, Tensor]] = {name: {} for name in names.values()}
    for place, value in tensors.items():
        key, name = place.split("/", 1)
        remembered[name][key] = value
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state = {
        number: {key: _laid_out_like(p, value) for key, value in remembered[names[p]].items()}
        for number, p in enumerate(parameters)
        if remembered[names[p]]
    }
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def _laid_out_like(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """A fused step wants all its tensors laid out in memory as the parameter is."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _zero(device: torch.device) -> Tensor | float:
    return torch.zeros((), device=device) if device.type == "cuda" else 0.0
