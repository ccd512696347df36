"""A method in one phase of training: its optimiser, its average and its steps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from bne.engine.averaging import WeightAverage
from bne.engine.errors import TrainingError
from bne.engine.graphs import GraphedStep
from bne.engine.optimisers import (
    load_optimiser_tensors,
    make_optimiser,
    optimiser_tensors,
    set_learning_rate,
)
from bne.engine.recipe import Averaging
from bne.engine.schedules import learning_rate
from bne.engine.statistics import SCORING_STEPS, draw, recompute
from bne.engine.step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from bne.data.feed import Batch
    from bne.engine.events import PhaseName
    from bne.engine.setting import Setting
    from bne.methods import Method

UNLABELLED = -100


class PhaseTraining:
    """All that changes while a method is trained.

    Args:
        setting: of the run.
        name: of the phase.
        method: what is trained.
        graphs: whether steps are recorded as CUDA graphs.

    Attributes:
        name: of the phase.
        method: what is trained.
        members: the numbers of the images of every domain of the present epoch's batches.
        settings: of the phase.
        average: of its weights.
        losses: (), the sum over the steps of the present epoch.
        rate: the last step's learning rate.
    """

    def __init__(self, setting: Setting, name: PhaseName, method: Method, *, graphs: bool) -> None:
        recipe = setting.recipe
        device = setting.processes.device
        self.name = name
        self.method = method.train()
        self.members: Mapping[str, Sequence[int]] = {}
        self.settings = recipe.head if name == "head" else recipe.train
        averaging = Averaging() if name == "head" else recipe.averaging
        self.average = WeightAverage(method, averaging, self.settings.epochs)
        self.losses = torch.zeros((), dtype=torch.double, device=device)
        self.rate = 0.0
        self._setting = setting
        self._graphs = graphs
        self._optimiser = make_optimiser(method, self.settings.optimiser, device)
        self._stage = ""
        self._step: TrainingStep | GraphedStep

    def begin_epoch(self, epoch: int) -> None:
        """Prepares the method for an epoch, or for the rest of one.

        Args:
            epoch: epochs of the phase before this one.

        Raises:
            TrainingError: The method can make no domains of the images.
        """
        method, setting = self.method, self._setting
        setting.seed("members", epoch)
        with torch.no_grad(), setting.autocast():
            try:
                members = dict(method.members(setting.train, epoch, setting.look))
            except ValueError as error:
                raise TrainingError(f"method {setting.recipe.method}: {error}.") from error
        if method.uses_target:
            members[setting.joined_target] = [n for ns in setting.target.values() for n in ns]
        self.members = members
        method.begin_epoch(epoch, self.settings.warm_up)
        method.train()
        if method.stage != self._stage:
            self._stage = method.stage
            self._step = self._make_step()

    def step(self, batch: Batch, phase_step: int) -> None:
        """Trains on one batch.

        Args:
            batch: of this process.
            phase_step: steps of the phase before this one.
        """
        setting = self._setting
        self.rate = learning_rate(self.settings, phase_step, setting.steps_per_epoch)
        set_learning_rate(self._optimiser, self.rate)
        setting.seed("step", batch.step, setting.processes.rank)
        labels = batch.labels
        if self.method.uses_target:
            labels = labels.masked_fill(batch.domains == len(self.members) - 1, UNLABELLED)
        self._step(batch.images, labels, batch.domains)
        self.average.after_step()

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the method is scored and kept: averaged, if the recipe wants it.

        Averaged weights have statistics of their own, since those that training tracks belong to
        other weights.
        """
        if not self.average.weights:
            yield
            return
        tracked = {name: value.clone() for name, value in self.method.named_buffers()}
        with self.average.applied():
            self.measure_statistics(SCORING_STEPS)
            yield
        for name, value in self.method.named_buffers():
            value.copy_(tracked[name])

    def adopt_average(self) -> None:
        """Leaves the method as `averaged` shows it, for good."""
        if self.average.weights:
            self.average.adopt()
            self.measure_statistics(SCORING_STEPS)

    def measure_statistics(self, steps: int | None = None) -> None:
        """Sets the running statistics to those of the training images, or of so many batches."""
        setting = self._setting
        per_domain = max(1, setting.recipe.per_domain // setting.recipe.accumulate)
        batches = list(draw(self.members, per_domain, setting.recipe.seed, steps))
        setting.seed("statistics")
        device = setting.processes.device
        recompute(self.method, batches, setting.inputs, device, setting.autocast)

    def is_finite(self) -> bool:
        """Whether all weights are numbers."""
        finite = [parameter.isfinite().all() for parameter in self.method.parameters()]
        return bool(torch.stack(finite).all())

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint must hold to go on from here."""
        parts = {
            "method": self.method.state_dict(),
            "optimiser": optimiser_tensors(self._optimiser, self.method),
            "average": self.average.weights,
            "losses": {"sum": self.losses},
        }
        return {
            f"{part}/{key}": value for part, found in parts.items() for key, value in found.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `tensors` gave, from any number of processes."""
        parts: dict[str, dict[str, Tensor]] = {
            part: {} for part in ("method", "optimiser", "average", "losses")
        }
        for name, value in tensors.items():
            part, key = name.split("/", 1)
            parts[part][key] = value
        self.method.load_state_dict(parts["method"])
        load_optimiser_tensors(self._optimiser, self.method, parts["optimiser"])
        self.average.load(parts["average"])
        self.losses.copy_(parts["losses"]["sum"])

    def _make_step(self) -> TrainingStep | GraphedStep:
        step = TrainingStep(
            self._setting.processes.share(self.method),
            self._optimiser,
            self.losses,
            clip=self.settings.optimiser.clip,
            accumulate=self._setting.recipe.accumulate,
            autocast=self._setting.autocast,
        )
        return GraphedStep(step, self._setting.processes.device) if self._graphs else step
