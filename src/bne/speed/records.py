"""Measurements as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from bne.errors import DataError
from bne.training.environment import describe

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bne.speed.measurement import Measurement
    from bne.speed.settings import Settings

Record = dict[str, Any]


def circumstances(settings: Settings, when: str) -> Record:
    """What all records of a run share.

    Args:
        settings: of the run.
        when: it began; tells it from other runs in the file.
    """
    machine = describe(settings.device, None)
    del machine["weights"]
    shared = {name: value for name, value in asdict(settings).items() if name != "device"}
    return {"when": when, **shared, "threads": torch.get_num_threads(), **machine}


def record(measurement: Measurement, shared: Record) -> Record:
    """A measurement with its ratios, in its circumstances.

    `domains` is the measured network's own, `source_domains` those of the settings.
    """
    shared = {"source_domains" if key == "domains" else key: v for key, v in shared.items()}
    return {
        **asdict(measurement),
        "images_per_s": measurement.images_per_s,
        "to_plain": measurement.to_plain,
        "ratio": measurement.ratio,
        "met": measurement.met,
        **shared,
    }


def append(records: Iterable[Record], path: Path) -> None:
    """Adds lines to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in records)


def read(path: Path) -> list[Record]:
    """All lines of a file.

    Raises:
        DataError: A line is not a record.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_parsed(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]


def _parsed(line: str, where: str) -> Record:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"when", "what", "value"} <= found.keys():
        raise DataError(
            f"{where}: is no measurement; bne speed --out writes them. Delete the line."
        )
    return found
