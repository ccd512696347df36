"""Any network with batch norm as an ensemble of domain branches."""

import copy
from collections.abc import Iterable

from torch import nn

from bne.core.distances import Distance
from bne.core.ensemble import BranchStatistics, DomainEnsemble, Mix, Output
from bne.core.surgery import Momentum, check_copyable


def convert(
    model: nn.Module,
    domains: Iterable[str],
    *,
    momentum: Momentum = 0.01,
    synchronised: bool | None = None,
    distance: str | Distance = "wasserstein",
    layers: Iterable[str] | None = None,
    mix: Mix = "logits",
    nearest: int | None = None,
    branch_statistics: BranchStatistics = "batch",
    weight_gradient: bool = True,
    max_images: int | None = None,
    max_branches: int | None = None,
    output: Output = None,
    shortcuts: bool = True,
) -> DomainEnsemble:
    """Gives every domain its own batch-norm statistics.

    Every branch starts from the network's own statistics, so each answers as `model` does until
    training tells them apart. `model` itself is left as it is.

    Args:
        model: any network with batch-norm layers.
        domains: the domains' names.
        momentum: least share of a new batch in the running statistics, of which a domain's nth has
            1/n, see `DomainBatchNorm`; None averages all batches, "keep" takes over each layer's
            own.
        synchronised: whether batch statistics are those of all processes. None leaves it to the
            layers: those of a `SyncBatchNorm` are, others refuse to train in several processes.
        distance: from images to domains, by name (see `bne.distances`) or as a function.
        layers: the layers whose statistics are compared; None takes all that can be.
        mix: what the weights combine: the branches' "logits" or their "probabilities", or, in
            evaluation, the domains' "statistics" at every layer, so that any number of domains
            costs two passes; training then mixes logits.
        nearest: how many branches are run for each image, the nearest; None runs all. In training
            an image's own branch, whose statistics it defines, is always among them. In evaluation
            it means nothing where "statistics" are mixed.
        branch_statistics: what branch k normalises by in distance training: the "batch" statistics
            of domain k's own images, or its "population" statistics as in Algorithm 1's print.
        weight_gradient: whether distance training shapes the space of domains through the weights.
        max_images: the most images to treat at once in evaluation; None sets no limit.
        max_branches: the most branches to run at once; None sets no limit. In training, branches
            are then run again in the backward pass instead of being kept: less memory, more time.
        output: where the logits are if the network returns more than a tensor: the name of an
            attribute or key, an index, or a function of what it returns.
        shortcuts: whether plain `Conv` layers before the first batch norm and `MaxPool2d` layers
            get subclasses with the same results: the first treat an image once for all branches,
            the second use faster GPU kernels. False leaves them as they are.
    """
    check_copyable(model)
    return DomainEnsemble(
        copy.deepcopy(model),
        domains,
        momentum=momentum,
        synchronised=synchronised,
        distance=distance,
        layers=layers,
        mix=mix,
        nearest=nearest,
        branch_statistics=branch_statistics,
        weight_gradient=weight_gradient,
        max_images=max_images,
        max_branches=max_branches,
        output=output,
        shortcuts=shortcuts,
    )
