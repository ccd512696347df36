"""Ways to train a network on several domains: one contract, one small file each."""

from bne.methods.bne import BNE
from bne.methods.deepall import DeepAll
from bne.methods.method import Method
from bne.methods.registry import check_options, create, entries, find, register

__all__ = ["BNE", "DeepAll", "Method", "check_options", "create", "entries", "find", "register"]
