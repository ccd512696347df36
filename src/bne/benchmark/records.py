"""What runs gave, one line of JSON each, in a file that only ever grows.

Several processes may add to it at once. A line cut short by a crash is passed over.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bne.errors import DataError
from bne.training.events import read_epochs
from bne.training.files import named
from bne.training.identity import Identity
from bne.training.scores import CALMER, undone
from bne.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bne.benchmark.plan import Item

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """A finished run.

    Attributes:
        experiment: the table or recipe it was run for; others may use it too.
        row: of that table.
        settings: the recipe, as `bne.training.identity.settings_of` gives it.
        accuracy: {rule: {target domain: {"correct": …, "images": …, "balanced": …,
            "unbalanced": …}}}; earlier versions wrote the first two alone.
        seconds: it took.
        materials: checksums of the `weights` and `images` it started from, as far as known.
        epochs: the engine's records, one per epoch.
        analysis: what `bne.inspection.analysis` found in the trained model.
        environment: of the run: versions, device, commit.
        leaning: the same network at several shares, one `bne.training.events.Leaning` each.
    """

    experiment: str
    row: str
    settings: Mapping[str, Any]
    accuracy: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seconds: float
    materials: Mapping[str, str | None] = field(default_factory=dict)
    epochs: tuple[Mapping[str, Any], ...] = ()
    analysis: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    leaning: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def identity(self) -> Identity:
        """What tells the run from others."""
        return Identity.recorded(self.settings, self.materials)

    @property
    def digest(self) -> str:
        """Of its settings."""
        return self.identity.digest

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what tells the run from others comes first."""
        names = ("method", "target", "seed")
        key = {"digest": self.digest, **{name: self.settings[name] for name in names}}
        return {"experiment": self.experiment, "row": self.row, **key, **asdict(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """What `to_dict` gave.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: It is something else.
        """
        groups = ("settings", "accuracy", "materials", "analysis", "environment")
        if wrong := [name for name in groups if not isinstance(fields[name], dict)]:
            raise TypeError(f"{wrong[0]} is not a group of fields")
        if not isinstance(fields["settings"]["target"], list):
            raise TypeError("the target is not a list of domains")
        for scores in fields["accuracy"].values():
            for score in scores.values():
                if not 0 <= score["correct"] <= score["images"]:
                    raise ValueError(f"accuracy has {score}")
        record = cls(
            experiment=fields["experiment"],
            row=fields["row"],
            **{name: fields[name] for name in groups},
            seconds=float(fields["seconds"]),
            epochs=tuple(fields["epochs"]),
            leaning=tuple(fields.get("leaning", ())),
        )
        record.identity.digest  # noqa: B018  fails if there is no such method
        return record


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
    strange = []
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{file}: the records cannot be read ({error.strerror}).") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(Record.from_dict(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            strange.append((number, error))
    if strange:
        others = f" and {len(strange) - 1} other lines" if len(strange) > 1 else ""
        first, why = strange[0]
        logger.warning("%s, line %d%s: passed over, no record (%r).", file, first, others, why)
    return found


def finished(records: Iterable[Record], item: Item) -> Record | None:
    """The record of a planned run, whatever table it was run for; None if there is none."""
    usable = (record for record in records if record.analysis or not item.analysed)
    return next((record for record in usable if item.identity.may_be(record.identity)), None)


MADE = ("code_sha256", "platform", "device")
LAST = 24  # records


def newest(records: Sequence[Record]) -> Sequence[Record]:
    """The last ones of the version and the machine that made the very last: their times hold now.

    Earlier versions may have been slower, and a machine busier.
    """

    def made(record: Record) -> list[Any]:
        return [record.environment.get(key) for key in MADE]

    return [record for record in records if made(record) == made(records[-1])][-LAST:]


def how_many_undone(runs: Sequence[Record], classes: int) -> str:
    """In how many runs training undid what the network knew, in a sentence; or nothing."""
    count = sum(bool(undone(read_epochs(run.epochs), classes)) for run in runs)
    if not count:
        return ""
    return (
        f"In {count} of {counted(len(runs), 'run')} training undid much of what the network knew; "
        f"how well they bore that tells them apart. {CALMER}"
    )


def nearest(
    records: Iterable[Record], items: Iterable[Item]
) -> tuple[list[Record], dict[str, Any]]:
    """Records that differ from planned runs of their method in the fewest settings, and these.

    Targets, sources and seeds do not count. The settings are as the records have them.
    """
    kinds = {item.recipe.method: item.identity for item in items}
    found: dict[str, list[Record]] = {}
    for record in records:
        if own := kinds.get(record.settings["method"]):
            unlike = own.unlike(record.identity, "target", "sources", "seed")
            found.setdefault(json.dumps(unlike), []).append(record)
    if not found:
        return [], {}
    fewest = min(found, key=lambda key: (len(json.loads(key)), -len(found[key])))
    return found[fewest], json.loads(fewest)


def outdated(records: Iterable[Record], items: Iterable[Item]) -> list[Record]:
    """Records of planned runs, but for how statistics or averages were made: by an earlier one."""
    measured = [item.settings for item in items if "statistics" in item.settings]
    newest = {undated(settings): settings["statistics"] for settings in measured}

    def is_old(settings: Mapping[str, Any]) -> bool:
        own = newest.get(undated(settings))
        return own is not None and settings.get("statistics", 1) != own

    return [record for record in records if is_old(record.settings)]


def undated(settings: Mapping[str, Any]) -> str:
    """The digest of settings, but for how statistics and averages were made."""
    return Identity({key: value for key, value in settings.items() if key != "statistics"}).digest
