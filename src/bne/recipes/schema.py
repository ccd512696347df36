"""What a training run consists of: every setting, declared once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from bne.data.splits import HELD_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Optimiser:
    """How weights follow gradients.

    Attributes:
        name: "adam", "sgd" or "adamw"; weight decay is L2 in the gradient for the first two.
        learning_rate: at the start.
        momentum: of SGD.
        weight_decay: of all parameters.
        head_factor: by how much the last layer's learning rate exceeds that of the others.
        clip: the largest norm of the gradient; None leaves it as it is.
    """

    name: Literal["adam", "sgd", "adamw"] = "adam"
    learning_rate: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    head_factor: float = 1.0
    clip: float | None = None


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes during a phase.

    Attributes:
        name: "constant"; "cosine", down to zero over the phase, step by step; "exponential", times
            `decay` after every epoch.
        decay: of "exponential".
    """

    name: Literal["constant", "cosine", "exponential"] = "constant"
    decay: float = 0.95


@dataclass(frozen=True)
class Phase:
    """A stretch of training.

    Attributes:
        epochs: its length; 0 leaves the phase out.
        warm_up: how many of them, the first, are for the domains' statistics to settle, for
            methods that distinguish.
        optimiser: of the phase.
        schedule: of its learning rate.
    """

    epochs: int
    warm_up: int = 0
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True)
class Averaging:
    """Which average of the weights is tested and kept instead of the last ones.

    Attributes:
        name: None for none; "ema", an exponential moving average; "swa", the mean of the tail.
        decay: of "ema", a step.
        tail: share of the training phase that "swa" averages, once an epoch.
    """

    name: Literal["ema", "swa"] | None = None
    decay: float = 0.999
    tail: float = 0.25


@dataclass(frozen=True)
class Recipe:
    """One training run.

    Attributes:
        method: its name, see `bne.methods.entries`.
        target: the domains held out.
        options: of the method.
        sources: the domains to train on; empty takes all that are not held out.
        backbone: its name, see `bne.models.list_models`.
        weights: initial weights, as `bne.models.build` takes them.
        calibrate: whether batch-norm statistics start from the activations of training images, for
            weights that come without them.
        seed: of the new layers' weights, batches, augmentation and split.
        per_domain: images of each source domain in a step, over all processes.
        accumulate: into how many equal parts a step's images are cut, to save memory; each domain
            batch is cut, so batch-norm statistics are those of the parts.
        epoch: steps in an epoch, as `bne.data.batches.DomainBatches` takes it.
        validation: "official", the benchmark's own split; the share of each source domain held out;
            or "auto", the official split if the data have one and a share of 10 % if not.
        augmentation: of training images.
        flip: whether to mirror every other training image.
        resize: height and width images are resized to before they are cropped.
        precision: "bf16" or "float32", of convolutions and matrix products.
        head: the phase in which the last layer alone is trained, under the pretrained statistics.
        train: the phase in which everything is.
        averaging: of weights.
        exact_statistics: whether the population statistics are recomputed over the source images
            after training.
        patience: epochs without a better source validation after which training stops; None goes
            on to the end.
    """

    method: str
    target: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    backbone: str = "resnet18"
    weights: str | None = None
    calibrate: bool = False
    seed: int = 0
    per_domain: int = 16
    accumulate: int = 1
    epoch: Literal["largest", "smallest"] | int = "largest"
    validation: Literal["auto", "official"] | float = "auto"
    augmentation: Literal["paper", "strong", "randaugment"] = "paper"
    flip: bool = True
    resize: int = 256
    precision: Literal["bf16", "float32"] = "bf16"
    head: Phase = field(default_factory=lambda: Phase(epochs=20))
    train: Phase = field(default_factory=lambda: Phase(epochs=60, warm_up=20))
    averaging: Averaging = field(default_factory=Averaging)
    exact_statistics: bool = False
    patience: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for YAML and JSON."""
        return asdict(self)

    @property
    def statistics(self) -> int | None:
        """The version of how statistics are measured; None where training's own are scored.

        Version 1 ran batches of one class, and averaged weights under other weights' statistics.
        """
        return 2 if self.exact_statistics or self.averaging.name else None

    def settle_validation(self, *, official: bool) -> Recipe:
        """The same recipe with a validation of "auto" replaced by what it comes to.

        Args:
            official: whether the data have an official split.
        """
        if self.validation != "auto":
            return self
        return replace(self, validation="official" if official else HELD_OUT)
