"""Ways to train a network on several domains: one contract, one small file each."""

from bne.methods.adaptation import BNEAdaptation
from bne.methods.bne import BNE
from bne.methods.deepall import DeepAll
from bne.methods.dnet import DNet
from bne.methods.dson import DSON
from bne.methods.freeze_bn import FreezeBatchNorm
from bne.methods.instance_norm import InstanceNorm
from bne.methods.method import Method
from bne.methods.pooled import BNEPooled
from bne.methods.pseudo import BNEPseudo
from bne.methods.registry import check_options, create, entries, find, register

__all__ = [
    "BNE",
    "DSON",
    "BNEAdaptation",
    "BNEPooled",
    "BNEPseudo",
    "DNet",
    "DeepAll",
    "FreezeBatchNorm",
    "InstanceNorm",
    "Method",
    "check_options",
    "create",
    "entries",
    "find",
    "register",
]
