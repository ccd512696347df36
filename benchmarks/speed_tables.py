"""Tables of the records that `speed.py` and `speed_peers.py` leave, in Markdown.

    python benchmarks/speed_tables.py results/speed.jsonl benchmarks/README.md

puts them into the page, between the lines `<!-- speed -->` and `<!-- /speed -->`.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD = "| measured | K | images | run | takes | images/s | × plain | compared with | ratio | goal |"
BEGIN, END = "<!-- speed -->\n", "<!-- /speed -->"

Record = dict[str, Any]


def markdown(records: Iterable[Record]) -> str:
    """A table of each part, backbone and device; of several runs, the last's."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for line in records:
        group = groups.setdefault((line["device"], line["backbone"], line["part"]), [])
        if group and group[0]["when"] != line["when"]:
            group.clear()
        group.append(line)
    tables = []
    for group in groups.values():
        title = "{part}: {backbone} at {size}², {precision}, {device}".format_map(group[0])
        if "CUDA" not in title:
            title += f", {group[0]['threads']} threads"
        title += ", torch {torch}, median of {repeat}, {when}:".format_map(group[0])
        rows = "".join(f"| {' | '.join(cells(line))} |\n" for line in group)
        tables.append(f"{title}\n\n{HEAD}\n{'| --- ' * 10}|\n{rows}")
    return "\n".join(tables)


def cells(line: Record) -> tuple[str, ...]:
    """A record's texts under `HEAD`."""
    value, unit, ratio = line["value"], line["unit"], line["ratio"]
    # Memory was always that of a call, but older records call it a graph's.
    graph = line["graph"] and unit == "ms"
    run = "compiled" if line.get("compiled") else "graph" if graph else "calls"
    head = (line["what"], str(line["domains"] or ""), str(line["images"]), run)
    if value is None:
        return (*head, line["note"], *[""] * 5)
    takes = f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    if unit == "ms":
        takes += f" ± {(line['high'] - line['low']) / 2 / value:.0%}"
    compared = line["reference"] and f"{line['reference_is']}: {line['reference']:,.4g} {unit}"
    verdict = {True: "met", False: "missed", None: "not known"}[line["met"]]
    return (
        *head,
        takes,
        f"{line['images_per_s']:,.0f}" if line["images_per_s"] else "",
        f"{line['to_plain']:.2f}" if line["to_plain"] else "",
        compared or "",
        "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}",
        f"≤ {line['goal']:g}: {verdict}" if line["goal"] else "",
    )


def main(records: Path, page: Path) -> None:
    """Puts the tables of a file of records into a page."""
    tables = markdown(map(json.loads, records.read_text(encoding="utf-8").splitlines()))
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{page}: there is no place for the tables; add the lines {BEGIN.strip()}, {END}.")
    page.write_text(f"{before}{begin}{tables}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
