"""How far a run has come, as it is told to listeners and kept in files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bne.recipes.inputs import Inputs
    from bne.recipes.schema import Recipe
    from bne.training.folder import Result

PhaseName = Literal["head", "train"]


Measure = Literal["accuracy", "balanced_accuracy"]
ACCURACY: Measure = "accuracy"
BALANCED: Measure = "balanced_accuracy"
UNBALANCED = 3
"""Balanced accuracy leads if the largest class has more than so many times the smallest one's
images."""
LEADS = (
    "Balanced accuracy leads: in {} the largest class has more than three times as many images as "
    "the smallest."
)


def unbalanced(counts: Iterable[int]) -> bool:
    """Whether balanced accuracy leads, by the number of images of each class that has any."""
    present = [count for count in counts if count]
    return max(present) > UNBALANCED * min(present)


@dataclass(frozen=True)
class Score:
    """How many of some images were classified correctly.

    Attributes:
        correct: number of images classified correctly.
        images: number of images in all.
        balanced: balanced accuracy in percent, the mean over the classes that the images have;
            None in records of earlier versions.
        unbalanced: whether the largest class has more than three times as many images as the
            smallest that has any, see `UNBALANCED`.
    """

    correct: int
    images: int
    balanced: float | None = None
    unbalanced: bool | None = None

    @classmethod
    def of(cls, correct: Sequence[int], images: Sequence[int]) -> Score:
        """From the numbers of each class."""
        shares = [right / count for right, count in zip(correct, images, strict=True) if count]
        mean = 100 * sum(shares) / len(shares)
        return cls(sum(correct), sum(images), mean, unbalanced(images))

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.correct / self.images

    def by(self, measure: Measure) -> float | None:
        """Accuracy or balanced accuracy, in percent; None where it is not recorded."""
        return self.accuracy if measure == ACCURACY else self.balanced


Scores = dict[str, Score]
"""By domain."""

Share = float | Literal["learned"]
"""How far images lean, 0 to 1, or "learned": as far at each layer as the method has learned."""


@dataclass(frozen=True)
class Leaning:
    """The last epoch's network, leaning on its images' own statistics by some share.

    Attributes:
        share: how far.
        validation: of the held-out images of each source domain; empty if there are none.
        target: of all images of each target domain, never used to choose the share.
        gained: held-out images that are right leaning and wrong without.
        lost: held-out images that are wrong leaning and right without.
    """

    share: Share
    validation: Scores
    target: Scores
    gained: int
    lost: int

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Leaning:
        """What `asdict` gave."""
        scores = {key: scores_from_dict(fields[key]) for key in ("validation", "target")}
        return cls(**{**fields, **scores})


@dataclass(frozen=True)
class Start:
    """What a run is about to do.

    Attributes:
        inputs: its recipe, images and their split.
        folder: where everything is written.
        device: where it runs.
        precision: "bf16" or "float32", what is really used: the CPU computes in float32.
        steps_per_epoch: of both phases.
        steps: of the whole run.
        first_step: steps that were done before, if the run is resumed.
    """

    inputs: Inputs
    folder: Path
    device: str
    precision: str
    steps_per_epoch: int
    steps: int
    first_step: int

    @property
    def recipe(self) -> Recipe:
        """Every setting."""
        return self.inputs.recipe


@dataclass(frozen=True)
class Step:
    """Where an epoch stands; told every step on the CPU, every 50 on a GPU, which never waits.

    Attributes:
        epoch: its number in the phase, from 1.
        stage: what the method's loss now computes.
        step: steps done in the epoch, `total_step` in the run.
        loss: mean over the steps of the epoch so far.
        learning_rate: of the last step.
        seconds: that the steps of the epoch have taken so far.
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
    seconds: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """An epoch that is over: one line of `metrics.jsonl`.

    Attributes:
        epoch: its number in the phase, from 1.
        stage: what the method's loss computed.
        loss: mean over the steps.
        learning_rate: of the last step.
        seconds: that the steps took.
        validation: of the held-out images of each source domain; empty if there are none.
        target: of all images of each target domain, never used for training or selection; empty
            if there is none.
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


def scores_from_dict(fields: Mapping[str, Mapping[str, Any]]) -> Scores:
    """The scores of several domains, from plain numbers."""
    return {domain: Score(**score) for domain, score in fields.items()}


def read_epochs(records: Iterable[Any]) -> tuple[Epoch, ...]:
    """The epochs of a run, from a file that may be damaged.

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
    for epoch in epochs:
        if not (epoch.target or epoch.validation) or not isinstance(epoch.stage, str):
            raise ValueError("no scores or no stage")
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

    def finishing(self, work: str) -> None:
        """Training is over; this is done next: "exact statistics" or "leaning"."""

    def finished(self, result: Result) -> None:
        """Everything is written."""

    def close(self) -> None:
        """The run is over, however it ended; nothing may have been told before."""


@dataclass
class Progress:
    """The numbers that a checkpoint remembers.

    Attributes:
        epoch: epochs of the present phase that are over.
        step: steps of the run that are over.
        epoch_seconds: that the steps of the present epoch have taken, `seconds` all.
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
