"""What a run works on: images, split and brought to the device as the recipe says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches, seed_of
from bne.data.feed import Feed
from bne.data.transform import EvalTransform
from bne.errors import DataError
from bne.methods import find
from bne.models import preprocessing
from bne.recipes.checks import check_classes, check_target, split_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.data.splits import Split
    from bne.recipes.schema import Recipe
    from bne.training.distributed import Processes


def kept(device: torch.device) -> AbstractContextManager[None]:
    """A context after which the global generators are as they were before."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def seed_generators(device: torch.device, *place: object) -> None:
    """Seeds the global generators of the CPU and the device by where they are drawn from."""
    seed = seed_of(*place)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


Precision = Literal["bf16", "float32"]


def effective(asked: Precision, device: torch.device) -> Precision:
    """What is really used: the CPU, where bf16 saves nothing, computes in float32."""
    return asked if device.type == "cuda" else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A context in which a network computes in the precision.

    Weights are converted anew at each pass, so that the gradients of several passes add up in
    float32.
    """
    return torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False
    )


LOOK = 256  # images at a time

Members = dict[str, tuple[int, ...]]
"""The numbers of some images of each domain, by name."""


@dataclass(frozen=True)
class Setting:
    """A recipe with the images and processes it is carried out on.

    Attributes:
        recipe: every setting.
        prepared: all images.
        processes: that share the work.
        splits: of the source domains, by name.
        target: all images of the domains held out.
        feed: the images on the device.
        transform: from prepared images to the network's input.
        augmentation: the same for training, with random changes.
        steps_per_epoch: which the source domains alone decide, so that they are the same for
            every method.
    """

    recipe: Recipe
    prepared: PreparedImages
    processes: Processes
    splits: Mapping[str, Split]
    target: Members
    feed: Feed
    transform: EvalTransform
    augmentation: Augmentation
    steps_per_epoch: int

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        prepared: PreparedImages,
        processes: Processes,
        split_file: Path | None,
        *,
        allow_gaps: bool,
    ) -> Setting:
        """Checks the recipe against the images and brings them to the device."""
        size = prepared.pixels.shape[1]
        if size != recipe.resize:
            raise DataError(
                f"The images are prepared with {size} pixels, but resize is {recipe.resize}; "
                "prepare them anew, or change resize."
            )
        if recipe.per_domain % (processes.count * recipe.accumulate):
            raise DataError(
                f"per_domain is {recipe.per_domain}, which {processes.count} processes and "
                f"accumulate={recipe.accumulate} cannot share equally; choose a multiple of "
                f"{processes.count * recipe.accumulate}."
            )
        images = prepared.images
        splits = split_sources(recipe, images, split_file)
        if not allow_gaps:
            check_classes(images, splits)
        if not recipe.target:
            raise DataError("target names no domain; hold out at least one.")
        check_target(images, splits, recipe.target)
        target = {domain: tuple(images.indices_of([domain])) for domain in recipe.target}
        if recipe.train.epochs < 1:
            raise DataError("train.epochs is 0; train for at least one epoch.")
        if recipe.patience is not None and not any(s.validation for s in splits.values()):
            raise DataError(
                "patience needs images to validate on, but validation is 0; hold some out."
            )
        expected = preprocessing(recipe.backbone)
        train = {domain: split.train for domain, split in splits.items()}
        return cls(
            recipe,
            prepared,
            processes,
            splits,
            target,
            Feed(prepared, processes.device),
            EvalTransform(expected, recipe.resize),
            Augmentation(recipe.augmentation, expected, recipe.seed, flip=recipe.flip),
            DomainBatches(train, recipe.per_domain, epoch=recipe.epoch).steps_per_epoch,
        )

    @property
    def train(self) -> Members:
        """The training images of every source domain."""
        return {domain: split.train for domain, split in self.splits.items()}

    @property
    def validation(self) -> Members:
        """The held-out images of the source domains that have any."""
        return {d: split.validation for d, split in self.splits.items() if split.validation}

    @property
    def precision(self) -> Precision:
        """What is really used."""
        return effective(self.recipe.precision, self.processes.device)

    @property
    def uses_target(self) -> bool:
        """Whether the target's images join training, without their labels."""
        return find(self.recipe.method).method.uses_target

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the domains that the method knows."""
        sources = tuple(self.splits)
        return (*sources, self.joined_target) if self.uses_target else sources

    @property
    def joined_target(self) -> str:
        """The name of all target domains together."""
        return " + ".join(self.recipe.target)

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which a network computes in the recipe's precision."""
        return autocast(self.precision, self.processes.device)

    def batches(self, members: Mapping[str, Sequence[int]], step: int) -> DomainBatches:
        """This process's batches from a step on."""
        batches = DomainBatches(
            members,
            self.recipe.per_domain,
            seed=self.recipe.seed,
            epoch=self.steps_per_epoch,
            rank=self.processes.rank,
            world_size=self.processes.count,
        )
        batches.step = step
        return batches

    def inputs(self, plan: Iterable[Tensor]) -> Iterator[Tensor]:
        """The network's input, (B, 3, H, W), for each list of numbers, as in evaluation."""
        return (self.transform(images) for images, _ in self.feed.gather(plan))

    def look(self, numbers: Sequence[int]) -> Iterator[Tensor]:
        """The network's input for some images, a batch at a time."""
        return self.inputs(torch.as_tensor(numbers).split(LOOK))

    def seed(self, *place: object) -> None:
        """Seeds torch's generators by the recipe's seed and what is drawn next."""
        seed_generators(self.processes.device, self.recipe.seed, *place)
