"""Writes docs/results.md and docs/results-details.md from the records in this folder.

python results/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from page.campaign import WANTED, weights_of
from page.comparison_section import (
    batch_section,
    gap_section,
    length_section,
    optimiser_section,
)
from page.course_section import course_section
from page.distance_section import distance_section
from page.final import other_finalists
from page.inside_section import inside_section
from page.main_section import main_section
from page.order_section import order_section
from page.past_section import dson_section, strong_section
from page.runs_section import others_section, seconds_section, start_section
from page.settings_section import settings_section
from page.summary_section import summary_section
from page.tables_section import missing_section, tables_section
from page.variation_section import variation_section
from page.where_section import classes_section, steps_section, weights_section

from bne.benchmark.records import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.records import Record

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "pacs-resnet18"
DOCS = HERE.parent / "docs"
SEARCH, TABLES = "search.jsonl", "tables.jsonl"
PARAGRAPH = "\n\n"


def pages(folder: Path = RECORDS) -> dict[str, str]:
    """By file name: the page, and that of the details, from the records in a folder."""
    files = {path.name: read(path) for path in sorted(folder.glob("*.jsonl"))}
    search = files.get(SEARCH, [])
    records = [record for name, own in files.items() if name != SEARCH for record in own]
    made = (
        f"Written by `python results/make.py` from the records in `results/{folder.name}`; "
        "[results/README.md](../results/README.md) says how they were made."
    )
    return {
        "results.md": _page("Results", made, _short(search, records)),
        "results-details.md": _page(
            "Results in detail",
            f"{made} [Results](results.md) has the main table and what is to be said of it.",
            _details(files, search, records, f"results/{folder.name}/{TABLES}"),
        ),
    }


def _short(search: Sequence[Record], records: Sequence[Record]) -> Mapping[str, Sequence[str]]:
    notes, everything = _notes(), [*search, *records]
    return {
        "In short": [
            f"PACS with ResNet-18, one domain left out at a time. {weights_of(everything)}",
            summary_section(records, other_finalists(search)),
            notes["in short"],
        ],
        "Main table": [weights_of(everything), main_section(records)],
        "The paper's orders and gaps": [gap_section(records), order_section(records)],
        "Where this disagrees with the paper": [
            *_headed(
                {
                    "Step by step": steps_section(records),
                    "Weights in training": weights_section(records),
                    "By class": classes_section(records),
                    "Causes": notes["causes"],
                    "All variants": variation_section(records),
                    "Length of training": length_section(everything),
                    "Optimiser": optimiser_section(search) if search else "",
                    "The course of training": course_section(records),
                    "Batch size": batch_section(records),
                    "The distance": distance_section(_forms(), records),
                }
            ),
        ],
        "Past the paper": _headed(
            {
                "Strong augmentation": _with(strong_section(records), notes["strong"]),
                "DSON under BNE's weights": dson_section(records),
            }
        ),
        "What was run": [start_section(everything), notes["weights"], notes["rules"]],
    }


def _details(
    files: Mapping[str, Sequence[Record]],
    search: Sequence[Record],
    records: Sequence[Record],
    name: str,
) -> Mapping[str, Sequence[str]]:
    wanted = [*WANTED, *other_finalists(search)]
    start = weights_of([*search, *records])
    return {
        "Settings": [start, settings_section(search, records)],
        "Tables": [tables_section(wanted, records)],
        "Other runs": [start, others_section(wanted, records)],
        "Inside the trained networks": [start, inside_section(records), _notes()["map"]],
        "Runs and their time": [seconds_section(files)],
        "What is missing": [missing_section(wanted, records, name)],
    }


def _with(section: str, note: str) -> str:
    """A section and what is to be said of it, if there is one."""
    return f"{section}{PARAGRAPH}{note}" if section else ""


def _headed(parts: Mapping[str, str]) -> list[str]:
    """Parts of a section under headings of their own, without those that are empty."""
    return [f"### {heading}\n\n{text}" for heading, text in parts.items() if text]


def _page(title: str, opening: str, sections: Mapping[str, Sequence[str]]) -> str:
    return f"# {title}\n\n{opening}\n" + "".join(
        f"\n## {heading}\n\n{PARAGRAPH.join(parts)}\n"
        for heading, parts in sections.items()
        if any(parts)
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
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
