"""The contract of all methods, and their names."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bne.errors import did_you_mean
from bne.methods.leaning import Leaning

if TYPE_CHECKING:
    from torch import nn

Look = Callable[[Sequence[int]], Iterator[Tensor]]


class Method(Leaning, ABC):
    """A way to train a network on several domains and to use it on one it has never seen.

    A subclass takes the plain network, the names of the source domains and options of its own as
    keywords. It knows nothing of how images are read or checkpoints written; whatever it must
    remember between two steps is a parameter or a buffer. Calling it gives its loss, so that
    `DistributedDataParallel`, which sees `forward` alone, can wrap it.

    Attributes:
        net: the network, the classifier of what the method trains.
        stage: what the loss now computes. It may change from epoch to epoch; within one stage every
            step runs the same operations, so that they can be recorded once and replayed.
        can_lean: whether images may lean on their own statistics in evaluation, at every batch norm
            of `net`; see `lean`.
        scored_lean: the share that epochs of training are scored at.
        most_lean: the largest share to lean by that is chosen without being asked for. Photographs
            lose at larger ones, see docs/beyond.md.
        uses_target: whether unlabeled images of the target join every batch as one more domain,
            the last, with the label -100, which `cross_entropy` passes over.
        own_domains: whether it sorts the training images into domains of its own, see `members`.
        class_weights: (classes,), how much an image of each class counts in the loss; None counts
            all alike. Training sets it; it is no part of the state dict.
        label_smoothing: the share of the loss in which all classes count alike. Training sets it.
        domains_per_step: the number of domains that have images in a training batch, if that is
            not all. Training sets it.
    """

    stage: str = "train"
    most_lean: ClassVar[float] = 0.1
    scored_lean: float = 0.0
    uses_target: ClassVar[bool] = False
    own_domains: ClassVar[bool] = False
    class_weights: Tensor | None = None
    label_smoothing: float = 0.0
    domains_per_step: int | None = None

    @property
    def learned_lean(self) -> dict[str, float] | None:
        """The share to lean by at each layer, by name, if the method learns it; otherwise None."""
        return None

    def forward(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The same as `loss`."""
        return self.loss(images, labels, domains)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over labeled images, with smoothed labels and weighed by class if so set.

        The divisor is the number of images, so that parts of a batch add up to the whole.

        Args:
            logits: (N, classes).
            labels: (N,), -100 for images without one.
        """
        smoothing = self.label_smoothing
        if self.class_weights is None:
            return F.cross_entropy(logits, labels, label_smoothing=smoothing)
        total = F.cross_entropy(
            logits, labels, self.class_weights, reduction="sum", label_smoothing=smoothing
        )
        return total / (labels >= 0).sum()

    def members(
        self, members: Mapping[str, Sequence[int]], epoch: int, look: Look
    ) -> Mapping[str, Sequence[int]]:
        """Which training images make up each domain in an epoch; by default they stay as they are.

        Called before `begin_epoch`, and again when an epoch is resumed in its middle: the answer
        must then be the same.

        Args:
            members: the numbers of the training images of every source domain, by name.
            epoch: epochs before this one.
            look: gives the images of some numbers, (B, 3, H, W) at a time, as in evaluation.
        """
        return members

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Called before every epoch of training, and again when one is resumed.

        Args:
            epoch: epochs before this one.
            warm_up: epochs that the recipe sets aside for the domains' statistics to settle.
        """

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """What an epoch will take, told before anything is built, to say how long training takes.

        Args:
            epoch: epochs before this one.
            warm_up: epochs that the recipe sets aside for the domains' statistics to settle.
            domains: number of domains.
            options: of the method.

        Returns:
            Its stage, and the passes through the network of an image in training and of one in
            evaluation: one each, unless a method says otherwise.
        """
        return cls.stage, 1, 1

    @abstractmethod
    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss of one training batch, a scalar.

        Args:
            images: (N, 3, H, W), normalized.
            labels: (N,).
            domains: (N,), indices of the source domains, as many images of each.
        """

    @abstractmethod
    def predict(self, images: Tensor) -> Tensor:
        """The logits of images of unknown domain, (N, classes), in evaluation mode.

        Args:
            images: (N, 3, H, W), normalized.
        """

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs images in training mode only for the batch statistics they leave behind.

        Args:
            images: (N, 3, H, W), normalized.
            domains: (N,), indices of the source domains.
        """
        self.net(images)


@dataclass(frozen=True)
class Entry:
    """A method under its name.

    Attributes:
        name: as given on the command line and in recipes.
        method: the class.
        sentence: of the paper, what the method implements.
        presets: options that the name stands for.
    """

    name: str
    method: type[Method]
    sentence: str
    presets: Mapping[str, Any]

    @property
    def summary(self) -> str:
        """The options that its name stands for, and what it is, in one line."""
        about = (self.method.__doc__ or "").split("\n")[0].replace("`", "")
        return "; ".join([*(f"{key}={value}" for key, value in self.presets.items()), about])

    @property
    def options(self) -> dict[str, Any]:
        """All options, with the values they have unless others are given."""
        return {**_options(self.method), **self.presets}


_REGISTRY: dict[str, Entry] = {}


def register(name: str, sentence: str, **presets: Any) -> Callable[[type[Method]], type[Method]]:
    """Decorator that makes a method available under a name; one class may have several.

    Args:
        name: of the method.
        sentence: of the paper, what the method implements.
        **presets: options that the name stands for.
    """

    def add(method: type[Method]) -> type[Method]:
        if name in _REGISTRY:
            raise ValueError(f"a method named {name!r} is registered already")
        _REGISTRY[name] = Entry(name, method, sentence, presets)
        return method

    return add


def find(name: str) -> Entry:
    """The method registered under a name.

    Raises:
        ValueError: There is none; the message names the nearest.
    """
    if name not in _REGISTRY:
        raise ValueError(f"method {name!r} is unknown; {did_you_mean(name, _REGISTRY)}")
    return _REGISTRY[name]


def entries() -> list[Entry]:
    """All registered methods."""
    return list(_REGISTRY.values())


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Checks the names of options before anything is built.

    Raises:
        ValueError: The method, or one of the options, is unknown; the message names the nearest.
    """
    known = find(name).options
    for key in options:
        if key not in known:
            raise ValueError(f"method {name!r} has no option {key!r}; {did_you_mean(key, known)}")


def create(
    name: str, model: nn.Module, domains: Sequence[str], options: Mapping[str, Any] | None = None
) -> Method:
    """Makes a method.

    Args:
        name: under which it is registered.
        model: the plain network; the method takes it over, as it is or converted.
        domains: the source domains' names.
        options: of the method.

    Raises:
        ValueError: The method, an option or an option's value is unknown.
    """
    options = options or {}
    check_options(name, options)
    entry = find(name)
    return entry.method(model, domains, **{**entry.presets, **options})


def _options(method: type[Any]) -> dict[str, Any]:
    """A class's options; where it passes others on, also those of the classes that get them."""
    found: dict[str, Any] = {}
    for owner in method.__mro__:
        constructor = vars(owner).get("__init__")
        if constructor is None:
            continue
        parameters = inspect.signature(constructor).parameters.values()
        named = [p for p in parameters if p.kind is p.KEYWORD_ONLY or p.default is not p.empty]
        found = {p.name: p.default for p in named} | found
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found
