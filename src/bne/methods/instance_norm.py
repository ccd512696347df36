"""InstanceNorm, one of the paper's other ways to normalise."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.ensemble import DomainEnsemble, convert
from bne.methods.method import Method
from bne.methods.registry import register
from bne.norm import DomainBatchNorm


@register(
    "instance-norm",
    "comparison of our method against other popular normalization strategies: (a) InstanceNorm",
)
class InstanceNorm(Method):
    """One network for all domains, every image normalised by its own statistics.

    γ and β stay those of batch norm. Layers that see one value a channel, where an image has no
    variance, stay batch norm, all domains being one.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
    """

    net: DomainEnsemble

    def __init__(self, model: nn.Module, domains: Sequence[str]) -> None:
        super().__init__()
        self.net = convert(model, ["all"], momentum="keep")

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy; the domains play no part."""
        return F.cross_entropy(self.predict(images), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The logits of the network, normalising as above."""
        count = images.shape[0]
        everyone = torch.zeros(count, dtype=torch.long, device=images.device)
        members = torch.ones_like(everyone, dtype=torch.bool)

        def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
            if x.numel() > count * layer.num_features:
                return layer.by_instance(x, count)[0]
            return layer.by_domain(x, everyone, members)

        logits: Tensor = self.net._run(images, rule)
        return logits

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs the images; only the layers that stay batch norm keep their statistics."""
        self.predict(images)
