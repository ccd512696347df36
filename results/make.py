"""Writes docs/results.md from the records in this folder.

python results/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page.campaign import WANTED, weights_of
from page.comparison_section import (
    batch_section,
    gap_section,
    headline,
    length_section,
    optimiser_section,
    order_section,
)
from page.course_section import course_section
from page.distance_section import distance_section
from page.final import other_finalists
from page.inside_section import inside_section
from page.runs_section import others_section, seconds_section, start_section
from page.settings_section import settings_section
from page.tables_section import missing_section, tables_section

from bne.evaluation.records import read

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "pacs-resnet18"
PAGE = HERE.parent / "docs" / "results.md"
SEARCH, TABLES = "search.jsonl", "tables.jsonl"
PARAGRAPH = "\n\n"


def page(folder: Path = RECORDS) -> str:
    """The whole page, from the records in a folder: those of the search, and all others."""
    files = {path.name: read(path) for path in sorted(folder.glob("*.jsonl"))}
    search = files.get(SEARCH, [])
    records = [record for name, own in files.items() if name != SEARCH for record in own]
    wanted = [*WANTED, *other_finalists(search)]
    notes = _notes()
    start = weights_of([*search, *records])
    sections = {
        "What was run": [start_section([*search, *records]), notes["weights"], notes["rules"]],
        "Settings": [start, settings_section(search, records)],
        "Tables": [tables_section(wanted, records)],
        "Other runs": [start, others_section(wanted, records)],
        "Inside the trained networks": [start, inside_section(records), notes["map"]],
        "Where this disagrees with the paper": [
            start,
            gap_section(records),
            order_section(records),
            length_section([*search, *records]),
            *([optimiser_section(search)] if search else []),
            *filter(None, [course_section(records)]),
            batch_section(),
            distance_section(_forms(), records),
            notes["open"],
        ],
        "Runs and their time": [seconds_section(files)],
        "What is missing": [missing_section(wanted, records, f"results/{folder.name}/{TABLES}")],
    }
    opening = (
        "# Results\n\nWritten by `python results/make.py` from the records in "
        f"`results/{folder.name}`; [results/README.md](../results/README.md) says how they were "
        f"made. {headline(records)}\n"
    )
    return opening + "".join(
        f"\n## {title}\n\n{PARAGRAPH.join(parts)}\n" for title, parts in sections.items()
    )


def _forms() -> list[dict[str, Any]]:
    """What distances.py has recorded."""
    lines = (HERE / "distances.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _notes() -> dict[str, str]:
    """The prose of notes.md, by its headings."""
    parts = (HERE / "notes.md").read_text(encoding="utf-8").split("## ")[1:]
    return {title.strip(): text.strip() for title, text in (p.split("\n", 1) for p in parts)}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
