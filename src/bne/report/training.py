"""What a run's folder says of its training, finished or not."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from bne.data.images import DataError
from bne.engine.files import plain
from bne.engine.recipe_settings import checked, to_recipe
from bne.engine.result import Result
from bne.engine.saved import INFO
from bne.engine.yaml_text import parse
from bne.report.epochs import read_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bne.engine.events import Epoch

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
    OSError,
    DataError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
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


def _result(text: str) -> Result:
    result = Result.from_dict(json.loads(text))
    isfinite(result.seconds)  # which takes nothing but numbers
    return result
