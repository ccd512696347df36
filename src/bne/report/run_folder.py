"""What a page tells of a run, as `bne.training.folder` reads it."""

from bne.training.folder import (
    BEST,
    LAST,
    NO_EPOCH,
    NO_NETWORK,
    NO_RUN,
    UNFINISHED,
    Training,
    find_model,
    held_out_images,
    read_training,
)

__all__ = [
    "BEST",
    "LAST",
    "NO_EPOCH",
    "NO_NETWORK",
    "NO_RUN",
    "UNFINISHED",
    "Training",
    "find_model",
    "held_out_images",
    "read_training",
]
