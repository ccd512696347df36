"""What one should know of a recipe and its data before training, though nothing is wrong."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from bne.data.benchmarks import BENCHMARKS
from bne.data.splits import hold_out, official
from bne.errors import DataError
from bne.methods import find
from bne.recipes.settings import convert
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bne.data.images import ImageSet
    from bne.data.splits import Split
    from bne.methods import Method
    from bne.models.registry import Backbone
    from bne.recipes.schema import Recipe


def taught_classes(images: ImageSet, splits: Mapping[str, Split]) -> dict[str, set[int]]:
    """The labels of every source domain's training images, by domain."""
    return {
        source: {images.files[number].label for number in split.train}
        for source, split in splits.items()
    }


def missing_classes(images: ImageSet, splits: Mapping[str, Split]) -> dict[str, list[str]]:
    """The classes that a source domain has no training images of though another has.

    Args:
        images: all there are.
        splits: of the source domains, by name.

    Returns:
        Their names, by domain; domains that lack none are absent.
    """
    taught = taught_classes(images, splits)
    of_any = sorted(set().union(*taught.values()))
    missing = {
        source: [images.classes[label] for label in of_any if label not in labels]
        for source, labels in taught.items()
    }
    return {source: classes for source, classes in missing.items() if classes}


def check_classes(images: ImageSet, splits: Mapping[str, Split]) -> None:
    """Refuses source domains that lack classes which others have.

    Raises:
        DataError: One does; the message names all that do and how to train all the same.
    """
    missing = missing_classes(images, splits)
    if missing:
        gaps = [f"{d} has no images of {listed(names)}" for d, names in missing.items()]
        raise DataError(
            f"{listed(gaps, '; ', '; ')} to train on, though other source domains have; add "
            "some, or train with such gaps by allow_gaps=True (--allow-gaps)."
        )


def check_target(images: ImageSet, splits: Mapping[str, Split], target: Sequence[str]) -> None:
    """Refuses target domains without images, and classes of theirs that no source domain has.

    Raises:
        DataError: There is one; the message names it.
    """
    taught = set().union(*taught_classes(images, splits).values())
    for domain in target:
        numbers = images.indices_of([domain])
        if not numbers:
            raise DataError(f"The target {domain!r} has no images; hold out another.")
        for number in numbers:
            label = images.files[number].label
            if label not in taught:
                raise DataError(
                    f"target {domain} has the class {images.classes[label]!r}, of which no source "
                    "domain has an image to train on; remove the class, or add images to a source."
                )


DOWNLOADS = ("torchvision", "timm")


def check_settings(recipe: Recipe) -> None:
    """Checks all that can be known of a recipe without the data.

    Raises:
        DataError: Something is unknown, absent or contradictory; the message names the key.
    """
    for name in ("head", "train"):
        phase = getattr(recipe, name)
        if phase.warm_up > phase.epochs:
            raise DataError(
                f"{name}.warm_up is {phase.warm_up}, more than {name}.epochs, {phase.epochs}."
            )
    if not recipe.train.epochs:
        raise DataError("train.epochs is 0; it must be at least 1.")
    if recipe.patience is not None and not recipe.validation:
        raise DataError("patience needs validation, which is 0; hold some images out.")
    if recipe.per_domain % recipe.accumulate:
        raise DataError(
            f"per_domain is {recipe.per_domain}, which accumulate={recipe.accumulate} does not "
            "divide; choose a multiple."
        )
    for key in ("target", "sources"):
        names = getattr(recipe, key)
        if twice := [name for name in names if names.count(name) > 1]:
            raise DataError(f"{key} has {twice[0]} twice; remove one.")
    both = sorted(set(recipe.target) & set(recipe.sources))
    if both:
        raise DataError(f"{both[0]} is in target and in sources; remove it from one.")
    backbone = _backbone(recipe)
    if recipe.resize < backbone.preprocessing.size:
        raise DataError(
            f"resize is {recipe.resize}, less than the {backbone.preprocessing.size} pixels that "
            f"backbone {recipe.backbone} takes."
        )
    _check_weights(recipe, backbone)
    _check_method(recipe, backbone)


def check_data(
    recipe: Recipe,
    images: ImageSet,
    split_file: Path | None = None,
    *,
    allow_gaps: bool = False,
) -> None:
    """Checks a recipe against the images it is for; decodes none.

    Args:
        recipe: with settings that are sound in themselves.
        images: all there are.
        split_file: of the benchmark, see `official_split`.
        allow_gaps: whether a source domain may lack classes that others have.

    Raises:
        DataError: There is one domain or class only; or a domain is not there, or has too few
            images, or lacks a class, or the target has no images or a class that no source has;
            the message names it.
    """
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
                raise DataError(f"{key} has {domain!r}; {_nearest(domain, images.domains)}.")
    if set(images.domains) <= set(recipe.target):
        raise DataError("target holds out every domain; hold out fewer, to train on the others.")
    splits = split_sources(recipe, images, split_file)
    for source, split in splits.items():
        if len(split.train) < recipe.per_domain:
            raise DataError(
                f"per_domain is {recipe.per_domain}, but {source} has {len(split.train)} images to "
                "train on; choose a smaller batch, or leave the domain out of sources."
            )
    if not allow_gaps:
        check_classes(images, splits)
    check_target(images, splits, recipe.target)


def check_weights(recipe: Recipe) -> None:
    """Reads the initial weights, or downloads them, and tries them on the network.

    Raises:
        DataError: They are damaged, do not fit or cannot be had.
    """
    from bne.models import build

    try:
        build(recipe.backbone, num_classes=2, weights=recipe.weights)
    except (ValueError, RuntimeError) as error:
        raise DataError(f"weights: {error}.") from None


def official_split(images: ImageSet, data: Path) -> Path | None:
    """The official split that lies with the data, if they are of a benchmark that has one.

    Some of the benchmark's domains are enough to recognise it.

    Args:
        images: of the data.
        data: the folder or the table they were opened from.
    """
    folder = data if data.is_dir() else data.parent
    for benchmark in BENCHMARKS.values():
        if benchmark.split_file and set(images.domains) <= set(benchmark.domains):
            table = folder / benchmark.split_file
            return table if table.is_file() else None
    return None


def _backbone(recipe: Recipe) -> Backbone:
    from bne.models.registry import find

    try:
        return find(recipe.backbone)
    except ValueError as error:
        raise DataError(f"backbone: {error}.") from None


def _check_weights(recipe: Recipe, backbone: Backbone) -> None:
    if recipe.weights is None or recipe.weights in backbone.downloads:
        return
    if recipe.weights in DOWNLOADS:
        choices = [*backbone.downloads, "a file"]
        raise DataError(
            f"weights is {recipe.weights}, which has none for backbone {recipe.backbone}; give "
            f"{' or '.join(choices)}."
        )
    if not Path(recipe.weights).is_file():
        raise DataError(f"weights: there is no file {recipe.weights}.")


def _check_method(recipe: Recipe, backbone: Backbone) -> None:
    """Makes the method on a network without values, so that a wrong option costs no training."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    from bne.methods import check_options, create, find

    try:
        method = find(recipe.method).method
    except ValueError as error:
        raise DataError(f"method: {error}.") from None
    hints = _option_types(method)
    for name, value in recipe.options.items():
        try:
            check_options(recipe.method, {name: value})
            convert(hints[name], value)
        except ValueError as error:
            raise DataError(f"options.{name}: {error}.") from None
        except TypeError as error:
            raise DataError(f"options.{name} is {value!r}; it must be {error}.") from None
    with torch.device("meta"):
        try:
            network = backbone.create(2)
        except (ValueError, TypeError) as error:
            raise DataError(f"backbone {recipe.backbone}: {error}.") from None
        normalised = any(isinstance(module, _BatchNorm) for module in network.modules())
        try:
            create(recipe.method, network, ["one", "another"], recipe.options)
        except (ValueError, TypeError) as error:
            place = "options" if normalised else f"backbone {recipe.backbone}"
            raise DataError(f"{place}: {error}.") from None


def _option_types(method: type[Method]) -> dict[str, Any]:
    """Of a class's options, and of those it passes on to the classes above."""
    hints: dict[str, Any] = {}
    for kind in reversed(method.__mro__):
        hints |= get_type_hints(vars(kind).get("__init__", object.__init__))
    return hints


def _nearest(name: str, domains: Sequence[str]) -> str:
    near = get_close_matches(name, domains, n=1)
    if near:
        return f"the nearest domain in the data is {near[0]!r}"
    return f"the domains in the data are {', '.join(map(repr, domains))}"


MANY_PASSES = 10_000  # of images in a step: seconds on a CPU; the paper has 192


def notes(recipe: Recipe, images: ImageSet, split_file: Path | None) -> Iterator[str]:
    """Classes that a domain lacks, an official split that is not followed, and a costly step.

    Args:
        recipe: that fits the images, see `bne.recipes.checks.check_data`.
        images: all there are; none is decoded.
        split_file: of the benchmark, see `bne.recipes.checks.official_split`.

    Yields:
        One sentence each.
    """
    splits = split_sources(recipe, images, split_file)
    for source, classes in missing_classes(images, splits).items():
        yield f"{source} has no images of {listed(classes)} to train on; others have."
    taught = set().union(*taught_classes(images, splits).values())
    for target in recipe.target:
        there = {images.files[number].label for number in images.indices_of([target])}
        absent = [images.classes[label] for label in sorted(taught - there)]
        if absent:
            yield (
                f"{target}, a target, has no images of {listed(absent)}; its accuracy is "
                "that on the other classes."
            )
    if split_file and recipe.validation not in ("auto", "official"):
        yield (
            f"{split_file} is an official split, which validation={recipe.validation} does not "
            "follow; --set validation=official does."
        )
    yield from _costly_step(recipe, len(splits))


def _costly_step(recipe: Recipe, sources: int) -> Iterator[str]:
    """What a step of distance training costs, if that is much: it grows with K squared."""
    entry = find(recipe.method)
    options = {**entry.options, **recipe.options}
    if options.get("distance_training", "never") == "never":
        return
    domains = options.get("clusters") or sources + entry.method.uses_target
    images = recipe.per_domain * domains
    passes = images * (min(options.get("nearest") or domains, domains) + 1)
    if passes > MANY_PASSES:
        way_out = "a smaller per_domain makes it fewer"
        if "nearest" in options:
            way_out = (
                "options.nearest=m runs an image's m nearest branches alone, or "
                "options.max_branches=1 takes less memory"
            )
        yield (
            f"A step of distance training is {images:,} images, {recipe.per_domain} of each of "
            f"{domains} domains, in {passes:,} image passes; {way_out}."
        )


def held_out(recipe: Recipe, images: ImageSet, split_file: Path | None) -> str:
    """How many source images are held out, and by which split, in a sentence.

    Args:
        recipe: that fits the images.
        images: all there are; none is decoded.
        split_file: of the benchmark.
    """
    splits = split_sources(recipe, images, split_file).values()
    count = sum(len(split.validation) for split in splits)
    total = count + sum(len(split.train) for split in splits)
    way = held_out_way(recipe, split_file)
    return f"Held out for validation: {count} of {total} source images, {way}."


def held_out_way(recipe: Recipe, split_file: Path | None) -> str:
    """By which split images are held out: `10 % of every class`."""
    share = recipe.settle_validation(official=split_file is not None).validation
    if share == "official":
        return f"by the official split {split_file}"
    return f"{100 * float(share):g} % of every class"


def split_sources(recipe: Recipe, images: ImageSet, split_file: Path | None) -> dict[str, Split]:
    """The split of every source domain, by name.

    Args:
        recipe: its sources, or all domains that are not held out, in the images' order.
        images: all there are.
        split_file: the benchmark's own split, if there is one.

    Raises:
        DataError: The recipe asks for an official split and there is none, or it cannot be
            followed: one that lies with the data is never passed over for "auto".
    """
    validation = recipe.settle_validation(official=split_file is not None).validation
    sources = recipe.sources or tuple(d for d in images.domains if d not in recipe.target)
    if isinstance(validation, float | int):
        return hold_out(images, sources, validation, recipe.seed)
    if split_file is None:
        raise DataError(
            "validation is 'official', but no official split lies with the data; set it to a "
            "share to hold out, 0.1 for instance."
        )
    return official(images, sources, split_file)
