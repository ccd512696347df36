"""Images of several domains: where they come from, how they are read, split and checked."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bne.data.benchmarks import BENCHMARKS, Benchmark, find_benchmark
    from bne.data.images import ImageFile, ImageSet, decode
    from bne.data.sources import open_images
    from bne.data.splits import Split, hold_out, official

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "ImageFile",
    "ImageSet",
    "Split",
    "decode",
    "find_benchmark",
    "hold_out",
    "official",
    "open_images",
]

_HOMES = {
    "benchmarks": ("BENCHMARKS", "Benchmark", "find_benchmark"),
    "images": ("ImageFile", "ImageSet", "decode"),
    "sources": ("open_images",),
    "splits": ("Split", "hold_out", "official"),
}


def __getattr__(name: str) -> Any:
    """Imports what reads images when asked: `bne.DomainBatchSampler` needs torch alone."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"bne.data.{module}"), name)
    raise AttributeError(f"module 'bne.data' has no attribute {name!r}")
