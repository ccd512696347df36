"""The folder of a run: what lies where, written and read."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from filelock import FileLock, Timeout

from bne.data.splits import groups_of
from bne.errors import BneError, DataError, TrainingError
from bne.recipes.files import dump, parse
from bne.recipes.inputs import split_sources
from bne.recipes.schema import checked, to_recipe
from bne.training import checkpoints
from bne.training.events import Epoch, Leaning, Scores, Share, read_epochs, scores_from_dict
from bne.training.files import named, plain, write_json, write_text
from bne.training.identity import Identity
from bne.training.manifest import (
    BUNDLE,
    FILE,
    FILES,
    RESULT,
    Manifest,
    digest_files,
    write_images,
)
from bne.training.model_folder import INFO
from bne.training.scores import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bne.core.options import Lean
    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet
    from bne.recipes.inputs import Inputs
    from bne.training.scores import Rule


REPLACED = (*dict.fromkeys(name.partition("/")[0] for name in FILES), FILE, BUNDLE)


@dataclass(frozen=True)
class Result:
    """Everything a run has found, kept in `result.json`.

    Attributes:
        recipe: every setting, as `Recipe.to_dict` gives them.
        environment: in which it ran.
        epochs: all records, in order.
        accuracy: scores of every target domain, by rule, see `bne.training.scores.RULES`; without
            a target of no domain, and the epochs have those of held-out source images.
        precision: that was really used, "bf16" or "float32".
        target_images: what training knew of the target's images: "unseen", "unlabelled" if they
            joined without their labels, or "none" if there is no target.
        analysis: what the caller's own analysis of the trained network gave.
        seconds: that the run took, evaluation included.
        lean: the share by which the kept network leans on its images' own statistics, or the
            learned shares by layer name. All accuracies above are of share 0 (of `head-only`, of
            the share it is fitted at).
        leaning: the last epoch's network at several shares; empty if its method does not lean.
    """

    recipe: dict[str, Any]
    environment: dict[str, Any]
    epochs: list[Epoch]
    accuracy: dict[str, Scores]
    precision: str
    target_images: Literal["unseen", "unlabelled", "none"]
    analysis: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    lean: Lean = 0.0
    leaning: list[Leaning] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Result:
        """What `to_dict` gave."""
        epochs = [Epoch.from_dict(epoch) for epoch in fields["epochs"]]
        accuracy = {rule: scores_from_dict(scores) for rule, scores in fields["accuracy"].items()}
        leaning = [Leaning.from_dict(found) for found in fields.get("leaning", [])]
        return cls(**{**fields, "epochs": epochs, "accuracy": accuracy, "leaning": leaning})


class RunFolder:
    """Where a run writes: the final model and the one best on the sources' held-out images too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"
        self.best = path / "best"
        self._recipe = path / "recipe.yaml"
        self._identity = path / "materials.json"
        self._metrics = path / "metrics.jsonl"
        self._result = path / RESULT

    def check(self, identity: Identity, *, resume: bool) -> Result | None:
        """Refuses a folder that is another run's; nothing is written.

        Returns:
            The result, if this very run is finished.

        Raises:
            TrainingError: The folder holds another run, or one that cannot be read, or an
                unfinished one that is not to be resumed.
        """
        finished = self._result.exists()
        begun = bool(checkpoints.all_of(self.checkpoints))
        if not finished and not begun:
            own = [name for name in REPLACED if (self.path / name).exists()]
            if own and not self._identity.exists():
                raise TrainingError(
                    f"{self.path / own[0]} is of no run, which would replace it; choose another "
                    "folder."
                )
            return None
        try:
            theirs = Identity.from_dict(json.loads(self._identity.read_text()))
            found = identity.difference(theirs)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise TrainingError(
                f"{self._identity} is damaged, or missing as in runs of earlier versions, so that "
                "nobody can tell what the run is of; choose another folder."
            ) from None
        if found:
            raise TrainingError(f"{self.path} holds another run ({found}); choose another folder.")
        if finished:
            return self._finished()
        if not resume:
            raise TrainingError(
                f"{self.path} holds an unfinished run of this recipe; go on with it by --resume "
                "(resume=True), or choose another folder."
            )
        return None

    def _finished(self) -> Result:
        try:
            return Result.from_dict(json.loads(self._result.read_text()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrainingError(
                f"{self._result} cannot be read ({error!r}); remove it and resume the run."
            ) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A context in which no other process may train here; it ends with this one.

        Raises:
            TrainingError: Another process does.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.path / ".lock").acquire(timeout=0)
        except Timeout:
            raise TrainingError(
                f"Another process trains in {self.path}; wait for it, or choose another folder."
            ) from None
        with lock:
            yield

    def begin(
        self,
        inputs: Inputs,
        prepared: PreparedImages,
        identity: Identity,
        environment: Mapping[str, Any],
        known: Sequence[Epoch],
    ) -> None:
        """Writes what is known before training.

        Of the epochs that were recorded before, all but the `known` ones are forgotten. The
        identity has the recipe too: people may change its file.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self._identity, asdict(identity))
        write_text(self._recipe, dump(plain(inputs.recipe.to_dict())))
        write_images(self.path, inputs, prepared)
        write_json(self.path / "environment.json", environment)
        write_text(self._metrics, "".join(_line(epoch) for epoch in known))

    def record(self, epoch: Epoch) -> None:
        """Adds an epoch to the metrics."""
        with named(self._metrics), self._metrics.open("a") as file:
            file.write(_line(epoch))

    def finish(
        self, result: Result, weights: Mapping[str, str | None], determinism: Mapping[str, Any]
    ) -> None:
        """Writes the manifest, then the result, with which the run is finished.

        Args:
            result: of the run.
            weights: the initial ones, as `Manifest.weights` has them.
            determinism: as `Manifest.determinism` has it.
        """
        text = json.dumps(result.to_dict(), indent=1) + "\n"
        own = {RESULT: hashlib.sha256(text.encode()).hexdigest()}
        files = digest_files(self.path) | own
        Manifest(files, weights, result.environment, determinism).write(self.path)
        write_text(self._result, text)


def _line(epoch: Epoch) -> str:
    return json.dumps(epoch.to_dict()) + "\n"


UNFINISHED = "The run is not finished: what is shown is how far it has come."
NO_EPOCH = "No epoch is finished: there are neither accuracies nor curves."
NO_NETWORK = "The run has no trained network yet: there is nothing to show images to."
NO_RUN = (
    "This is a model's folder without its run: how the model was trained is not known, nor which "
    "images of seen domains were held out."
)
LAST = "The network looked into is that of the last epoch."
BEST = "The network looked into is that of the epoch best on held-out source images."
UNKNOWN = "Which images of the seen domains were held out from training is not known: {}."
ALL_TRAINED_ON = "All of them count as training images."
_FAULTS = (
    *(OSError, BneError, ValueError, KeyError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)


class Kept(NamedTuple):
    """Scores of a network as it is kept.

    Attributes:
        share: by which it leans on its images' own statistics in these scores.
        validation: of the held-out images of each source domain; empty if there are none.
        target: of all images of each target domain.
    """

    share: Share
    validation: Scores
    target: Scores


@dataclass(frozen=True)
class Training:
    """A run, as far as it is recorded in its folder.

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

    def kept(self, rule: Rule = "last") -> Kept | None:
        """What is recorded of the network that a rule keeps; None before the first epoch."""
        epoch = choose(self.epochs).get(rule)
        if epoch is None:
            return None
        if self.result and rule == "last":
            share = "learned" if isinstance(self.result.lean, dict) else self.result.lean
            for own in self.result.leaning:
                if own.share == share:
                    return Kept(own.share, own.validation, own.target)
        return Kept(0.0, epoch.validation, epoch.target)

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
    """What is recorded of a run, whole or not, in its folder or in that of a model in it.

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
        except _FAULTS as error:
            reason = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
            left_out.append(f"{name} {reason}: {what}.")
            return None

    settings = read("recipe.yaml", _read_settings, "the settings are left out")
    environment = read("environment.json", _read_group, "the environment is left out")
    epochs = read("metrics.jsonl", _read_metrics, "accuracies and curves are left out")
    result = None
    if not (run / "result.json").exists():
        left_out.append(UNFINISHED)
    else:
        result = read("result.json", _read_result, "its time is left out")
    if epochs == ():
        left_out.append(NO_EPOCH)
    return Training(settings or {}, environment or {}, epochs or (), result, tuple(left_out))


def _read_settings(text: str) -> Any:
    content = parse(text)
    content["target"]  # which a run's recipe always has, though it may hold out none
    return plain(to_recipe(checked(content)).to_dict())


def _read_group(text: str) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise TypeError(content)
    return content


def _read_metrics(text: str) -> tuple[Epoch, ...]:
    """One epoch per line; the last may be cut short by a crash."""
    *lines, last = [line for line in text.splitlines() if line.strip()] or [""]
    records = [json.loads(line) for line in lines]
    with suppress(ValueError):
        records.append(json.loads(last))
    return read_epochs(records)


def _read_result(text: str) -> Result:
    result = Result.from_dict(json.loads(text))
    isfinite(result.seconds)  # which takes nothing but numbers
    return result


def held_out_images(
    training: Training | None,
    domains: Sequence[str],
    images: ImageSet,
    split_file: Path | None,
) -> tuple[frozenset[int], str]:
    """The numbers of images that were held out for validation, and a sentence if that is unknown.

    Args:
        training: of the run, if there is one.
        domains: that the model was trained on.
        images: that may be those of the run, some of them, or others.
        split_file: the official split that lies with them, if one does.
    """
    if training is None:
        return frozenset(), ""  # of which the page says enough
    seen = [d for d in domains if d in images.domains and d not in training.target]
    if not seen:
        return frozenset(), ""
    recorded = training.epochs[-1].validation if training.epochs else {}
    try:
        recipe = replace(to_recipe(checked(training.settings)), sources=tuple(seen))
        if recipe.validation == "official" and not (split_file or images.is_split):
            raise DataError("The benchmark's own split does not lie with the data.")
        splits = split_sources(recipe, images, split_file, groups_of(images, recipe.group))
        for domain, score in recorded.items():
            here = len(splits[domain].validation) if domain in splits else score.images
            if score.images != here:
                raise DataError(
                    f"The run held out {score.images} images of {domain}, but of this data it "
                    f"would be {here}."
                )
    except BneError as error:
        reason = str(error).removesuffix(".")
        return frozenset(), UNKNOWN.format(reason[0].lower() + reason[1:])
    return frozenset(n for split in splits.values() for n in split.validation), ""
