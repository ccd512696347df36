"""`bne demo`: the method on handwritten digits, in minutes and without a GPU or a download."""

from bne.demo.experiment import METHODS, ROWS, Outcome, Settings, Unseen, compare

__all__ = ["METHODS", "ROWS", "Outcome", "Settings", "Unseen", "compare"]
