"""What is recorded of a run, read from its folder."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from bne.errors import DataError
from bne.recipes.checks import split_sources
from bne.recipes.files import parse
from bne.recipes.settings import checked, to_recipe
from bne.training.events import Epoch
from bne.training.files import plain
from bne.training.folder import Result
from bne.training.model_folder import INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.data.splits import Split
    from bne.training.model_folder import ModelInfo

UNFINISHED = "The run is not finished: what is shown is how far it has come."
NO_EPOCH = "No epoch is finished: there are neither accuracies nor curves."
NO_NETWORK = "The run has no trained network yet: there is nothing to show images to."
NO_RUN = (
    "This is a model's folder without its run: how the model was trained is not known, nor which "
    "images of seen domains were held out."
)
LAST = "The network looked into is that of the last epoch."
BEST = "The network looked into is that of the epoch best on held-out source images."
_UNREADABLE = (
    *(OSError, DataError, ValueError, KeyError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)


@dataclass(frozen=True)
class Training:
    """A run, as far as it is recorded.

    Attributes:
        settings: every setting of the recipe, plain values; empty if they cannot be read.
        environment: it ran in; empty if that cannot be read.
        epochs: all records there are, in order.
        result: None until the run is finished.
        left_out: what is not there, in sentences.
    """

    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    epochs: tuple[Epoch, ...]
    result: Result | None
    left_out: tuple[str, ...]

    @property
    def target(self) -> tuple[str, ...]:
        """The domains held out."""
        recorded = self.epochs[-1].target if self.epochs else ()
        return tuple(self.settings.get("target", recorded))

    @property
    def sources(self) -> tuple[str, ...]:
        """The domains trained on, as far as records name them."""
        recorded = self.epochs[-1].validation if self.epochs else ()
        return tuple(self.settings.get("sources") or recorded)

    @property
    def finished(self) -> bool:
        """Whether it has ended, even if its result cannot be read."""
        return UNFINISHED not in self.left_out


def find_model(run: Path) -> tuple[Path | None, str]:
    """The folder of the network to look into, and a sentence on which of a run's it is.

    A run that is not finished may have its best one; None if there is none yet.
    """
    for folder, sentence in ((run / "model", LAST), (run / "best", BEST)):
        if folder.is_dir():
            return folder, sentence
    known = {"model": LAST, "best": BEST}.get(run.name, "")
    return (run, known) if (run / INFO).is_file() else (None, "")


def read_training(run: Path) -> Training | None:
    """What is recorded of a run.

    Args:
        run: its folder, or that of a model in it.

    Returns:
        None if the folder is no run's.
    """
    if (run / INFO).is_file():
        run = run.parent
    if not (run / "recipe.yaml").is_file():
        return None
    left_out: list[str] = []

    def read(name: str, make: Callable[[str], Any], what: str) -> Any:
        try:
            return make((run / name).read_text())
        except _UNREADABLE as error:
            reason = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
            left_out.append(f"{name} {reason}: {what}.")
            return None

    settings = read("recipe.yaml", _settings, "the settings are left out")
    environment = read("environment.json", _environment, "the environment is left out")
    epochs = read("metrics.jsonl", _epochs, "accuracies and curves are left out")
    result = None
    if not (run / "result.json").exists():
        left_out.append(UNFINISHED)
    else:
        result = read("result.json", _result, "its time is left out")
    if epochs == ():
        left_out.append(NO_EPOCH)
    return Training(settings or {}, environment or {}, epochs or (), result, tuple(left_out))


def _settings(text: str) -> dict[str, Any]:
    recipe = to_recipe(checked(parse(text)))
    settings: dict[str, Any] = plain(recipe.to_dict())
    return settings


def _environment(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError(content)
    return content


def _epochs(text: str) -> tuple[Epoch, ...]:
    """One a line; the last may be cut short by a crash."""
    *lines, last = [line for line in text.splitlines() if line.strip()] or [""]
    records = [json.loads(line) for line in lines]
    with suppress(ValueError):
        records.append(json.loads(last))
    return read_epochs(records)


def read_epochs(records: Iterable[Any]) -> tuple[Epoch, ...]:
    """The epochs of a run, all that pages show of them being there.

    Args:
        records: what `Epoch.to_dict` gave, as JSON has it.

    Raises:
        ValueError: One is no epoch, a number is none, or the epochs are of different domains.
    """
    try:
        epochs = tuple(map(_epoch, records))
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError("no epoch") from error
    if len({(*epoch.validation, None, *epoch.target) for epoch in epochs}) > 1:
        raise ValueError("epochs of different domains")
    return epochs


def _epoch(fields: Any) -> Epoch:
    epoch = Epoch.from_dict(fields)
    scores = [*epoch.validation.values(), *epoch.target.values()]
    for number in (epoch.loss, *(score.accuracy for score in scores)):
        isfinite(number)  # which takes nothing but numbers
    if not epoch.target or not isinstance(epoch.stage, str):
        raise ValueError("no target or no stage")
    return epoch


def _result(text: str) -> Result:
    result = Result.from_dict(json.loads(text))
    isfinite(result.seconds)  # which takes nothing but numbers
    return result


UNKNOWN = (
    "Which images of the seen domains were held out from training is not known: {}. All of them "
    "count as training images."
)


def held_out_images(
    training: Training | None, info: ModelInfo, images: ImageSet, split_file: Path | None
) -> tuple[frozenset[int], str]:
    """The numbers of images that were held out for validation, and what is not known of that.

    Args:
        training: of the run, if there is one.
        info: about its model.
        images: that may be those of the run, some of them, or others.
        split_file: the benchmark's own split that lies with them, if one does.

    Returns:
        The numbers, and a sentence if they cannot be told.
    """
    if training is None:
        return frozenset(), ""  # of which the page says enough
    seen = [d for d in info.domains if d in images.domains and d not in training.target]
    if not seen:
        return frozenset(), ""
    try:
        recipe = replace(to_recipe(checked(training.settings)), sources=tuple(seen))
        if recipe.validation == "official" and split_file is None:
            raise DataError("The benchmark's own split does not lie with the data.")
        splits = split_sources(recipe, images, split_file)
        _compare(training, splits)
    except DataError as error:
        reason = str(error).removesuffix(".")
        return frozenset(), UNKNOWN.format(reason[0].lower() + reason[1:])
    return frozenset(n for split in splits.values() for n in split.validation), ""


def _compare(training: Training, splits: dict[str, Split]) -> None:
    """Refuses a split of other images than the run's."""
    recorded = training.epochs[-1].validation if training.epochs else {}
    for domain, score in recorded.items():
        if domain in splits and len(splits[domain].validation) != score.images:
            raise DataError(
                f"The run held out {score.images} images of {domain}, but of this data it would "
                f"be {len(splits[domain].validation)}."
            )
