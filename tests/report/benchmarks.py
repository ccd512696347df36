"""Benchmarks that were never run, with figures that are easy to compute by hand."""

from dataclasses import replace

from bne.recipes.files import Experiment
from tests.benchmark.examples import item, record
from tests.docs.pages import ROOT
from tests.report.models import epochs

RECORDS = ROOT / "results/pacs-resnet18/tables.jsonl"
TARGETS = ("art", "photo", "sketch")
ENVIRONMENT = {
    "bne": "0.1.0",
    "torch": "2.11.0",
    "device": "a GPU, CUDA 13.0",
    "weights": {"name": "w.safetensors", "sha256": "0123456789abcdef" * 4},
}


def experiment(name: str = "of-mine", **changes) -> Experiment:
    start = Experiment(name, "Some methods", {}, None, (), None, ())
    return replace(start, **changes)


def benchmark(figures: dict[str, list[list[int | None]]], methods: dict[str, str] | None = None):
    """Runs with their records.

    Args:
        figures: by row, then by seed: right answers in 1000 on each target, None for no run yet.
        methods: by row; "bne" where none is given.
    """
    found = []
    for row, by_seed in figures.items():
        method = (methods or {}).get(row, "bne")
        for seed, rights in enumerate(by_seed):
            for target, right in zip(TARGETS, rights, strict=False):
                one = item(method, target, seed, row)
                known = None if right is None else finished(one, right, seed)
                found.append((one, known))
    return found


def finished(one, right: int, seed: int):
    """A record whose oracle is right in ten images more."""
    target = one.recipe.target[0]
    made = record(one, right, environment=ENVIRONMENT)
    scores = {target: {"correct": right + 10, "images": 1000}}
    sources = tuple(name for name in TARGETS if name != target)
    lines = tuple(epoch.to_dict() for epoch in epochs(sources, target, shift=seed))
    return replace(made, accuracy={**made.accuracy, "oracle": scores}, epochs=lines)
