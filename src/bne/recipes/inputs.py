"""What a run is made of: a recipe, images, and which of these train, validate and test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from bne.data.decoding import range_of_training
from bne.data.images import Way
from bne.data.layouts import TRAIN
from bne.data.splits import HELD_OUT, check_apart, groups_of, hold_out, official, published, single
from bne.data.values import parse_range
from bne.errors import DataError, SettingsError, did_you_mean
from bne.methods.method import find
from bne.recipes.checks import DOWNLOADS, check_names, check_numbers
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.data.splits import Groups, Split
    from bne.data.values import Window
    from bne.recipes.schema import Recipe

MANY_PASSES = 10_000  # of images in a step: seconds on a CPU; the paper has 192

Members = dict[str, tuple[int, ...]]
"""The numbers of some images of each domain, by its name."""


@dataclass(frozen=True)
class Inputs:
    """A recipe that fits its images. It is made once for a run, by `Inputs.of`, and handed down.

    Attributes:
        recipe: with a validation that is no longer "auto".
        images: all there are.
        splits: of the source domains, by name.
        target: all images of the domains held out, if any are.
        split_file: the official split that lies with the images, followed or not.
        groups: the group of every image, if images have any: no split parts them.
    """

    recipe: Recipe
    images: ImageSet
    splits: Mapping[str, Split]
    target: Members
    split_file: Path | None = None
    groups: Groups = ()

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        images: ImageSet,
        split_file: Path | None = None,
        *,
        allow_gaps: bool = False,
    ) -> Inputs:
        """Splits images as a recipe says, and checks one against the other; decodes none.

        Args:
            recipe: with settings that are sound in themselves.
            images: all there are.
            split_file: see `official_split`.
            allow_gaps: whether a source domain may lack classes that others have.

        Raises:
            DataError: There is one domain or class only, a class has one image only, or a domain
                has no images or lacks a class, or a group is in a source and in the target.
            SettingsError: A domain is not there, is in target and in sources, or has too few images
                for a batch; or no image tests the network, the method needs a target and there is
                none, or it looks for more clusters than there are images, or for more nearest
                branches than it has.
        """
        check_numbers(recipe)
        check_names(recipe)
        recipe = settled(recipe, official=split_file is not None or images.is_split)
        _check_domains(recipe, images)
        if found := single(images):
            raise DataError(found)
        groups = groups_of(images, recipe.group)
        splits = split_sources(recipe, images, split_file, groups)
        for source, split in splits.items():
            if len(split.train) < recipe.per_domain:
                raise SettingsError(
                    f"per_domain is {recipe.per_domain}, but {source} has {len(split.train)} images"
                    " to train on; choose a smaller batch, or leave the domain out of sources."
                )
        if recipe.patience is not None and not any(s.validation for s in splits.values()):
            raise SettingsError("patience needs images to validate on; hold some out.")
        if not recipe.target and not any(s.validation for s in splits.values()):
            raise SettingsError(
                "Neither a target nor images for validation are held out, so that nothing would "
                "test the network; hold out a share of the images, validation=0.1 for instance."
            )
        target = {domain: tuple(images.indices_of([domain])) for domain in recipe.target}
        sources = [n for split in splits.values() for n in (*split.train, *split.validation)]
        check_apart(groups, images, sources, [n for numbers in target.values() for n in numbers])
        inputs = cls(recipe, images, splits, target, split_file, groups)
        if not allow_gaps:
            inputs._check_gaps()
        inputs._check_target()
        inputs._check_clusters()
        inputs._check_nearest()
        return inputs

    @cached_property
    def way(self) -> Way:
        """How images are prepared; percentiles of training images are measured, once."""
        recipe = self.recipe
        if recipe.range == "percentiles":
            numbers = sorted(chain.from_iterable(self.train.values()))
            window: Window | None = range_of_training(self.images.select(numbers).files)
        else:
            window = parse_range(recipe.range)
        return Way(recipe.resize, recipe.fit, window, recipe.channels)

    @property
    def train(self) -> Members:
        """The training images of every source domain."""
        return {domain: split.train for domain, split in self.splits.items()}

    @property
    def validation(self) -> Members:
        """The held-out images of the source domains that have any."""
        return {d: split.validation for d, split in self.splits.items() if split.validation}

    @property
    def train_labels(self) -> dict[int, int]:
        """The class of every training image, by the image's number."""
        return {n: self.images.files[n].label for own in self.train.values() for n in own}

    @property
    def class_weights(self) -> list[float]:
        """How much an image of each class counts, to make up for how seldom the class is drawn.

        Domains are drawn equally often, whatever their sizes: a class's share is the mean of its
        shares in all domains. The mean weight of an image drawn is 1; a class without training
        images has weight 0.
        """
        shares = [0.0] * len(self.images.classes)
        for numbers in self.train.values():
            for number in numbers:
                shares[self.images.files[number].label] += 1 / (len(numbers) * len(self.train))
        present = sum(share > 0 for share in shares)
        return [1 / (present * share) if share else 0.0 for share in shares]

    @property
    def split_by(self) -> str:
        """By which split images are held out: `10 % of every class`."""
        share = self.recipe.validation
        if share == "official":
            return f"by the official split {self.split_file or 'of the data'}"
        whole = ", in whole groups" if self.groups else ""
        return f"{100 * float(share):g} % of every class{whole}"

    def notes(self) -> Iterator[str]:
        """What one should know though nothing is wrong, in sentences.

        Classes that a domain lacks, an official split that is not followed, a costly step, and the
        license of weights that are downloaded.
        """
        for source, classes in self._gaps.items():
            yield f"{source} has no images of {listed(classes)} to train on; others have."
        taught = set().union(*self._taught.values())
        for target, numbers in self.target.items():
            lacking = sorted(taught - self._labels(numbers))
            if absent := [self.images.classes[label] for label in lacking]:
                yield (
                    f"{target}, a target, has no images of {listed(absent)}; its accuracy, "
                    "balanced too, is that on the other classes."
                )
        table = self.split_file or ("With the data" if self.images.is_split else None)
        if table and self.recipe.validation != "official":
            yield (
                f"{table} is an official split, which validation="
                f"{self.recipe.validation} does not follow; --set validation=official does."
            )
        yield from self._costly_step()
        if self.recipe.weights in DOWNLOADS:
            from bne.models.registry import terms_of

            yield f"Initial weights: {terms_of(self.recipe.backbone, self.recipe.weights)}"

    def held_out(self) -> str:
        """How many source images are held out, and by which split, in a sentence."""
        count = sum(len(split.validation) for split in self.splits.values())
        total = count + sum(len(split.train) for split in self.splits.values())
        return f"Held out for validation: {count} of {total} source images, {self.split_by}."

    def _costly_step(self) -> Iterator[str]:
        """What a step of distance training costs, if that is much: it grows with K squared."""
        entry, per_domain = find(self.recipe.method), self.recipe.per_domain
        options = {**entry.options, **self.recipe.options}
        if options.get("distance_training", "never") == "never":
            return
        domains = self._branches
        images = per_domain * domains
        passes = images * ((options.get("nearest") or domains) + 1)
        if passes > MANY_PASSES:
            way_out = "a smaller per_domain makes it fewer"
            if "nearest" in options:
                way_out = (
                    "options.nearest=m runs an image's m nearest branches alone, or "
                    "options.max_branches=1 takes less memory"
                )
            yield (
                f"A step of distance training is {images:,} images, {per_domain} of each of "
                f"{domains} domains, in {passes:,} image passes; {way_out}."
            )

    @property
    def _branches(self) -> int:
        """The number of branches of a method that has some."""
        entry = find(self.recipe.method)
        clusters: int | None = {**entry.options, **self.recipe.options}.get("clusters")
        return clusters or len(self.splits) + entry.method.uses_target

    def _labels(self, numbers: Iterable[int]) -> set[int]:
        return {self.images.files[number].label for number in numbers}

    @cached_property
    def _taught(self) -> dict[str, set[int]]:
        """The labels of every source domain's training images."""
        return {source: self._labels(numbers) for source, numbers in self.train.items()}

    @cached_property
    def _gaps(self) -> dict[str, list[str]]:
        """The classes that a source domain has no training images of though another has."""
        of_any = sorted(set().union(*self._taught.values()))
        gaps = {
            source: [self.images.classes[label] for label in of_any if label not in labels]
            for source, labels in self._taught.items()
        }
        return {source: classes for source, classes in gaps.items() if classes}

    def _check_gaps(self) -> None:
        if gaps := self._gaps:
            lacks = [f"{d} has no images of {listed(names)}" for d, names in gaps.items()]
            raise DataError(
                f"{listed(lacks, '; ', '; ')} to train on, though other source domains have; add "
                "some, or train with such gaps by allow_gaps=True (--allow-gaps)."
            )

    def _check_clusters(self) -> None:
        count = sum(map(len, self.train.values()))
        if (asked := self.recipe.options.get("clusters") or 0) > count:
            raise SettingsError(
                f"options.clusters is {asked}, but there are {count} images to train on; ask for "
                "fewer clusters."
            )

    def _check_nearest(self) -> None:
        if (asked := self.recipe.options.get("nearest") or 0) > self._branches:
            raise SettingsError(
                f"options.nearest is {asked}, but there are {self._branches} branches, one of each "
                "domain trained on; ask for fewer, or leave it out to run all."
            )

    def _check_target(self) -> None:
        taught = set().union(*self._taught.values())
        for domain, numbers in self.target.items():
            if not numbers:
                raise DataError(f"The target {domain!r} has no images; hold out another.")
            if unknown := sorted(self._labels(numbers) - taught):
                raise DataError(
                    f"target {domain} has the class {self.images.classes[unknown[0]]!r}, of which "
                    "no source domain has an image to train on; remove the class, or add images to "
                    "a source."
                )


def _check_domains(recipe: Recipe, images: ImageSet) -> None:
    if not recipe.target and find(recipe.method).method.uses_target:
        raise SettingsError(
            f"method {recipe.method} learns from unlabeled images of the target; name one "
            "(--target)."
        )
    if len(images.domains) == 1:
        raise DataError(
            f"The data has one domain only, {images.domains[0]}; add at least one, to train on one "
            "and test on the other."
        )
    if len(images.classes) == 1:
        raise DataError(
            f"The data has one class only, {images.classes[0]}; images must lie as "
            "domain/class/image, with at least two classes to tell apart."
        )
    for key in ("target", "sources"):
        for domain in getattr(recipe, key):
            if domain not in images.domains:
                near = did_you_mean(domain, images.domains)
                raise SettingsError(f"{key} has {domain!r}, no domain of the data; {near}.")
    if set(images.domains) <= set(recipe.target):
        raise SettingsError(
            "target holds out every domain; hold out fewer, to train on the others."
        )


def settled(recipe: Recipe, *, official: bool) -> Recipe:
    """A recipe whose validation is no longer "auto", for data with an official split or without."""
    if recipe.validation != "auto":
        return recipe
    return replace(recipe, validation="official" if official else HELD_OUT)


def split_sources(
    recipe: Recipe, images: ImageSet, split_file: Path | None, groups: Groups = ()
) -> dict[str, Split]:
    """The split of every source domain, by name.

    Args:
        recipe: settled; its sources, or all domains that are not held out, in the images' order.
        images: all there are.
        split_file: the official split, if there is one.
        groups: the group of every image, if images have any.

    Raises:
        SettingsError: The recipe asks for an official split and there is none.
        DataError: The split cannot be followed: one that lies with the data is never passed over.
    """
    sources = recipe.sources or tuple(d for d in images.domains if d not in recipe.target)
    if images.is_split and not recipe.sources:  # whole domains are kept to validate and to test on
        taught = {images.domains[f.domain] for f in images.files if f.part == TRAIN}
        sources = tuple(domain for domain in sources if domain in taught)
    if isinstance(recipe.validation, float | int):
        return hold_out(images, sources, recipe.validation, recipe.seed, groups)
    if split_file is None and images.is_split:
        return published(images, sources)
    if split_file is None:
        raise SettingsError(
            "validation is 'official', but no official split lies with the data; set it to a "
            "share to hold out, 0.1 for instance."
        )
    return official(images, sources, split_file, groups)
