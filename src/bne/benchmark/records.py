"""What runs gave, one line of JSON each, in a file that only ever grows.

Several processes may add to it at once. A line cut short by a crash is passed over.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bne.errors import DataError
from bne.methods.registry import find
from bne.recipes.schema import Recipe
from bne.training.files import named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bne.benchmark.plan import Item
    from bne.data.images import ImageSet


@dataclass(frozen=True)
class Materials:
    """What a run starts from besides its recipe; None where it is not known.

    Attributes:
        weights: SHA-256 of the file of initial weights.
        images: SHA-256 of the names of all images.
    """

    weights: str | None = None
    images: str | None = None

    def may_equal(self, other: Materials) -> bool:
        """Whether nothing known of both differs."""
        pairs = ((self.weights, other.weights), (self.images, other.images))
        return all(ours == theirs for ours, theirs in pairs if ours and theirs)

    @classmethod
    def of(cls, weights: str | None, images: ImageSet | None) -> Materials:
        """Reads the weights, where they are a file at hand, and the images' names."""
        return cls(
            _checksum(Path(weights)) if weights else None,
            _digest(sorted(image.name for image in images.files)) if images else None,
        )


def settings(recipe: Recipe) -> dict[str, Any]:
    """The whole recipe, ready for JSON, with every option of the method.

    Weights from a file appear under its name alone: it lies elsewhere on another machine. Where
    statistics are measured, `statistics` tells by which version; records without it have version 1.
    """
    options = {**find(recipe.method).options, **recipe.options}
    weights = Path(recipe.weights).name if recipe.weights else None
    whole = {**recipe.to_dict(), "options": options, "weights": weights}
    if recipe.statistics is not None:
        whole["statistics"] = recipe.statistics
    plain: dict[str, Any] = json.loads(json.dumps(whole))
    return plain


def digest(settings: Mapping[str, Any]) -> str:
    """The same for settings that mean the same.

    Only what differs from today's defaults counts: a setting or option that came later had its
    default's effect before, and a default that has changed since tells old and new apart.
    """
    defaults = _default_settings() | {"options": find(str(settings["method"])).options}
    return _digest(_differing(settings, json.loads(json.dumps(defaults))))[:16]


def _default_settings() -> dict[str, Any]:
    required = {"method": "", "target": ()}
    assert required.keys() == {
        field.name
        for field in fields(Recipe)
        if field.default is MISSING and field.default_factory is MISSING
    }
    return {k: v for k, v in asdict(Recipe(method="", target=())).items() if k not in required}


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if isinstance(value, dict) and isinstance(default, dict):
            value, default = _differing(value, default), {}
        if key not in defaults or value != default:
            differing[key] = value
    return differing


def _checksum(file: Path) -> str | None:
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        experiment: the table or recipe it was run for; others may use it too.
        row: of that table.
        settings: the recipe, as `bne.benchmark.records.settings` gives it.
        accuracy: {rule: {target domain: {"correct": …, "images": …}}}.
        seconds: it took.
        materials: what it started from.
        epochs: the engine's records, one an epoch.
        analysis: what `bne.inspection.analysis` found in the trained model.
        environment: of the run: versions, device, commit.
    """

    experiment: str
    row: str
    settings: Mapping[str, Any]
    accuracy: Mapping[str, Mapping[str, Mapping[str, int]]]
    seconds: float
    materials: Materials = field(default_factory=Materials)
    epochs: tuple[Mapping[str, Any], ...] = ()
    analysis: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Of its settings."""
        return digest(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what tells the run from others comes first."""
        names = ("method", "target", "seed")
        key = {"digest": self.digest, **{name: self.settings[name] for name in names}}
        return {"experiment": self.experiment, "row": self.row, **key, **asdict(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """What `to_dict` gave."""
        groups = ("settings", "accuracy", "analysis", "environment")
        if wrong := [name for name in groups if not isinstance(fields[name], dict)]:
            raise TypeError(f"{wrong[0]} is not a group of fields")
        if not isinstance(fields["settings"]["target"], list):
            raise TypeError("the target is not a list of domains")
        for scores in fields["accuracy"].values():
            for score in scores.values():
                if not 0 <= score["correct"] <= score["images"]:
                    raise ValueError(f"accuracy has {score}")
        return cls(
            experiment=fields["experiment"],
            row=fields["row"],
            **{name: fields[name] for name in groups},
            seconds=float(fields["seconds"]),
            materials=Materials(**fields["materials"]),
            epochs=tuple(fields["epochs"]),
        )


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Waits for any other process that is at work on the same file or folder."""
    lock = path.with_name(f"{path.name}.lock")
    with FileLock(lock):
        yield
        with suppress(PermissionError):  # Windows removes it with the lock
            lock.unlink(missing_ok=True)


def append(file: Path, record: Record) -> None:
    """Adds a record; it is on the disk when this returns."""
    line = json.dumps(record.to_dict(), ensure_ascii=False).encode() + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    with named(file), alone_with(file), file.open("ab+") as records:
        if records.seek(0, os.SEEK_END):
            records.seek(-1, os.SEEK_END)
            if records.read(1) != b"\n":  # a crash cut the last line short
                line = b"\n" + line
        records.write(line)
        records.flush()
        os.fsync(records)


def read(file: Path) -> list[Record]:
    """All records of a file, none if there is no file; a line that is no record is passed over."""
    if not file.exists():
        return []
    if not file.is_file():  # a device might never end
        raise DataError(f"{file} is no file of records; name a file.")
    found = []
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{file}: the records cannot be read ({error.strerror}).") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = Record.from_dict(json.loads(line))
            digest(record.settings)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s, line %d: passed over, it is no record (%r).", file, number, error)
        else:
            found.append(record)
    return found


def finished(records: Iterable[Record], item: Item) -> Record | None:
    """The record of a planned run, whatever table it was run for; None if there is none."""
    same = (r for r in records if r.digest == item.digest and (r.analysis or not item.analysed))
    return next((r for r in same if r.materials.may_equal(item.materials)), None)


def outdated(records: Iterable[Record], items: Iterable[Item]) -> list[Record]:
    """Records of planned runs, but for how statistics were measured: by an earlier version."""
    wanted = {_undated(item.settings) for item in items if "statistics" in item.settings}
    newest = {item.settings["statistics"] for item in items if "statistics" in item.settings}
    return [
        record
        for record in records
        if record.settings.get("statistics", 1) not in newest
        and _undated(record.settings) in wanted
    ]


def _undated(settings: Mapping[str, Any]) -> str:
    return digest({key: value for key, value in settings.items() if key != "statistics"})
