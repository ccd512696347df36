"""The sections on the runs themselves: what they ran on, what else was run, and their time."""

from __future__ import annotations

from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

from bne.benchmark.tables import AWAITED, accuracy
from bne.training.scores import RULES
from page.campaign import WEIGHTS, WEIGHTS_NAME, target
from page.kinds import by_kind
from page.words import listed, plural, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.records import Record
    from page.campaign import Wanted


def start_section(records: Sequence[Record]) -> str:
    """Initial weights, device, versions and seeds, as recorded."""
    if not records:
        return "No run is recorded."
    weights = listed(_weights(record) for record in records)
    device = listed(str(record.environment.get("device")) for record in records)
    precision = listed(str(record.environment.get("precision")) for record in records)
    names = ("bne", "torch", "torchvision")
    versions = listed(f"{n} {r.environment.get(n)}" for n in names for r in records)
    seeds = Counter(record.settings["seed"] for record in records)
    counts = listed(f"{seed} ({plural(count, 'run')})" for seed, count in sorted(seeds.items()))
    data = listed(str(record.materials.images)[:12] for record in records)
    return "\n".join(
        [
            f"- Initial weights: {weights}.",
            f"- Data: PACS with its official split; SHA-256 of the images' names {data}….",
            f"- Device: {device}; precision {precision}; {versions}.",
            f"- Seeds: {counts}.",
        ]
    )


def others_section(wanted: Sequence[Wanted], records: Sequence[Record]) -> str:
    """Runs that are in no table."""
    used = {id(record) for one in wanted for _, record in one.found(records) if record}
    kinds = by_kind([record for record in records if id(record) not in used])
    targets = sorted({target(record) for own in kinds.values() for record in own})
    rows = []
    for kind, own in kinds.items():
        for rule in RULES:
            means = [[accuracy(r, rule) for r in own if target(r) == t] for t in targets]
            cells = [[v for v in values if v is not None] for values in means]
            seeds = max(len(values) for values in cells)
            figures = [f"{fmean(values):.1f}" if values else AWAITED for values in cells]
            rows.append([kind, rule, *figures, str(seeds)])
    if not rows:
        return "None: every recorded run is in a table above."
    return table(["run", "rule", *targets, "seeds"], rows, texts=2)


def seconds_section(files: Mapping[str, Sequence[Record]]) -> str:
    """How long runs took; `files` has the records of each file."""
    rows = []
    for file, records in files.items():
        groups: dict[tuple[str, int], list[Record]] = {}
        for record in records:
            key = (record.settings["method"], record.settings["train"]["epochs"])
            groups.setdefault(key, []).append(record)
        for (method, epochs), own in sorted(groups.items()):
            seconds = [record.seconds for record in own]
            span = f"{min(seconds):.0f} to {max(seconds):.0f}"
            bare = f"{max(_without_head(record) for record in own):.0f}"
            figures = [epochs, len(own), f"{fmean(seconds):.0f}", span, bare]
            rows.append([file, method, *map(str, figures)])
    head = ["records", "method", "epochs", "runs", "seconds, mean", "from, to", "longest, no head"]
    total = sum(record.seconds for records in files.values() for record in records)
    count = sum(len(records) for records in files.values())
    text = (
        f"{plural(count, 'run')}, {total:.0f} seconds if they are added up. Runs that shared the "
        "device (`--parallel`) took longer than they would have alone, and the device was busy for "
        "less than the sum. The last column leaves out the steps of the head phase: where the runs "
        "of a row went side by side, it is the time of the whole row."
    )
    return f"{text}\n\n{table(head, rows, texts=2)}"


def _without_head(record: Record) -> float:
    """The seconds of a run, evaluation included, but for the steps of its head phase."""
    return record.seconds - sum(e["seconds"] for e in record.epochs if e["phase"] == "head")


def _weights(record: Record) -> str:
    name = record.settings["weights"]
    shown = WEIGHTS_NAME if name == WEIGHTS else str(name)
    return f"`{shown}`, SHA-256 {str(record.materials.weights)[:12]}…"
