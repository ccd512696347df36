"""Tables of recorded measurements.

    python -m bne.speed.table results/speed.jsonl                          prints them
    python -m bne.speed.table results/speed.jsonl benchmarks/README.md     puts them in their place

Their place is between the lines `<!-- speed -->` and `<!-- /speed -->`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bne.errors import DataError
from bne.speed.records import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bne.speed.records import Record

COLUMNS = (
    "measured", "K", "images", "run", "takes", "images/s", "× plain", "compared with", "ratio",
    "goal",
)  # fmt: skip
BEGIN, END = "<!-- speed -->", "<!-- /speed -->"


def cells(record: Record) -> tuple[str, ...]:
    """A record's texts under `COLUMNS`."""
    # Memory was always that of a call, but older records call it a graph's.
    graph = record["graph"] and record["unit"] == "ms"
    run = "compiled" if record.get("compiled") else "graph" if graph else "calls"
    head = (record["what"], str(record["domains"] or ""), str(record["images"]), run)
    if record["value"] is None:
        return (*head, record["note"], "", "", "", "", "")
    return (
        *head,
        _takes(record),
        "" if record["images_per_s"] is None else f"{record['images_per_s']:,.0f}",
        _ratio(record["to_plain"]),
        _compared_with(record),
        _ratio(record["ratio"]),
        _goal(record),
    )


def title(record: Record) -> str:
    """What all records of a part share, in a line."""
    threads = "" if "CUDA" in record["device"] else f", {record['threads']} threads"
    return (
        f"{record['part']}: {record['backbone']} at {record['size']}², {record['precision']}, "
        f"{record['device']}{threads}, torch {record['torch']}, median of {record['repeat']}"
    )


def by_part(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each part, of each backbone on each device; of several runs, the last's."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for line in records:
        group = found.setdefault((line["device"], line["backbone"], line["part"]), [])
        if group and group[0]["when"] != line["when"]:
            group.clear()
        group.append(line)
    return list(found.values())


def markdown(records: Iterable[Record]) -> str:
    """A table of every part."""
    return "\n".join(map(_table, by_part(records)))


def _table(records: Sequence[Record]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, records)]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{title(records[0])}, {records[0]['when']}:\n\n{lines}"


def place(table: str, page: Path) -> None:
    """Puts tables between the two lines of a page that mark their place.

    Raises:
        DataError: The page has no such lines.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN + "\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"{page}: has no place for the table; add the lines {BEGIN} and {END}.")
    page.write_text(f"{before}{begin}{table}{end}{after}", encoding="utf-8")


def _takes(record: Record) -> str:
    value, unit = record["value"], record["unit"]
    text = f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    if unit != "ms":
        return text
    return f"{text} ± {(record['high'] - record['low']) / 2 / value:.0%}"


def _compared_with(record: Record) -> str:
    if record["reference"] is None:
        return ""
    return f"{record['reference_is']}: {record['reference']:,.4g} {record['unit']}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def _goal(record: Record) -> str:
    if record["goal"] is None:
        return ""
    verdict = {True: "met", False: "missed", None: "not known"}[record["met"]]
    return f"≤ {record['goal']:g}: {verdict}"


def main(arguments: Sequence[str]) -> None:
    """Prints the tables of a file, or puts them into a page."""
    if len(arguments) not in (1, 2):
        sys.exit("Usage: python -m bne.speed.table RECORDS.jsonl [PAGE.md]")
    try:
        table = markdown(read(Path(arguments[0])))
        if len(arguments) == 2:
            place(table, Path(arguments[1]))
        else:
            print(table, end="")
    except (DataError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
