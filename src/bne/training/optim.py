"""How weights follow gradients: learning rates, optimizers, averages of weights."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn, get_swa_multi_avg_fn

from bne.models import classifier_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bne.recipes.schema import Averaging, HeadPhase, Optimiser, Phase


def learning_rate(phase: HeadPhase | Phase, step: int, steps_per_epoch: int) -> float:
    """The learning rate of all layers but the last, after so many steps of the phase."""
    start = phase.optimiser.learning_rate
    match phase.schedule.name:
        case "constant":
            return start
        case "cosine":
            return start / 2 * (1 + math.cos(math.pi * step / (phase.epochs * steps_per_epoch)))
        case "exponential":
            return start * phase.schedule.decay ** (step // steps_per_epoch)


def make_optimiser(
    method: nn.Module, settings: Optimiser, device: torch.device
) -> torch.optim.Optimizer:
    """An optimizer of all parameters that are to be trained, of networks of `bne.models.build`.

    The learning rate is set before every step; on a GPU it is a tensor, so that steps can be
    recorded in a CUDA graph.
    """
    trained = [p for p in method.parameters() if p.requires_grad]
    classifier = classifier_parameters(method)
    body = [p for p in trained if p not in classifier]
    head = [p for p in trained if p in classifier]
    graphable = device.type == "cuda"
    groups: list[dict[str, Any]] = [
        {"params": own, "factor": factor, "lr": torch.zeros((), device=device) if graphable else 0}
        for own, factor in ((body, 1.0), (head, settings.head_factor))
        if own
    ]
    common: dict[str, Any] = {"weight_decay": settings.weight_decay, "fused": graphable or None}
    if settings.name == "sgd":
        sgd = torch.optim.SGD(groups, momentum=settings.momentum, **common)
        if settings.momentum:
            # torch would start with the first gradient, which comes to the same, but the fused
            # one cannot where a parameter gets its first gradient later than others.
            for parameter in trained:
                sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, capturable=graphable, **common)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate; the last layer's is as much larger as the recipe says."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["factor"])
        else:
            group["lr"] = rate * group["factor"]


def optimiser_tensors(optimiser: torch.optim.Optimizer, method: nn.Module) -> dict[str, Tensor]:
    """What the optimizer remembers of each parameter, as `key/parameter`."""
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


class WeightAverage:
    """The average of a method's trained parameters, if the recipe wants one.

    Batch-norm statistics are not averaged: `PhaseTraining.averaged` measures them.

    Attributes:
        weights: the average, by the parameters' names; empty while there is none.
    """

    def __init__(
        self, method: nn.Module, settings: Averaging, epochs: int, steps_per_epoch: int
    ) -> None:
        self._current = {n: p for n, p in method.named_parameters() if p.requires_grad}
        self._settings = settings
        length = epochs * steps_per_epoch if settings.name == "dense" else epochs
        self._before_tail = length - max(1, round(length * settings.tail))
        self.weights: dict[str, Tensor] = {}
        if settings.name == "ema":
            self._start()

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Adds a step of the phase, whose number counts from 1, to an average of steps."""
        if self._settings.name == "ema":
            # Else a short run's average would be of its first weights.
            decay = min(self._settings.decay, (1 + step) / (10 + step))
            update = get_ema_multi_avg_fn(decay)
            update(list(self.weights.values()), list(self._current.values()), 0)
        elif self._settings.name == "dense":
            self._add(step)

    @torch.no_grad()
    def after_epoch(self, epoch: int) -> None:
        """Adds an epoch of the phase, whose number counts from 1, to an average of epochs."""
        if self._settings.name == "swa":
            self._add(epoch)

    def _add(self, number: int) -> None:
        """Adds the weights after an epoch or a step to the mean of the tail, if it is in it."""
        if number <= self._before_tail:
            return
        if not self.weights:
            self._start()
            return
        update, averaged = get_swa_multi_avg_fn(), number - self._before_tail - 1
        update(list(self.weights.values()), list(self._current.values()), averaged)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the method has the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def adopt(self) -> None:
        """Gives the method the averaged weights for good."""
        for name, value in self.weights.items():
            self._current[name].copy_(value)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Takes over what `weights` was."""
        self.weights = {
            name: torch.empty_like(own).copy_(weights[name])
            for name, own in self._current.items()  # in the order of the parameters
            if name in weights
        }

    @torch.no_grad()
    def _swap(self) -> None:
        # By value: a recorded step knows where the parameters lie.
        for name, value in self.weights.items():
            own = self._current[name]
            before = own.clone()
            own.copy_(value)
            value.copy_(before)

    def _start(self) -> None:
        self.weights = {name: own.detach().clone() for name, own in self._current.items()}
