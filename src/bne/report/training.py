"""What a run's folder says of its training, finished or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.engine.events import Epoch
from bne.engine.result import Result
from bne.engine.saved import INFO
from bne.engine.yaml_text import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

UNFINISHED = "The run is not finished: what is shown is how far it has come."
NO_EPOCH = "No epoch is finished: there are neither accuracies nor curves."
NO_NETWORK = "The run has no trained network yet: there is nothing to show images to."
NO_RUN = (
    "This is a model's folder without its run: how the model was trained is not known, nor which "
    "images of seen domains were held out."
)
LAST = "The network looked into is that of the last epoch."
BEST = "The network looked into is that of the epoch best on held-out source images."


@dataclass(frozen=True)
class Training:
    """A run, as far as it is recorded.

    Attributes:
        settings: the recipe, plain values as in the file; empty if that cannot be read.
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
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
            left_out.append(f"{name} {reason}: {what}.")
            return None

    settings = read("recipe.yaml", _settings, "the settings are left out")
    environment = read("environment.json", _group, "the environment is left out")
    epochs = read("metrics.jsonl", _epochs, "accuracies and curves are left out") or ()
    result = None
    if not (run / "result.json").exists():
        left_out.append(UNFINISHED)
    else:
        result = read(
            "result.json", lambda text: Result.from_dict(json.loads(text)), "its time is left out"
        )
    if not epochs:
        left_out.append(NO_EPOCH)
    return Training(settings or {}, environment or {}, epochs, result, tuple(left_out))


def _settings(text: str) -> dict[str, Any]:
    content = _group(text)
    return {"method": content["method"], "target": content["target"], **content}


def _group(text: str) -> dict[str, Any]:
    content = parse(text)  # JSON is YAML too
    if not isinstance(content, dict):
        raise TypeError(content)
    return content


def _epochs(text: str) -> tuple[Epoch, ...]:
    """One a line; the last may be cut short by a crash."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Epoch.from_dict(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            if number < len(lines):
                raise
    return tuple(found)
