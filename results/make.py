"""Writes docs/results.md from the records in this folder.

python results/make.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from page.campaign import WANTED, Wanted, difference, weights_of
from page.comparison_section import gap_section, headline, length_section, order_section
from page.inside_section import inside_section
from page.runs_section import others_section, seconds_section, start_section
from page.search import best, settings_tried
from page.settings_section import settings_section
from page.tables_section import missing_section, tables_section

from bne.evaluation.records import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record

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
    own = _own_setting(search)
    wanted = [*WANTED, own] if own else WANTED
    notes = _notes()
    start = weights_of([*search, *records])
    sections = {
        "What was run": [start_section([*search, *records]), notes["weights"], notes["rules"]],
        "Settings": [start, settings_section(search)],
        "Tables": [tables_section(wanted, records)],
        "Other runs": [start, others_section(wanted, records)],
        "Inside the trained networks": [start, inside_section(records)],
        "Where this disagrees with the paper": [
            start,
            gap_section(records, own),
            order_section(records),
            length_section([*search, *records]),
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


def _own_setting(search: Sequence[Record]) -> Wanted | None:
    """DeepAll under the setting that was best for it, if that is not the standard one."""
    own = best(settings_tried(search), "deepall")
    if own is None:
        return None
    tuned = ("train.optimiser.", "train.schedule.")
    changes = difference(own.records[0])
    overrides = {key: value for key, value in changes.items() if key.startswith(tuned)}
    title = "DeepAll with its own best setting"
    return Wanted(title, methods=("deepall",), overrides=overrides) if overrides else None


def _notes() -> dict[str, str]:
    """The prose of notes.md, by its headings."""
    parts = (HERE / "notes.md").read_text(encoding="utf-8").split("## ")[1:]
    return {title.strip(): text.strip() for title, text in (p.split("\n", 1) for p in parts)}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
