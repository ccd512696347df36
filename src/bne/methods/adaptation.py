"""BNE with unlabelled images of the target, the first of the paper's future directions."""

from typing import ClassVar

from bne.methods.bne import BNE
from bne.methods.registry import register


@register(
    "bne-adapt",
    "Our formulation could also be easily extended to the domain adaptation setting by injecting "
    "unlabelled samples from the target domain during training",
)
class BNEAdaptation(BNE):
    """BNE with the target as one more domain: its statistics, its branch and its weight.

    Target images come last in every batch, with the label -100: they shape the target's statistics
    but have no part in the cross-entropy of the classes. The arguments are those of `BNE`, with the
    target as the last domain.
    """

    uses_target: ClassVar[bool] = True
