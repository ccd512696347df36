"""What a run computes with: images on the device, as the recipe wants them, and processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from bne.core.statistics import measure
from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches
from bne.data.feed import Feed
from bne.data.mixing import AmplitudeMixing
from bne.data.transform import EvalTransform
from bne.data.values import parse_range
from bne.errors import DataError, SettingsError
from bne.methods import find
from bne.models import preprocessing
from bne.training.scores import BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from bne.data.batches import Counted
    from bne.data.cache import PreparedImages
    from bne.methods import Method
    from bne.models.registry import Preprocessing
    from bne.recipes.inputs import Inputs
    from bne.recipes.schema import Recipe
    from bne.training.distributed import Processes

    Autocast = Callable[[], AbstractContextManager[object]]

Precision = Literal["bf16", "float32"]


def effective(asked: Precision, device: torch.device) -> Precision:
    """What is really used: the CPU, where bf16 saves nothing, computes in float32."""
    return asked if device.type == "cuda" else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which a network computes in the precision."""
    return _autocast(precision, device)()


def _autocast(precision: Precision, device: torch.device) -> Autocast:
    # Weights are converted anew at each pass, so that the gradients of several passes add up in
    # float32.
    enabled = precision == "bf16"
    return partial(torch.autocast, device.type, torch.bfloat16, enabled, cache_enabled=False)


@dataclass(frozen=True)
class Runtime:
    """The inputs of a run, brought to the device.

    Attributes:
        inputs: of the run.
        processes: among which the work is divided.
        feed: the images.
        transform: from prepared images to the network's input.
        augmentation: the same for training, with random changes.
        precision: that is really used.
        autocast: makes the context in which networks compute in it.
        uses_target: whether the target's images join training, without their labels.
        steps_per_epoch: the same for every method: the source domains alone decide.
    """

    inputs: Inputs
    processes: Processes
    feed: Feed
    transform: EvalTransform
    augmentation: Augmentation
    precision: Precision
    autocast: Autocast
    uses_target: bool
    steps_per_epoch: int

    @classmethod
    def of(cls, inputs: Inputs, prepared: PreparedImages, processes: Processes) -> Runtime:
        """Brings images to the device.

        Raises:
            DataError: They are not the inputs' images, or were prepared in another way; or a
                stated range clips too much.
            SettingsError: A step's images cannot be divided among the processes.
        """
        recipe, size = inputs.recipe, prepared.pixels.shape[1]
        if size != recipe.resize:
            raise DataError(
                f"The images are prepared with {size} pixels, but resize is {recipe.resize}; "
                "prepare them anew, or change resize."
            )
        given: dict[str, Any] = {"fit": prepared.fit, "channels": prepared.pixels.shape[3]}
        if recipe.range != "percentiles":  # which were measured before
            given["range"] = prepared.window
        for key, value in given.items():
            asked = parse_range(recipe.range) if key == "range" else getattr(recipe, key)
            if value != asked:
                raise DataError(
                    f"The images are prepared with {key} {value}, but the recipe has {asked}; "
                    f"prepare them anew, or change {key}."
                )
        if recipe.range != "percentiles":
            prepared.check_range()
        if [f.name for f in prepared.images.files] != [f.name for f in inputs.images.files]:
            raise DataError("The prepared images are others than those that were split.")
        parts = processes.count * recipe.accumulate
        if recipe.per_domain % parts:
            raise SettingsError(
                f"per_domain is {recipe.per_domain}, which {processes.count} processes and "
                f"accumulate={recipe.accumulate} cannot divide; choose a multiple of {parts}."
            )
        expected = preprocessing(recipe.backbone).for_channels(recipe.channels)
        expected = replace(expected, size=recipe.size or expected.size)
        precision = effective(recipe.precision, processes.device)
        return cls(
            inputs,
            processes,
            Feed(prepared, processes.device),
            EvalTransform(expected, recipe.resize, recipe.fit, prepared.window),
            _augmentation(recipe, expected),
            precision,
            _autocast(precision, processes.device),
            find(recipe.method).method.uses_target,
            DomainBatches(
                inputs.train,
                recipe.per_domain,
                epoch=recipe.epoch,
                domains_per_step=recipe.domains_per_step,
            ).steps_per_epoch,
        )

    @property
    def recipe(self) -> Recipe:
        """Every setting."""
        return self.inputs.recipe

    @property
    def class_weights(self) -> Tensor | None:
        """(classes,) on the device, for the loss; None if all images count alike."""
        if self.recipe.balance != "weights":
            return None
        return torch.tensor(self.inputs.class_weights, device=self.device)

    @property
    def device(self) -> torch.device:
        """Of this process."""
        return self.processes.device

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains that the method knows."""
        sources = tuple(self.inputs.splits)
        return (*sources, self.joined_target) if self.uses_target else sources

    @property
    def joined_target(self) -> str:
        """The name of all target domains together."""
        return " + ".join(self.recipe.target)

    def batches(self, members: Mapping[str, Sequence[int]], step: int) -> DomainBatches:
        """This process's batches from a step on."""
        some = self.recipe.domains_per_step
        batches = DomainBatches(
            members,
            self.recipe.per_domain,
            seed=self.recipe.seed,
            epoch=self.steps_per_epoch,
            rank=self.processes.rank,
            world_size=self.processes.count,
            labels=self.inputs.train_labels if self.recipe.balance == "sampling" else None,
            domains_per_step=None if some is None else min(some, len(members)),
        )
        batches.step = step
        return batches

    def images(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The network's input, (B, 3, H, W), for each list of numbers, as in evaluation."""
        return (self.transform(images) for images, _ in self.feed.gather(batches))

    def all_images(self, numbers: Sequence[int]) -> Iterator[Tensor]:
        """The network's input for some images, a batch at a time."""
        return self.images(torch.as_tensor(numbers).split(BATCH))


def _augmentation(recipe: Recipe, expected: Preprocessing) -> Augmentation:
    amplitudes, mixing = recipe.amplitudes, None
    if amplitudes.name is not None:
        mixing = AmplitudeMixing(amplitudes.name, amplitudes.chance, recipe.seed)
    return Augmentation(
        recipe.augmentation,
        expected,
        recipe.seed,
        flip=recipe.flip,
        strong=recipe.strong,
        mixing=mixing,
    )


def recompute(
    method: Method,
    batches: Sequence[Counted],
    images_of: Callable[[Iterable[Tensor]], Iterator[Tensor]],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
    shrinkage: float = 0.0,
) -> None:
    """Sets the running statistics of every layer that is trained with batch statistics.

    Args:
        method: its `observe` runs the images; it is left in the mode it was in.
        batches: what to measure on, see `bne.data.batches.draw`.
        images_of: gives the network's input, (N, 3, H, W), for each list of numbers.
        device: where they are.
        autocast: makes the context in which the network runs.
        shrinkage: as in `bne.recompute_statistics`.
    """

    def given() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for batch, images in zip(batches, images_of(b.numbers for b in batches), strict=True):
            yield images, batch.domains.to(device), batch.counts.to(device)

    def observe(images: Tensor, domains: Tensor) -> None:
        with autocast():
            method.observe(images, domains)

    domains = 1 + max(int(batch.domains.max()) for batch in batches)
    measure(method, given(), observe, domains, shrinkage=shrinkage)
