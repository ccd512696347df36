"""Running a method: the training loop."""

from bne.engine.loop import train

__all__ = ["train"]
