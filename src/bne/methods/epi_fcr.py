"""Epi-FCR of Li et al.: features and classifier also train with badly suited partners."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.options import check_least
from bne.methods.baselines import FreezeBatchNorm
from bne.methods.features import classifier, with_features
from bne.methods.method import register


@register(
    "epi-fcr",
    "methods relying on special training policies to train models robust to domain shift",
)
class EpiFCR(FreezeBatchNorm):
    """One network for all domains, whose parts also train with those of other networks.

    One more network per source domain, a partner, is trained on that domain alone. After the
    warm-up, an image of one domain is also classified by its features under another domain's
    classifier, by another domain's features under the classifier, and by its features under a
    random classifier. Only the network's own part learns from these. All networks keep the
    pretrained statistics.

    Args:
        model: the plain network; the partners start as copies of it.
        domains: the source domains' names.
        feature_factor: of the loss of features under another domain's classifier.
        classifier_factor: of the loss of the classifier on another domain's features.
        random_factor: of the loss of features under a random classifier.

    Raises:
        ValueError: A factor is negative.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        feature_factor: float = 2.0,
        classifier_factor: float = 0.05,
        random_factor: float = 0.1,
    ) -> None:
        super().__init__(model, domains)
        check_least(0, feature_factor=feature_factor, classifier_factor=classifier_factor)
        check_least(0, random_factor=random_factor)
        self.feature_factor, self.classifier_factor = feature_factor, classifier_factor
        self.random_factor = random_factor
        self.partners = nn.ModuleList(copy.deepcopy(model) for _ in domains)
        own = classifier(model)
        self.random = nn.Linear(own.in_features, own.out_features).to(own.weight)
        self.random.requires_grad_(False)
        self.train(model.training)

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Trains all networks apart in the warm-up."""
        self.stage = _stage(epoch, warm_up)

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """Every image goes through all networks."""
        return _stage(epoch, warm_up), domains + 1, 1

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of all networks and, after the warm-up, of mixed ones."""
        logits, features = with_features(self.net, images)
        # Each sees all images, since which are its own is known to the device alone.
        of_partners = [with_features(partner, images) for partner in self.partners]
        own = _chosen([answers for answers, _ in of_partners], domains)
        loss = self.cross_entropy(logits, labels) + self.cross_entropy(own, labels)
        if self.stage == "warm-up":
            return loss
        others = self._others(domains)
        by_partner = [_frozen(classifier(partner), features) for partner in self.partners]
        foreign = _chosen([found.detach() for _, found in of_partners], others)
        return (
            loss
            + self.feature_factor * self.cross_entropy(_chosen(by_partner, others), labels)
            + self.classifier_factor * self.cross_entropy(classifier(self.net)(foreign), labels)
            + self.random_factor * self.cross_entropy(self.random(features), labels)
        )

    def _others(self, domains: Tensor) -> Tensor:
        """The partner of each image, (N,): one drawn for every domain, another domain's."""
        count = len(self.partners)
        steps = torch.randint(1, max(2, count), (count,), device=domains.device)
        return (domains + steps[domains]) % count


def _stage(epoch: int, warm_up: int) -> str:
    return "warm-up" if epoch < warm_up else "episodes"


def _frozen(layer: nn.Linear, features: Tensor) -> Tensor:
    """What a layer gives, without learning from it."""
    bias = None if layer.bias is None else layer.bias.detach()
    return F.linear(features, layer.weight.detach(), bias)


def _chosen(found: Sequence[Tensor], which: Tensor) -> Tensor:
    """Of several (N, D), each image's row of the one that is named for it, (N,)."""
    return torch.stack(list(found))[which, torch.arange(len(which), device=which.device)]
