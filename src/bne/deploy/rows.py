"""Answers as rows: for a table on the terminal, JSON lines, CSV and parquet."""

from __future__ import annotations

import csv
import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from bne.deploy.answers import Answers, Seen
from bne.errors import SettingsError, did_you_mean, require
from bne.training.files import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bne.deploy.manifest import Manifest

    Row = dict[str, Any]
    Write = Callable[[Sequence[Row]], None]

PLACES = ("nearest", "weights", "unusual", "distances")
"""Columns of where an image lies among the domains."""
COLUMNS = ("class", "probability", "top", *PLACES)
SUFFIXES = (".csv", ".jsonl", ".parquet")
GROUP = 4096  # rows that parquet keeps together


def choose_columns(
    model: Manifest, wanted: Sequence[str] | None, top: int, *, one_domain: bool = False
) -> tuple[str, ...]:
    """The columns to show: those wanted, or all that the model has at no extra cost.

    Images taken as one domain have no "unusual", see `Answers.unusual`.

    Raises:
        SettingsError: One is unknown, the model cannot fill it, or `top` is none.
    """
    if top < 1:
        raise SettingsError(f"--top {top}: show at least 1 class.")
    has = [*COLUMNS]
    if not model.branches:
        has = [name for name in has if name not in PLACES]
    elif model.distance is None:
        has = [name for name in has if name not in ("unusual", "distances")]
    if (one_domain or not model.calibration.percentiles) and "unusual" in has:
        has.remove("unusual")
    if wanted is not None:
        wanted = [name for name in wanted if name != "file"]  # which every row has
    for name in wanted or ():
        if name not in COLUMNS:
            raise SettingsError(f"--columns {name}: {did_you_mean(name, COLUMNS)}.")
        if name not in has:
            reason = (
                f"{model.method} has no branches that are weighed by distances, or was exported "
                "without --places"
            )
            if name == "unusual" and model.distance:
                reason = "the model is not calibrated; bne bundle --data does it"
                if one_domain:
                    reason = "images taken as one domain are not compared with single ones"
            raise SettingsError(f"--columns {name}: {reason}.")
    if wanted is not None:
        return tuple(wanted)
    plain = {"distances"} | (set() if top > 1 else {"top"})
    if model.mix == "centre":
        plain |= set(PLACES)
    return tuple(name for name in has if name not in plain)


def rows(names: Sequence[str], answers: Answers, columns: Sequence[str], top: int = 1) -> list[Row]:
    """One row per image, with the columns wanted; numbers are plain ones."""
    known = answers.model.branches

    def by_domain(values: Any) -> list[dict[str, float]]:
        return [dict(zip(known, own, strict=True)) for own in values.tolist()]

    made: dict[str, Callable[[], Sequence[Any]]] = {
        "class": lambda: answers.classes,
        "probability": lambda: answers.probabilities.max(1).tolist(),
        "top": lambda: [
            [{"class": name, "probability": chance} for name, chance in own]
            for own in answers.top(top)
        ],
        "nearest": lambda: answers.nearest_domains or (),
        "weights": lambda: by_domain(answers.weights),
        "unusual": lambda: answers.unusual.tolist() if answers.unusual is not None else (),
        "distances": lambda: by_domain(answers.distances),
    }
    values = {"file": names, **{name: made[name]() for name in columns}}
    return [dict(zip(values, own, strict=True)) for own in zip(*values.values(), strict=True)]


def row_like(model: Manifest, columns: Sequence[str], top: int = 1) -> Row:
    """A row of no image, with the columns and kinds that all rows of a model have."""
    places = np.zeros((1, len(model.branches))) if model.branches else None
    (row,) = rows(
        [""], Answers(model, Seen(np.zeros((1, len(model.classes))), places, places)), columns, top
    )
    return row


def flat(row: Row) -> Row:
    """A row without lists and groups: `class_2` and `probability_2`, `weight_art`."""
    found: Row = {}
    for key, value in row.items():
        if key == "top":
            for place, one in enumerate(value, 1):
                found |= {f"{name}_{place}": own for name, own in one.items()}
        elif isinstance(value, dict):
            found |= {f"{key.removesuffix('s')}_{name}": own for name, own in value.items()}
        else:
            found[key] = value
    return found


def json_lines(file: TextIO) -> Write:
    """Writes rows as JSON, a line each."""

    def write(own: Sequence[Row]) -> None:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in own)

    return write


@contextmanager
def file_writer(path: Path, like: Row) -> Iterator[Write]:
    """A context that writes rows to a .csv, .jsonl or .parquet file, as a whole or not at all.

    Args:
        path: of the file.
        like: a row with the columns and kinds of all, which a table has even if no row follows.

    Raises:
        SettingsError: The file's ending is another.
        MissingLibraryError: pyarrow, which writes parquet, is not installed.
    """
    writers = {".csv": _csv_writer, ".jsonl": _json_writer, ".parquet": _parquet_writer}
    check_suffix(path)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with writers[path.suffix.lower()](partial, flat(like)) as write:
                yield write
            partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def check_suffix(path: Path, option: str = "--out") -> None:
    """Refuses a file of which nobody knows how to write it.

    Raises:
        SettingsError: Its ending is none of `SUFFIXES`.
        MissingLibraryError: pyarrow, which writes parquet, is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SettingsError(f"{option} {path}: end the name in .csv, .jsonl or .parquet.")
    if path.suffix.lower() == ".parquet":
        require("pyarrow", "parquet")


@contextmanager
def _json_writer(path: Path, _: Row) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file:
        yield json_lines(file)


@contextmanager
def _csv_writer(path: Path, like: Row) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(like)

        def write(own: Sequence[Row]) -> None:
            table.writerows(row.values() for row in map(flat, own))

        yield write


@contextmanager
def _parquet_writer(path: Path, like: Row) -> Iterator[Write]:
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    waiting: list[Row] = []
    schema = arrow.Table.from_pylist([like]).schema
    writer = parquet.ParquetWriter(path, schema)

    def flush() -> None:
        writer.write_table(arrow.Table.from_pylist(waiting, schema))
        waiting.clear()

    def write(own: Sequence[Row]) -> None:
        waiting.extend(map(flat, own))
        if len(waiting) >= GROUP:
            flush()

    try:
        yield write
        if waiting:
            flush()
    finally:
        writer.close()


class Table:
    """Rows as lines of text whose columns stand below each other and fit a width.

    Args:
        model: what is known of the model, whose names the columns must have room for.
        columns: to show, beside the file.
        files: names of all files.
        width: of the terminal.
    """

    def __init__(
        self, model: Manifest, columns: Sequence[str], files: Sequence[str], width: int
    ) -> None:
        from rich.cells import cell_len

        names = max(map(cell_len, model.classes))
        room = {"class": names, "probability": 5, "nearest": 7, "unusual": 7}
        if model.branches:
            room["nearest"] = max(7, *map(cell_len, model.branches))
        self._widths = {
            name: max(room[name], len(_title(name))) for name in columns if name in room
        }
        self._top = "top" in columns
        for kind in ("weights", "distances"):
            if kind in columns:
                self._widths |= {
                    f"{kind[:-1]}_{b}": max(5, min(cell_len(b), 12)) for b in model.branches
                }
        rest = width - sum(w + 2 for w in self._widths.values())
        if self._top:
            rest -= min(names, 12) + 7  # of the second class and its probability
        needed = max(4, *map(cell_len, files))
        if rest < min(needed, 20):  # what a narrow terminal can do without
            for name in [name for name in self._widths if "_" in name]:
                rest += self._widths.pop(name) + 2
        for name in ("nearest", "class"):
            if rest < min(needed, 20) and name in self._widths:
                cut = min(self._widths[name] - len(name), 20 - rest)
                self._widths[name] -= cut
                rest += cut
        self._file = max(8, min(needed, rest))
        self._width = width

    @property
    def head(self) -> str:
        """The columns' titles."""
        return self._line("file", {name: _title(name) for name in self._widths}, "")

    def line(self, row: Row) -> str:
        """One image."""
        cells = flat(row)
        texts = {name: _cell(name, cells.get(name)) for name in self._widths}
        later = ", ".join(f"{o['class']} {o['probability']:.2f}" for o in row.get("top", [])[1:])
        return self._line(row["file"], texts, later if self._top else "")

    def _line(self, file: str, texts: dict[str, str], rest: str) -> str:
        # The end of a path tells more.
        cells = [_fitting(file[::-1], self._file, left=False)[::-1]]
        for name, text in texts.items():
            cells.append(_fitting(text, self._widths[name], left=name in ("class", "nearest")))
        line = "  ".join([*cells, *([rest] if rest else [])]).rstrip()
        return _fitting(line, self._width).rstrip()


def _fitting(text: str, width: int, *, left: bool = True) -> str:
    """A text in so many columns of a terminal, of which some letters take two."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    space = " " * (width - cell_len(text))
    return text + space if left else space + text


def _title(name: str) -> str:
    kind, _, domain = name.partition("_")
    if kind == "distance":
        return f"d. {domain}"
    return domain or {"probability": "prob."}.get(kind, kind)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if name == "unusual":
        return f"{value:.0f} %"
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"
