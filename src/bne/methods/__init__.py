"""Ways to train a network on several domains: one contract, one small file each."""

from bne.methods.bne import BNE
from bne.methods.deepall import DeepAll
from bne.methods.method import Method

__all__ = ["BNE", "DeepAll", "Method"]
