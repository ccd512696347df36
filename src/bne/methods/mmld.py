"""MMLD of Matsuura and Harada: features that do not tell clusters of styles apart."""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.options import check_least, check_share
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, with_features
from bne.methods.method import register
from bne.methods.places import at_outputs, stages
from bne.methods.pseudo import Clustered, cluster_names

EPS = 1e-5


@register(
    "mmld",
    "a method to simultaneously discover latent domains by clustering featuring together and "
    "minimizing feature discrepancy between them",
)
class MMLD(Clustered, DeepAll):
    """DeepAll whose features keep a classifier from telling clusters of styles apart.

    The style of an image is the means and deviations of its features after the first two stages.
    Every epoch k-means clusters the training images by style. A classifier of clusters learns from
    the features; its gradient is reversed where it enters them. The entropy of the predictions is
    minimized too. Both grow from 0 in the course of training.

    Args:
        model: the plain network.
        domains: the source domains' names; only their number is used, and only by default.
        clusters: how many domains to find; None finds as many as there are source domains.
        refresh: epochs between two clusterings.
        smallest: the fewest images of a cluster, where there are enough.
        reversal: the factor of the reversed gradient at the end.
        entropy_loss: the factor of the entropy at the end.
        ramp: the epochs over which both factors grow.
        hidden: the width of both hidden layers of the classifier of clusters.
        dropout: its dropout.
    """

    strength: Tensor

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        clusters: int | None = None,
        refresh: int = 1,
        smallest: int = 64,
        reversal: float = 1.0,
        entropy_loss: float = 1.0,
        ramp: int = 30,
        hidden: int = 1024,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(model, domains)
        check_share("dropout", dropout)
        check_least(0, reversal=reversal, entropy_loss=entropy_loss)
        check_least(1, ramp=ramp, hidden=hidden)
        self.start_clusters(cluster_names(clusters, domains), refresh, smallest)
        self.reversal, self.entropy_loss, self.ramp = reversal, entropy_loss, ramp
        old = classifier(model)
        self._styles = list(stages(model))[:2]
        layers: list[nn.Module] = []
        for inputs in (old.in_features, hidden):
            layers += [nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(dropout)]
        layers.append(nn.Linear(hidden, len(self.cluster_names)))
        self.discriminator = nn.Sequential(*layers).to(old.weight)
        self.register_buffer("strength", torch.zeros_like(old.weight[0, 0]))

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Sets how much of both factors counts by now."""
        self.strength.fill_(2 / (1 + math.exp(-10 * min(1.0, epoch / self.ramp))) - 1)

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of classes and of clusters, and the predictions' entropy."""
        logits, features = with_features(self.net, images)
        back = self.reversal * self.strength
        reversed_ = features.detach() * (1 + back) - features * back  # the features, in value
        told = F.cross_entropy(self.discriminator(reversed_), domains)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        spread = self.entropy_loss * self.strength * entropy
        return self.cross_entropy(logits, labels) + told + spread

    def points(self, images: Iterator[Tensor]) -> Tensor:
        """The images' styles."""
        found = []
        for part in images:
            maps: list[Tensor] = []
            with at_outputs(self.net, dict.fromkeys(self._styles, maps.append)):
                self.net(part)
            moments = [torch.var_mean(x.float(), (2, 3)) for x in maps]
            style = [value for var, mean in moments for value in (mean, (var + EPS).sqrt())]
            found.append(torch.cat(style, dim=1).cpu())
        return torch.cat(found)
