"""Images of several domains: where they come from, how they are read, split and checked."""

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
