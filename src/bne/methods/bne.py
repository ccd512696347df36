"""BNE, the paper's method."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.convert import convert
from bne.core.distances import Distance, nearness
from bne.core.ensemble import DomainEnsemble
from bne.core.options import (
    BranchStatistics,
    Layers,
    Mix,
    check_choice,
    check_least,
    check_share,
    checked_limit,
)
from bne.core.prediction import Prediction
from bne.core.surgery import Momentum
from bne.methods.method import Method, register
from bne.methods.mixstyle import Partners, StyleMixing

WARM_UP, COLLECTING = "warm-up", "statistics"

When = Literal["never", "always", "after warm-up", "after statistics"]


class BranchMethod(Method):
    """One branch per domain, trained each on its own images or as a mixture.

    A subclass makes `net`, says what the mixture's loss is, and how unknown images are predicted.

    Args:
        distance_training: when the loss is that of the mixture; otherwise every image is run under
            its own domain. In a warm-up "after statistics" no weight learns.

    Attributes:
        mixing: the name of the stage in which the loss is that of the mixture.
        placing: passes that find where an image lies among the domains.
        styles: how features are mixed in training, if they are.
    """

    net: DomainEnsemble
    mixing: ClassVar[str] = "distance training"
    placing: ClassVar[int] = 1
    styles: StyleMixing | None = None

    def __init__(self, distance_training: When) -> None:
        super().__init__()
        if distance_training not in get_args(When):
            raise ValueError(
                f"distance_training must be one of {list(get_args(When))}, "
                f"not {distance_training!r}"
            )
        self.distance_training = distance_training
        self.begin_epoch(0, 0)

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Leaves the warm-up when its epochs are over."""
        self.stage = self._stage_of(self.distance_training, epoch, warm_up)

    @classmethod
    def _stage_of(cls, when: When, epoch: int, warm_up: int) -> str:
        if when == "always" or (when != "never" and epoch >= warm_up):
            return cls.mixing
        return COLLECTING if when == "after statistics" else WARM_UP

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """One pass in the warm-up; of the mixture one per branch, and one that weighs them."""
        stage = cls._stage_of(options.get("distance_training", "after warm-up"), epoch, warm_up)
        branches, even = options.get("nearest") or domains, options.get("distance") == "uniform"
        passes = min(branches, domains) + (0 if even and branches >= domains else cls.placing)
        once = {"centre": 1, "statistics": 2}.get(options.get("mix", "logits"), passes)
        return stage, passes if stage == cls.mixing else 1, once

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss of the mixture or, in the warm-up, of each image's own branch."""
        own = self._branch_of(domains)
        with nullcontext() if self.styles is None else self.styles.in_pass(self.net, domains):
            if self.stage == self.mixing:
                return self.mixture_loss(images, labels, own)
            if self.stage == WARM_UP:
                return self.cross_entropy(self.net(images, own, own_branch=True), labels)
            with torch.no_grad():
                loss = self.cross_entropy(self.net(images, own, own_branch=True), labels)
        return loss.requires_grad_()  # a leaf: no weight gets a gradient, and so none changes

    def _branch_of(self, domains: Tensor) -> Tensor:
        """The branch of each image, (N,): that of its domain."""
        return domains

    @abstractmethod
    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss in distance training, a scalar, given the images' branches, (N,)."""

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs every image in its own branch."""
        self.net(images, self._branch_of(domains), own_branch=True)


@register(
    "bne-ce",
    "applying a cross-entropy loss also on the domain membership assigned through our "
    "representation",
    domain_loss=1.0,
)
@register(
    "bne",
    "(c) includes a warm-up phase in the initial training phase to help population statistics to "
    "converge to stable values before starting distance training",
)
@register(
    "bne-b",
    "(b) leveraging distance weighting (DT) at training time",
    distance_training="always",
)
@register(
    "bne-a",
    "(a) the usage of separate batchnorm statistics for each training domain, while using at "
    "inference time the projection and weighting strategy",
    distance_training="never",
)
class BNE(BranchMethod):
    """One branch per source domain, mixed by the distances of an image from the domains.

    Args:
        model: the plain network.
        domains: the source domains' names.
        distance_training: when the loss is that of the mixture, Algorithm 1: "never", "always",
            "after warm-up" or "after statistics"; otherwise every image is run under its own
            domain, in the last case only for the statistics.
        domain_loss: factor of the cross-entropy of the domain weights in distance training.
        branch_loss: share of the branches' mean loss in distance training; the rest is the
            mixture's.
        mixstyle: the partners of images that mix their features' means and deviations in every
            branch alike, as in the method "mixstyle"; None mixes none. Branches stay apart with
            "own domain". Weights and distances are those of the images as they are.

    All other arguments are those of `bne.DomainEnsemble`.

    Attributes:
        can_mix: what may be mixed.
    """

    can_mix: ClassVar[tuple[str, ...]] = get_args(Mix)

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        distance_training: When = "after warm-up",
        domain_loss: float = 0.0,
        branch_loss: float = 0.0,
        mixstyle: Partners | None = None,
        momentum: Momentum = 0.01,
        distance: str | Distance = "wasserstein",
        layers: Sequence[str] | int | None = None,
        mix: Mix = "logits",
        nearest: int | None = None,
        branch_statistics: BranchStatistics = "batch",
        weight_gradient: bool = True,
        max_branches: int | None = None,
    ) -> None:
        super().__init__(distance_training)
        check_choice("mix", mix, self.can_mix)
        check_least(0, domain_loss=domain_loss)
        check_share("branch_loss", branch_loss)
        if domain_loss and not weight_gradient:
            raise ValueError(
                f"domain_loss={domain_loss} trains through the weights: it needs weight_gradient"
            )
        if branch_loss and nearest is not None:
            raise ValueError("branch_loss is the loss of all branches: leave nearest out")
        if mixstyle is not None and max_branches is not None:
            raise ValueError(
                "mixstyle does not go with max_branches, under which branches run a second time "
                "for their gradients, when nothing is mixed any more: leave one out"
            )
        mixes_branches = distance_training != "never" and self.mixing == BranchMethod.mixing
        if mixstyle is not None and nearest is not None and mixes_branches:
            raise ValueError(
                "mixstyle does not go with nearest in distance training: an image's partner may "
                "not be run in the same branch; leave one out"
            )
        together = branch_statistics == "batch" and mixes_branches
        if nearest is not None and max_branches is not None and together:
            raise ValueError(
                "nearest does not go with max_branches in distance training: a domain's images "
                "would be spread over several runs; leave one out"
            )
        # Before the network is converted, which then no longer tells its stages.
        self.styles = None if mixstyle is None else StyleMixing(model, partners=mixstyle)
        self.net = convert(
            model,
            domains,
            momentum=momentum,
            distance=distance,
            layers=layers,
            mix=mix,
            nearest=nearest,
            branch_statistics=branch_statistics,
            weight_gradient=weight_gradient,
            max_branches=max_branches,
        )
        self.domain_loss = domain_loss
        self.branch_loss = branch_loss

    def answer_by(
        self, *, mix: str | None = None, nearest: int | None = None, layers: Layers = None
    ) -> None:
        """Changes how a trained network answers; what is None stays.

        What only training cannot do with other options is not refused.

        Args:
            mix: as in training, like all others.
            nearest: the number of branches that are run for each image.
            layers: the layers that place images among the domains.

        Raises:
            ValueError: It cannot answer so.
        """
        net: Any = self.net
        if mix is not None:
            check_choice("mix", mix, self.can_mix)
            net.mix = mix
        if nearest is not None:
            net.nearest = checked_limit("nearest", nearest)
        if layers is not None:
            net.layers = layers

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture and, if wanted, of branches and of the domain weights."""
        if not (self.domain_loss or self.branch_loss):
            return self.cross_entropy(self.net(images, domains), labels)
        out = self.net(images, domains, details=True)
        loss = self.cross_entropy(out.logits, labels)
        if self.branch_loss:
            every = out.branch_logits.flatten(0, 1)  # of an image, one after another
            labels = labels.repeat_interleave(len(self.net.domains))
            loss = torch.lerp(loss, self.cross_entropy(every, labels), self.branch_loss)
        if self.domain_loss:
            # Not of the weights, whose own logarithm may be -inf.
            loss = loss + self.domain_loss * F.cross_entropy(nearness(out.distances), domains)
        return loss

    def explain(self, images: Tensor) -> Prediction:
        """What `predict` says of images of unknown domain, and why, in evaluation mode."""
        prediction: Prediction = self.net(images, details=True)
        return prediction

    def predict(self, images: Tensor) -> Tensor:
        """The mixture, weighted by each image's distances from the source domains."""
        logits: Tensor = self.net(images)
        return logits
