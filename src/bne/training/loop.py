"""The training loop: epochs of steps, with their records and checkpoints."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import torch

from bne.data.batches import draw, seed_of
from bne.errors import Interrupted, TrainingError
from bne.methods import DeepAll
from bne.models import classifier_parameters
from bne.recipes.schema import Averaging
from bne.training import scores as selection
from bne.training.events import Epoch, Step
from bne.training.optim import (
    WeightAverage,
    learning_rate,
    load_optimiser_tensors,
    make_optimiser,
    optimiser_tensors,
    set_learning_rate,
)
from bne.training.runtime import recompute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from bne.data.feed import Batch
    from bne.methods import Method
    from bne.training.checkpoints import Keeper
    from bne.training.environment import Interruption
    from bne.training.events import Listener, PhaseName, Progress
    from bne.training.folder import RunFolder
    from bne.training.runtime import Autocast, Runtime

SCORING_STEPS = 64
"""Batches of each domain that statistics for scoring are measured on."""

SHORT = 1000
"""Steps of training below which tracked statistics, which remember about 100, lag too far behind.

Of the runs behind docs/results.md only those on DSLR and webcam are as short; their tables show
exact statistics."""


def seed_generators(device: torch.device, *place: object) -> None:
    """Seeds the global generators of the CPU and the device by where they are drawn from."""
    seed = seed_of(*place)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


class Head(DeepAll):
    """A network from `bne.models.build`, of which only the classifier learns.

    Everything else is frozen, in evaluation mode: pretrained statistics, no dropout.
    """

    stage = "head"

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, ())
        classifier = classifier_parameters(model)
        self._frozen = [p for p in model.parameters() if p.requires_grad and p not in classifier]
        for parameter in self._frozen:
            parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of this method; the network stays in evaluation mode."""
        super().train(mode)
        self.net.eval()
        return self

    def release(self) -> nn.Module:
        """The network, all of it trainable again and in training mode."""
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        return self.net.train()


@dataclass(frozen=True)
class TrainingStep:
    """Takes one optimizer step per call, and never waits for the device.

    Attributes:
        model: gives the loss; a method, or one that several processes train.
        optimiser: of its parameters, with its learning rate set.
        losses: (), to which the loss of every step is added.
        clip: the largest norm of the gradient; None leaves it as it is.
        accumulate: into how many parts each domain batch is cut.
        autocast: makes the context in which the loss is computed.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    losses: Tensor
    clip: float | None = None
    accumulate: int = 1
    autocast: Autocast = nullcontext

    def __call__(self, images: Tensor, labels: Tensor, domains: Tensor) -> None:
        """Trains on (N, 3, H, W), normalized, as many of each domain, in domain order."""
        self.optimiser.zero_grad(set_to_none=True)
        for number in range(self.accumulate):
            # Every n-th image: as many of each domain.
            part = slice(number, None, self.accumulate)
            with self.autocast():
                loss = self.model(_rows(images, part), labels[part], domains[part])
            loss = loss / self.accumulate
            loss.backward()
            self.losses.add_(loss.detach())
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()


def _rows(images: Tensor, part: slice) -> Tensor:
    """Part of a batch, in the memory layout of the whole."""
    layout = torch.channels_last if images.ndim == 4 else torch.contiguous_format
    return images if part.step == 1 else images[part].contiguous(memory_format=layout)


WARM_UP = 3  # steps, so that libraries choose their algorithms before anything is recorded


class GraphedStep:
    """A training step that records itself after a few calls.

    The first calls are ordinary steps of training on a stream of their own, as recording demands;
    so nothing is computed that does not count. A step of another shape starts over. Everything
    that a step changes must stay where it is in memory.
    """

    def __init__(self, step: TrainingStep, device: torch.device) -> None:
        self._step = step
        self._side = torch.cuda.Stream(device)
        self._fixed: list[Tensor] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0

    def __call__(self, images: Tensor, labels: Tensor, domains: Tensor) -> None:
        """Trains on one batch, as `TrainingStep` does."""
        batch = (images, labels, domains)
        if [tensor.shape for tensor in self._fixed] != [tensor.shape for tensor in batch]:
            self._fixed = [tensor.clone() for tensor in batch]
            self._graph = None
            self._calls = 0
        for own, given in zip(self._fixed, batch, strict=True):
            own.copy_(given)
        self._calls += 1
        if self._calls <= WARM_UP:
            self._run_aside()
            return
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            # Other threads may read images and pin their memory meanwhile.
            with torch.cuda.graph(
                self._graph, stream=self._side, capture_error_mode="thread_local"
            ):
                self._step(*self._fixed)
        self._graph.replay()

    def _run_aside(self) -> None:
        here = torch.cuda.current_stream(self._side.device)
        self._side.wait_stream(here)
        with torch.cuda.stream(self._side):
            self._step(*self._fixed)
        here.wait_stream(self._side)


UNLABELLED = -100


class PhaseTraining:
    """All that changes while a method is trained.

    Attributes:
        members: the numbers of the images of every domain of the present epoch's batches.
        epochs: of the phase.
        average: of the method's weights.
        losses: (), the sum over the steps of the present epoch.
        rate: the last step's learning rate.
    """

    def __init__(self, runtime: Runtime, name: PhaseName, method: Method, *, graphs: bool) -> None:
        recipe = runtime.recipe
        self.name = name
        self.method = method.train()
        method.class_weights = runtime.class_weights
        method.label_smoothing = recipe.label_smoothing
        self.members: Mapping[str, Sequence[int]] = {}
        self._phase = recipe.head if name == "head" else recipe.train
        self.epochs = self._phase.epochs
        averaging = Averaging() if name == "head" else recipe.averaging
        self.average = WeightAverage(method, averaging, self.epochs, runtime.steps_per_epoch)
        self.losses = torch.zeros((), dtype=torch.double, device=runtime.device)
        self.rate = 0.0
        self._runtime = runtime
        self._graphs = graphs
        self._optimiser = make_optimiser(method, self._phase.optimiser, runtime.device)
        self._stage = ""
        self._step: TrainingStep | GraphedStep

    def begin_epoch(self, epoch: int) -> None:
        """Prepares the method for an epoch, or for the rest of one, after so many of the phase.

        Raises:
            TrainingError: The method can make no domains of the images.
        """
        method, runtime = self.method, self._runtime
        recipe, inputs = runtime.recipe, runtime.inputs
        seed_generators(runtime.device, recipe.seed, "members", epoch)
        with torch.no_grad(), runtime.autocast():
            try:
                members = dict(method.members(inputs.train, epoch, runtime.all_images))
            except ValueError as error:
                raise TrainingError(f"method {recipe.method}: {error}.") from error
        if method.uses_target:
            members[runtime.joined_target] = [n for ns in inputs.target.values() for n in ns]
        self.members = members
        method.begin_epoch(epoch, recipe.train.warm_up)
        method.train()
        if method.stage != self._stage:
            self._stage = method.stage
            self._step = self._make_step()

    def step(self, batch: Batch, phase_step: int) -> None:
        """Trains on one batch of this process, after so many steps of the phase."""
        runtime = self._runtime
        self.rate = learning_rate(self._phase, phase_step, runtime.steps_per_epoch)
        set_learning_rate(self._optimiser, self.rate)
        place = (runtime.inputs.recipe.seed, "step", batch.step, runtime.processes.rank)
        seed_generators(batch.images.device, *place)
        labels = batch.labels
        if self.method.uses_target:
            labels = labels.masked_fill(batch.domains == len(self.members) - 1, UNLABELLED)
        self._step(batch.images, labels, batch.domains)
        self.average.after_step(phase_step + 1)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """A context in which the method is scored and kept: averaged, if the recipe wants it.

        Averaged weights have statistics of their own, since those that training tracks belong to
        other weights. So has a short run, whose tracked statistics are mostly of older weights.
        """
        if not self._measures:
            yield
            return
        tracked = {name: value.clone() for name, value in self.method.named_buffers()}
        with self.average.applied() if self.average.weights else nullcontext():
            self.measure_statistics(SCORING_STEPS)
            yield
        for name, value in self.method.named_buffers():
            value.copy_(tracked[name])

    def adopt_average(self) -> None:
        """Leaves the method as `averaged` shows it, for good, or ready for exact statistics."""
        if self.average.weights:
            self.average.adopt()
        if self._measures and not self._runtime.recipe.exact_statistics:
            self.measure_statistics(SCORING_STEPS)

    @property
    def _measures(self) -> bool:
        """Whether statistics are measured whenever the method is scored or kept."""
        short = self.name == "train" and self.epochs * self._runtime.steps_per_epoch < SHORT
        return short or bool(self.average.weights)

    def measure_statistics(self, steps: int | None = None) -> None:
        """Sets the running statistics to those of the training images, or of so many batches."""
        runtime, recipe = self._runtime, self._runtime.recipe
        per_domain = max(1, recipe.per_domain // recipe.accumulate)
        batches = list(draw(self.members, per_domain, recipe.seed, steps, recipe.domains_per_step))
        seed_generators(runtime.device, recipe.seed, "statistics")
        recompute(
            self.method,
            batches,
            runtime.images,
            runtime.device,
            runtime.autocast,
            recipe.shrinkage,
        )

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
        runtime = self._runtime
        step = TrainingStep(
            runtime.processes.wrap(self.method),
            self._optimiser,
            self.losses,
            clip=self._phase.optimiser.clip,
            accumulate=runtime.recipe.accumulate,
            autocast=runtime.autocast,
        )
        return GraphedStep(step, runtime.device) if self._graphs else step


GPU_STEPS = 50  # between two reports of what the device has computed


class Pace(NamedTuple):
    """How steps are run, and after how many or how long at most they are saved."""

    graphs: bool
    checkpoint_seconds: float
    checkpoint_steps: int | None


@dataclass
class Trainer:
    """Carries out phases of training, and keeps `progress` up to date."""

    runtime: Runtime
    progress: Progress
    folder: RunFolder
    keeper: Keeper
    interruption: Interruption
    listeners: Sequence[Listener]
    pace: Pace

    def __post_init__(self) -> None:
        every = GPU_STEPS if self.runtime.device.type == "cuda" else 1
        self._report_every = [every, *filter(None, [self.pace.checkpoint_steps])]
        self._last_checkpoint = time.monotonic()
        self._started = time.monotonic() - self.progress.seconds

    @property
    def seconds(self) -> float:
        """That the run has taken, earlier parts included."""
        return time.monotonic() - self._started

    def phase(
        self, name: PhaseName, method: Method, tensors: Mapping[str, Tensor] | None
    ) -> PhaseTraining:
        """Trains to the end of a phase, or until validation no longer gets better.

        It goes on from the tensors of a checkpoint, if there is one of this phase.
        """
        training = PhaseTraining(self.runtime, name, method, graphs=self.pace.graphs)
        progress = self.progress
        if tensors is not None:
            training.load(tensors)
        else:
            progress.phase, progress.epoch = name, 0
        while progress.epoch < training.epochs and not self._is_stale():
            self._epoch(training)
        return training

    def record(self, epoch: Epoch, method: Method) -> None:
        """Writes a record, and the model if it is the best so far, and tells listeners."""
        self.progress.epochs.append(epoch)
        if selection.best_on_validation(self.progress.epochs) is epoch:
            self.keeper.model(self.folder.best, method)
        if self.runtime.processes.first:
            self.folder.record(epoch)
        for listener in self.listeners:
            listener.finished_epoch(epoch)

    def stop_if_wanted(self) -> None:
        """For what follows training, which a run that goes on does again.

        Raises:
            Interrupted: The program was told to stop. One of several processes must not go alone.
        """
        if self.interruption.wanted and self.runtime.processes.count == 1:
            raise self._interrupted()

    def _epoch(self, training: PhaseTraining) -> None:
        runtime, progress = self.runtime, self.progress
        per_epoch = runtime.steps_per_epoch
        training.begin_epoch(progress.epoch)
        batches = runtime.batches(training.members, progress.step)
        images = len(batches.positions) * runtime.processes.count
        started = time.perf_counter() - progress.epoch_seconds
        for batch in runtime.feed.epoch(batches, runtime.augmentation):
            training.step(batch, progress.epoch * per_epoch + progress.step % per_epoch)
            progress.step += 1
            due = any(progress.step % steps == 0 for steps in self._report_every)
            if due and progress.step % per_epoch:
                self._report(training, images, started)
        loss, stop, due = self._collect(training)
        progress.epoch_seconds = time.perf_counter() - started
        self._finish_epoch(training, loss, images)
        over = progress.epoch == training.epochs
        if self.keeper.lasting or stop or due or over:
            self._checkpoint(training)
        if stop:
            raise self._interrupted()

    def _report(self, training: PhaseTraining, images: int, started: float) -> None:
        """Between two steps of an epoch: tells listeners, and saves if it is time to."""
        progress, per_epoch = self.progress, self.runtime.steps_per_epoch
        loss, stop, due = self._collect(training)
        progress.epoch_seconds = time.perf_counter() - started
        done = progress.step % per_epoch
        step = Step(
            phase=training.name,
            epoch=progress.epoch + 1,
            stage=training.method.stage,
            step=done,
            steps_per_epoch=per_epoch,
            total_step=progress.step,
            loss=loss / done,
            learning_rate=training.rate,
            images_per_second=images * done / progress.epoch_seconds,
            seconds=progress.epoch_seconds,
        )
        for listener in self.listeners:
            listener.stepped(step)
        every = self.pace.checkpoint_steps
        if stop or due or (every and progress.step % every == 0):
            self._check_weights(training)
            self._checkpoint(training)
        if stop:
            raise self._interrupted()

    def _collect(self, training: PhaseTraining) -> tuple[float, bool, bool]:
        """The sum of the epoch's losses, whether to stop, and whether a checkpoint is due.

        It is what all processes know together.
        """
        processes = self.runtime.processes
        overdue = time.monotonic() - self._last_checkpoint > self.pace.checkpoint_seconds
        facts = torch.tensor(
            [0.0, self.interruption.wanted, overdue and processes.rank == 0],
            dtype=torch.double,
            device=processes.device,
        )
        facts[0] = training.losses / processes.count
        if processes.count > 1:
            processes.sum(facts)
        loss, stop, due = facts.tolist()
        training.losses.copy_(facts[0])
        if not math.isfinite(loss):
            raise self._diverged("the loss is")
        return loss, bool(stop), bool(due)

    def _finish_epoch(self, training: PhaseTraining, loss: float, images: int) -> None:
        runtime, progress = self.runtime, self.progress
        self._check_weights(training)
        seconds, progress.epoch_seconds = progress.epoch_seconds, 0.0
        progress.epoch += 1
        training.losses.zero_()
        training.average.after_epoch(progress.epoch)
        with training.averaged():
            validation, target = selection.scores(runtime, training.method)
            epoch = Epoch(
                phase=training.name,
                epoch=progress.epoch,
                stage=training.method.stage,
                steps=runtime.steps_per_epoch,
                loss=loss / runtime.steps_per_epoch,
                learning_rate=training.rate,
                seconds=seconds,
                images_per_second=images * runtime.steps_per_epoch / seconds,
                validation=validation,
                target=target,
            )
            self.record(epoch, training.method)

    def _checkpoint(self, training: PhaseTraining) -> None:
        self.progress.seconds = self.seconds
        self.keeper.checkpoint(self.progress, training.tensors())
        self._last_checkpoint = time.monotonic()

    def _check_weights(self, training: PhaseTraining) -> None:
        if not training.is_finite():
            raise self._diverged("the weights are")

    def _is_stale(self) -> bool:
        patience = self.runtime.recipe.patience
        return patience is not None and selection.stale(self.progress.epochs) >= patience

    def _diverged(self, what: str) -> TrainingError:
        progress = self.progress
        return TrainingError(
            f"After step {progress.step} (epoch {progress.epoch + 1} of phase {progress.phase}) "
            f"{what} no longer finite; {self.keeper.advice()}"
        )

    def _interrupted(self) -> Interrupted:
        self.keeper.wait()
        return Interrupted(
            f"Training was interrupted after step {self.progress.step}; all of it is saved in "
            f"{self.folder.path}: go on with --resume (resume=True)."
        )
