"""Any network with batch norm as an ensemble of domain branches."""

import copy
from collections.abc import Iterable

from torch import nn

from bne.core.distances import Distance
from bne.core.ensemble import DomainEnsemble
from bne.core.options import BranchStatistics, Layers, Lean, Mix, Output
from bne.core.surgery import Momentum, check_copyable


def convert(
    model: nn.Module,
    domains: Iterable[str] = ("all",),
    *,
    momentum: Momentum = 0.01,
    synchronised: bool | None = None,
    distance: str | Distance = "wasserstein",
    layers: Layers = None,
    mix: Mix = "logits",
    lean: Lean = 0.0,
    nearest: int | None = None,
    domains_per_step: int | None = None,
    branch_statistics: BranchStatistics = "batch",
    weight_gradient: bool = True,
    max_images: int | None = None,
    max_branches: int | None = None,
    output: Output = None,
    shortcuts: bool = True,
) -> DomainEnsemble:
    """Gives every domain its own batch-norm statistics.

    Every branch starts from the network's own statistics, so before training each answers as
    `model` does. `model` itself is not changed. Without domains there is one, "all": the network as
    it is, which may then lean on each image's own statistics, `bne.convert(model, lean=0.1)`.

    Args:
        model: any network with batch-norm layers.
        domains: the domains' names.
        momentum: the least share of a new batch in the running statistics; a domain's nth batch has
            1/n if that is more. None averages all batches, "keep" uses each layer's own momentum.
        synchronised: whether batch statistics are those of all processes. If None, layers that were
            `SyncBatchNorm` are synchronized; others refuse to train in several processes.
        distance: the distance from images to domains, by name (see `bne.distances`) or as a
            function.
        layers: the layers whose statistics are compared, by name, or the number of first ones; None
            compares all that can be. With few first ones the pass that measures images ends early;
            see `DomainEnsemble.layers`.
        mix: what the weights combine: the branches' "logits" or "probabilities". With "statistics",
            evaluation mixes the domains' statistics at every layer, two passes for any number of
            domains; with "centre" it averages them, whatever the weights, in one pass. Training
            then mixes logits.
        lean: how far images lean on their own statistics in evaluation, 0 to 1, or that by layer
            name; see `DomainEnsemble.lean`.
        nearest: the number of branches run for each image, the nearest ones; None runs all. In
            training they include the image's own branch, whose statistics it defines. With
            "statistics" and "centre" it has no effect in evaluation.
        domains_per_step: the number of domains that have images in a training batch, if that is not
            all of them; the branches of these alone are run then. In evaluation it has no effect.
        branch_statistics: what branch k normalizes by in distance training: the "batch" statistics
            of domain k's own images, or its "population" statistics, as Algorithm 1 prints it.
        weight_gradient: whether the gradient flows through the weights and shapes the space of
            domains.
        max_images: the largest number of images run at once in evaluation; None sets no limit.
        max_branches: the largest number of branches run at once; None sets no limit. In training
            the branches then run again in the backward pass: less memory, more time.
        output: where the logits are if the network returns more than a tensor: the name of an
            attribute or key, an index, or a function of the output.
        shortcuts: whether layers get faster subclasses with the same results. Plain `Conv` layers
            before the first batch norm then run once for all branches of an image, and plain
            `MaxPool2d` layers use our GPU kernels. False leaves both as they are.
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
        lean=lean,
        nearest=nearest,
        domains_per_step=domains_per_step,
        branch_statistics=branch_statistics,
        weight_gradient=weight_gradient,
        max_images=max_images,
        max_branches=max_branches,
        output=output,
        shortcuts=shortcuts,
    )
