"""DNet, the paper's variant in which a small network tells the domains apart."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.convert import convert
from bne.core.norm import DomainBatchNorm, domain_layers
from bne.core.options import check_least
from bne.core.surgery import Momentum
from bne.methods.bne import BranchMethod, When
from bne.methods.method import register


class Discovery(NamedTuple):
    """What the network says of N images, and why.

    Attributes:
        logits: (N, classes), the mixture.
        weights: (N, K), the weight of each domain's branch; they add up to 1.
        branch_logits: (N, K, classes), each branch's own answer.
        domain_logits: (N, K), of which the weights are the softmax.
    """

    logits: Tensor
    weights: Tensor
    branch_logits: Tensor
    domain_logits: Tensor


@register(
    "dnet-ce",
    "training DNet directly supervising the classification of samples in the correct domain using "
    "domain labels",
    domain_loss=1.0,
)
@register(
    "dnet",
    "a domain discovery network (DNet) that takes as input the activations after the first "
    "convolutional block and directly outputs the probability for the input sample to belong to "
    "each one of the training domains",
)
class DNet(BranchMethod):
    """One branch per source domain, mixed by a classifier of domains on the first convolution.

    The classifier sees what the first batch-norm layer sees, which is the same in every branch:
    a mean over all positions, ReLU, a fully connected layer and softmax.

    Args:
        model: the plain network.
        domains: the source domains' names.
        distance_training: when the loss is that of the mixture and the classifier of domains is
            trained with it, as in BNE; otherwise every image is run under its own domain.
        domain_loss: factor of the cross-entropy of the domains then.
        momentum: share of a new batch in the running statistics, as in `bne.DomainEnsemble`.
    """

    placing: ClassVar[int] = 0

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        distance_training: When = "after warm-up",
        domain_loss: float = 0.0,
        momentum: Momentum = 0.01,
    ) -> None:
        super().__init__(distance_training)
        check_least(0, domain_loss=domain_loss)
        self.net = convert(model, domains, momentum=momentum)
        self.domain_loss = domain_loss
        first = next(domain_layers(self.net))
        like = next(self.net.parameters())
        self.discovery = nn.Linear(
            first.num_features, len(domains), device=like.device, dtype=like.dtype
        )

    def mixture_loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture and, if wanted, of the domains."""
        out = self._mixture(images, domains)
        loss = self.cross_entropy(out.logits, labels)
        if self.domain_loss:
            loss = loss + self.domain_loss * F.cross_entropy(out.domain_logits, domains)
        return loss

    def explain(self, images: Tensor) -> Discovery:
        """What `predict` says of images of unknown domain, and why, in evaluation mode."""
        return self._mixture(images, None)

    def predict(self, images: Tensor) -> Tensor:
        """The mixture, weighted by the domains' probabilities."""
        return self.explain(images).logits

    def _mixture(self, images: Tensor, domains: Tensor | None) -> Discovery:
        """Every image under every domain, the first layer's input read on the way."""
        count, branches = images.shape[0], len(self.net.domains)
        # Not `repeat_interleave`, which ONNX's exporter gets wrong for any number of images.
        ids = torch.arange(branches, device=images.device).unsqueeze(1).expand(-1, count).flatten()
        members = None if domains is None else domains.repeat(branches) == ids
        seen: list[Tensor] = []

        def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
            if not seen:
                seen.append(self._domain_logits(layer, x[: x.shape[0] // branches], count))
            return layer.by_domain(x, ids, members)

        output: Tensor = self.net.run(images, rule, branches)
        branch_logits = output.unflatten(0, (branches, count)).transpose(0, 1)
        weights = seen[0].softmax(1)
        logits = (weights.unsqueeze(2) * branch_logits).sum(1)
        return Discovery(logits, weights, branch_logits, seen[0])

    def _domain_logits(self, layer: DomainBatchNorm, x: Tensor, count: int) -> Tensor:
        """(N, K) from a layer's input, (N * rows, C, *spatial)."""
        if layer.num_features != self.discovery.in_features:
            raise ValueError(
                f"batch-norm layer {layer.name!r} runs first but is not the network's first: "
                "DNet cannot tell the domains apart there"
            )
        samples = x.unflatten(0, (count, -1))
        pooled = samples.mean((1, *range(3, samples.ndim)))
        domain_logits: Tensor = self.discovery(pooled.relu())
        return domain_logits
