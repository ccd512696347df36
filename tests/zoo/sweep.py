"""Checks conversion on every network of torchvision's and timm's zoos, and writes docs/zoo.md.

python -m tests.zoo.sweep --afresh                           all of it, on the CPU
python -m tests.zoo.sweep --afresh --device cuda --jobs 12   the large ones want a GPU
python -m tests.zoo.sweep                                    what is not recorded yet
python -m tests.zoo.sweep --only resnet18
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.zoo.check import check, has_batch_norm, names

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "results" / "zoo.jsonl"
TABLE = ROOT / "docs" / "zoo.md"

Record = dict[str, Any]


def main() -> None:
    """Runs what is not recorded yet, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes, which share the device")
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--afresh", action="store_true", help="forget what is recorded")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args()

    if options.afresh:
        options.records.unlink(missing_ok=True)
    done = {record["name"] for record in read(options.records)}
    todo = [name for name in names() if options.only in name and name not in done]
    options.records.parent.mkdir(exist_ok=True)
    context = get_context("spawn")
    with (
        ProcessPoolExecutor(options.jobs, mp_context=context) as pool,
        options.records.open("a") as file,
    ):
        futures = [pool.submit(examine, name, options.device) for name in todo]
        for number, future in enumerate(as_completed(futures), 1):
            record = future.result()
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{number}/{len(todo)} {record['name']}: {record['result']}", flush=True)
    records = read(options.records)
    TABLE.write_text(table(records))
    sys.exit(any(record["result"] == "failed" for record in records))


def examine(name: str, device: str) -> Record:
    """One network's record; a failure is a result, not an error."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1 if device != "cpu" else torch.get_num_threads())
    library = name.split("/")[0]
    record: Record = {"name": name, "library": f"{library} {version(library)}"}
    record |= {"torch": torch.__version__, "device": device}
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
        "- reverting gives back the original's classes and, to the last bit, its state;",
        "- with one domain and the original's momentum, a training step gives the original's",
        "  output and running statistics, allowing for the biased variance.",
        "",
        "| library | networks | with batch norm | passed | failed |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for library in sorted({record["library"] for record in records}):
        results = Counter(r["result"] for r in records if r["library"] == library)
        passed, failed = results["passed"], results["failed"]
        total = results.total()
        lines.append(f"| {library} | {total} | {passed + failed} | {passed} | {failed} |")
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


if __name__ == "__main__":
    main()
