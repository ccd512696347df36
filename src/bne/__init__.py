"""Batch Normalization Embeddings for deep domain generalization.

The core, which needs torch alone: `convert` a network, run it, see where images lie among the
domains. Everything else is in subpackages, which are imported when they are used.
"""

from bne import distances
from bne.distances import bhattacharyya, uniform, wasserstein
from bne.embedding import Embedding
from bne.ensemble import DomainEnsemble, Prediction, convert, revert
from bne.norm import DomainBatchNorm

__all__ = [
    "DomainBatchNorm",
    "DomainEnsemble",
    "Embedding",
    "Prediction",
    "bhattacharyya",
    "convert",
    "distances",
    "revert",
    "uniform",
    "wasserstein",
]
__version__ = "0.1.0"
