"""Batch Normalization Embeddings for deep domain generalization.

The core, which needs torch alone: `convert` a network, run it, see where images lie among the
domains. Everything else is in subpackages.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bne.api import compare, from_pretrained, load, train, tune, verify
    from bne.core import distances
    from bne.core.convert import convert
    from bne.core.distances import bhattacharyya, uniform, wasserstein
    from bne.core.embedding import Embedding
    from bne.core.ensemble import DomainEnsemble
    from bne.core.head import fit_head
    from bne.core.norm import DomainBatchNorm
    from bne.core.prediction import Prediction
    from bne.core.statistics import forget_skipped_step, recompute_statistics
    from bne.data.sampler import DomainBatchSampler

__all__ = [
    "DomainBatchNorm",
    "DomainBatchSampler",
    "DomainEnsemble",
    "Embedding",
    "Prediction",
    "bhattacharyya",
    "compare",
    "convert",
    "distances",
    "fit_head",
    "forget_skipped_step",
    "from_pretrained",
    "load",
    "recompute_statistics",
    "train",
    "tune",
    "uniform",
    "verify",
    "wasserstein",
]
__version__ = "0.1.0"

_HOMES = {
    "api": ("compare", "from_pretrained", "load", "train", "tune", "verify"),
    "core.convert": ("convert",),
    "core.distances": ("bhattacharyya", "uniform", "wasserstein"),
    "core.embedding": ("Embedding",),
    "core.ensemble": ("DomainEnsemble",),
    "core.head": ("fit_head",),
    "core.norm": ("DomainBatchNorm",),
    "core.prediction": ("Prediction",),
    "core.statistics": ("forget_skipped_step", "recompute_statistics"),
    "data.sampler": ("DomainBatchSampler",),
}


def __getattr__(name: str) -> Any:
    """Imports torch only when something that needs it is asked for: `bne --help` does not."""
    if name == "distances":
        return import_module("bne.core.distances")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"bne.{module}"), name)
    if name in _modules():
        return import_module(f"bne.{name}")
    raise AttributeError(f"module 'bne' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_modules()})


def _modules() -> set[str]:
    """Modules and subpackages, but for those that are not to be imported, as `__main__`."""
    return {found.name for found in iter_modules(__path__) if not found.name.startswith("_")}
