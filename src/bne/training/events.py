"""How far a run has come, as it is told to listeners and kept in files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bne.recipes.schema import Recipe
    from bne.training.folder import Result

PhaseName = Literal["head", "train"]


@dataclass(frozen=True)
class Score:
    """How many of some images were classified correctly."""

    correct: int
    images: int

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.correct / self.images


Scores = dict[str, Score]
"""By domain."""


@dataclass(frozen=True)
class Start:
    """What a run is about to do.

    Attributes:
        recipe: every setting.
        folder: where everything is written.
        device: where it runs.
        precision: "bf16" or "float32", what is really used: the CPU computes in float32.
        classes: their names.
        sources: the domains trained on.
        target: the domains held out.
        training_images: of each source domain.
        steps_per_epoch: of both phases.
        steps: of the whole run.
        first_step: steps that were done before, if the run is resumed.
        processes: among which the work is divided.
    """

    recipe: Recipe
    folder: Path
    device: str
    precision: str
    classes: tuple[str, ...]
    sources: tuple[str, ...]
    target: tuple[str, ...]
    training_images: dict[str, int]
    steps_per_epoch: int
    steps: int
    first_step: int
    processes: int


@dataclass(frozen=True)
class Step:
    """Where an epoch stands; told every step on the CPU, every 50 on a GPU, which never waits.

    Attributes:
        phase: "head" or "train".
        epoch: its number in the phase, from 1.
        stage: what the method's loss now computes.
        step: steps done in the epoch.
        steps_per_epoch: in all.
        total_step: steps done in the run.
        loss: mean over the steps of the epoch so far.
        learning_rate: of the last step.
        images_per_second: in the epoch so far.
    """

    phase: PhaseName
    epoch: int
    stage: str
    step: int
    steps_per_epoch: int
    total_step: int
    loss: float
    learning_rate: float
    images_per_second: float


@dataclass(frozen=True)
class Epoch:
    """An epoch that is over: one line of `metrics.jsonl`.

    Attributes:
        phase: "head" or "train".
        epoch: its number in the phase, from 1.
        stage: what the method's loss computed.
        steps: taken.
        loss: mean over the steps.
        learning_rate: of the last step.
        seconds: that the steps took.
        images_per_second: trained on.
        validation: of the held-out images of each source domain; empty if there are none.
        target: of all images of each target domain, never used for training or selection.
        statistics: of batch norm, "running" or, in one more record after the last epoch, "exact".
    """

    phase: PhaseName
    epoch: int
    stage: str
    steps: int
    loss: float
    learning_rate: float
    seconds: float
    images_per_second: float
    validation: Scores
    target: Scores
    statistics: Literal["running", "exact"] = "running"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Epoch:
        """What `to_dict` gave."""
        scores = {key: scores_from_dict(fields[key]) for key in ("validation", "target")}
        return cls(**{**fields, **scores})


def scores_from_dict(fields: Mapping[str, Mapping[str, int]]) -> Scores:
    """The scores of several domains, from plain numbers."""
    return {domain: Score(**score) for domain, score in fields.items()}


def read_epochs(records: Iterable[Any]) -> tuple[Epoch, ...]:
    """The epochs of a run, from a file that may be damaged.

    Args:
        records: what `Epoch.to_dict` gave, as JSON has it.

    Raises:
        ValueError: One is no epoch, a number is none, or the epochs are of different domains.
    """
    try:
        epochs = tuple(map(Epoch.from_dict, records))
        for epoch in epochs:
            scores = [*epoch.validation.values(), *epoch.target.values()]
            for number in (epoch.loss, *(score.accuracy for score in scores)):
                isfinite(number)  # which takes nothing but numbers
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError("no epoch") from error
    if not all(epoch.target and isinstance(epoch.stage, str) for epoch in epochs):
        raise ValueError("no target or no stage")
    if len({(*epoch.validation, None, *epoch.target) for epoch in epochs}) > 1:
        raise ValueError("epochs of different domains")
    return epochs


class Listener:
    """Hears of a run as it goes on; everything does nothing unless overridden."""

    def started(self, start: Start) -> None:
        """Training begins, or goes on."""

    def stepped(self, step: Step) -> None:
        """Some steps were taken."""

    def finished_epoch(self, epoch: Epoch) -> None:
        """An epoch is over, or statistics are recomputed, and the record is written."""

    def finished(self, result: Result) -> None:
        """Everything is written."""

    def close(self) -> None:
        """The run is over, however it ended; nothing may have been told before."""


@dataclass
class Progress:
    """The numbers that a checkpoint remembers.

    Attributes:
        phase: the present one.
        epoch: epochs of the phase that are over.
        step: steps of the run that are over.
        epoch_seconds: that the steps of the present epoch have taken.
        seconds: that the run has taken.
        epochs: all records.
    """

    phase: PhaseName = "head"
    epoch: int = 0
    step: int = 0
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Progress:
        """What `to_dict` gave; from nothing, the beginning."""
        epochs = [Epoch.from_dict(epoch) for epoch in fields.get("epochs", [])]
        return cls(**{**fields, "epochs": epochs})
