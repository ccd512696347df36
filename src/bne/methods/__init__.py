"""Ways to train a network on several domains: one contract, one small file each."""

from bne.methods.baselines import DeepAll, FreezeBatchNorm, InstanceNorm
from bne.methods.bne import BNE
from bne.methods.crossgrad import CrossGrad
from bne.methods.dnet import DNet
from bne.methods.dsam import DSAM
from bne.methods.dson import DSON
from bne.methods.epi_fcr import EpiFCR
from bne.methods.fusion import Fusion
from bne.methods.future import BNEAdaptation, BNEPooled
from bne.methods.head_only import HeadOnly
from bne.methods.jigen import JiGen
from bne.methods.masf import MASF
from bne.methods.metareg import MetaReg
from bne.methods.method import Method, check_options, create, entries, find, register
from bne.methods.mixstyle import MixStyle
from bne.methods.mldg import MLDG
from bne.methods.mmld import MMLD
from bne.methods.points import DeepAllPoints, Points
from bne.methods.pseudo import BNEPseudo
from bne.methods.rsc import RSC

__all__ = [
    "BNE",
    "DSAM",
    "DSON",
    "MASF",
    "MLDG",
    "MMLD",
    "RSC",
    "BNEAdaptation",
    "BNEPooled",
    "BNEPseudo",
    "CrossGrad",
    "DNet",
    "DeepAll",
    "DeepAllPoints",
    "EpiFCR",
    "FreezeBatchNorm",
    "Fusion",
    "HeadOnly",
    "InstanceNorm",
    "JiGen",
    "MetaReg",
    "Method",
    "MixStyle",
    "Points",
    "check_options",
    "create",
    "entries",
    "find",
    "register",
]
