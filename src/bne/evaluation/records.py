"""What runs gave, one line of JSON each, in a file that only ever grows.

Several processes may add to it at once. A line cut short by a crash is passed over.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bne.data.images import DataError
from bne.evaluation.identity import Materials, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bne.evaluation.plan import Item

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        experiment: the table or recipe it was run for; others may use it too.
        row: of that table.
        settings: the recipe, as `bne.evaluation.identity.settings` gives it.
        accuracy: {rule: {target domain: {"correct": …, "images": …}}} for the rules "last",
            "validation" and "oracle".
        seconds: it took.
        materials: what it started from.
        epochs: the engine's records, one an epoch.
        analysis: what `bne.evaluation.analysis` found in the trained model.
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


def append(file: Path, record: Record) -> None:
    """Adds a record; it is on the disk when this returns (POSIX only)."""
    import fcntl

    line = json.dumps(record.to_dict(), ensure_ascii=False).encode() + b"\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab+") as records:
        fcntl.flock(records, fcntl.LOCK_EX)
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
