"""Checks conversion on every network of torchvision's and timm's zoos, and writes docs/zoo.md.

python benchmarks/zoo.py --afresh                           all of it, on the CPU
python benchmarks/zoo.py --afresh --device cuda --jobs 12   the large ones want a GPU
python benchmarks/zoo.py                                    what is not recorded yet
python benchmarks/zoo.py --only resnet18
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bne.benchmark.execute import in_processes

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "zoo.jsonl"
TABLE = ROOT / "docs" / "zoo.md"
KILLED = "its process was killed, perhaps for lack of memory"

Record = dict[str, Any]


def main() -> None:
    """Runs what is not recorded yet, then writes the table."""
    from zoo_check import names

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes, which share the device")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", default="", help="networks whose name contains this")
    which.add_argument(
        "--afresh",
        action="store_true",
        help="record all in RECORDS.new, which replaces RECORDS at the end; after an interruption "
        "the same command goes on from there",
    )
    parser.add_argument(
        "--records", type=Path, default=RECORDS, help="if not the repository's: no page is written"
    )
    options = parser.parse_args()

    records: Path = options.records.resolve()
    written = records.with_name(f"{records.name}.new") if options.afresh else records
    done = {record["name"] for record in read(written)}
    todo = [name for name in names() if options.only in name and name not in done]
    written.parent.mkdir(exist_ok=True)
    with written.open("a") as file:
        for number, record in enumerate(sweep(todo, options.device, options.jobs), 1):
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{number}/{len(todo)} {record['name']}: {record['result']}", flush=True)
    written.replace(records)
    if records == RECORDS:
        TABLE.write_text(table(read(records)))
    sys.exit(any(record["result"] == "failed" for record in read(records)))


def sweep(todo: Sequence[str], device: str, jobs: int) -> Iterator[Record]:
    """The networks' records as they come; a process that dies does not stop the others."""
    for name, record in in_processes(partial(examine, device=device), todo, jobs):
        yield record or {**about(name, device), "result": "failed", "reason": KILLED}


def about(name: str, device: str) -> Record:
    """What every record begins with."""
    import torch

    library = name.split("/")[0]
    versions = {"library": f"{library} {version(library)}", "torch": torch.__version__}
    return {"name": name, **versions, "device": device}


def examine(name: str, device: str) -> Record:
    """One network's record; a failure is a result, not an error."""
    import torch
    from zoo_check import check, has_batch_norm

    warnings.simplefilter("ignore")
    torch.set_num_threads(1 if device != "cpu" else torch.get_num_threads())
    record = about(name, device)
    try:
        if not has_batch_norm(name, device):
            return {**record, "result": "no batch norm"}
        return {**record, "result": "passed", **check(name, device)}
    except Exception as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        return {**record, "result": "failed", "reason": reason}


def read(path: Path) -> list[Record]:
    """The records, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(records: list[Record]) -> str:
    """The page of the docs."""
    records = sorted(records, key=lambda record: record["name"])
    lines = [
        "# Networks that convert",
        "",
        "Written by `make zoo`, from `results/zoo.jsonl`. For every network of torchvision's",
        "classification zoo and of timm, untrained, with random batch-norm statistics and",
        "parameters (where these make the network amplify rounding: the statistics of a training",
        "pass), in float64, at the smallest input it takes:",
        "",
        "- right after conversion to three domains, every batch norm, each branch and the mixture",
        "  give in evaluation the original's output;",
        "- converting back gives the original's classes and, to the last bit, its state;",
        "- with one domain and the original's momentum, a training step gives the original's",
        "  output and running statistics, allowing for the biased variance.",
        "",
        "The versions and the device in a row are those its networks were checked with.",
        "",
        "| library | torch | device | networks | with batch norm | passed | failed |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for setting in sorted({_setting(record) for record in records}):
        results = Counter(r["result"] for r in records if _setting(r) == setting)
        passed, failed = results["passed"], results["failed"]
        counts = f"{results.total()} | {passed + failed} | {passed} | {failed}"
        lines.append(f"| {' | '.join(setting)} | {counts} |")
    lines += [
        "",
        "| network | batch-norm layers | kinds | input | result |",
        "| --- | ---: | --- | ---: | --- |",
    ]
    for record in records:
        if record["result"] == "passed":
            kinds = ", ".join(record["kinds"])
            row = f"{record['layers']} | {kinds} | {record['size']} | passed"
        elif record["result"] == "failed":
            row = f"| | | failed: {record['reason']}"
        else:
            continue
        lines.append(f"| {record['name']} | {row} |")
    return "\n".join(lines) + "\n"


def _setting(record: Record) -> tuple[str, str, str]:
    return record["library"], record["torch"], record["device"]


if __name__ == "__main__":
    main()
