"""MetaReg of Balaji et al.: a regularizer of the classifier, learned from domain to domain."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from bne.core.moments import gather_processes, in_processes
from bne.core.options import check_least
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, with_features
from bne.methods.method import register


@register(
    "metareg",
    "propose a novel regularization function in a meta-learning framework to make the model "
    "trained on one domain perform well on another domain",
)
class MetaReg(DeepAll):
    """One network whose classifier has a weighted L1 penalty, which the warm-up learns.

    In the warm-up, of one epoch at least, every domain has a classifier of its own on shared
    features. A few steps of one domain's classifier on its images, under the penalty, are scored on
    another domain, and the gradient of that score trains the penalty's weights. The network's own
    classifier learns from all domains meanwhile, without a part in the features. Then the network
    is trained on, under the penalty as it was learned.

    Args:
        model: the plain network.
        domains: the source domains' names.
        alpha: the learning rate of the steps on one domain.
        inner_steps: the number of these steps.
        penalty_rate: the factor of the learning rate of the penalty's weights.

    Attributes:
        penalty: (classes, F), how much the size of each weight of the classifier costs,
            at least 0.

    Raises:
        ValueError: A rate is negative, or there are no steps.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        alpha: float = 1e-3,
        inner_steps: int = 5,
        penalty_rate: float = 10.0,
    ) -> None:
        super().__init__(model, domains)
        check_least(0, alpha=alpha, penalty_rate=penalty_rate)
        check_least(1, inner_steps=inner_steps)
        self.alpha, self.inner_steps, self.penalty_rate = alpha, inner_steps, penalty_rate
        own = classifier(model)
        weight = own.weight.detach()
        bias = weight.new_zeros(len(weight)) if own.bias is None else own.bias.detach()
        self.weights = nn.Parameter(weight.repeat(len(domains), 1, 1))
        self.biases = nn.Parameter(bias.repeat(len(domains), 1))
        self.penalty = nn.Parameter(torch.zeros_like(weight))
        self.begin_epoch(0, 0)

    def begin_epoch(self, epoch: int, warm_up: int) -> None:
        """Learns the penalty in the warm-up, and keeps it fixed after that."""
        self.stage = _stage(epoch, warm_up)
        learning = self.stage == "penalty"
        for parameter in (self.weights, self.biases, self.penalty):
            parameter.requires_grad_(learning)

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """One pass; the classifiers cost little."""
        return _stage(epoch, warm_up), 1, 1

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of all classifiers in the warm-up, then of one with the penalty."""
        logits, features = with_features(self.net, images)
        # Large weights lower the loss everywhere at first: a reward for them would never end.
        with torch.no_grad():
            self.penalty.clamp_(min=0)
        if self.stage == "train":
            size = classifier(self.net).weight.abs()
            return self.cross_entropy(logits, labels) + (self.penalty * size).sum()
        each = torch.einsum("nf,kcf->nkc", features, self.weights) + self.biases
        of_domains = each[torch.arange(len(images), device=images.device), domains]
        features = features.detach()
        apart = classifier(self.net)(features)
        score = self._score(features, labels, domains)
        loss = self.cross_entropy(of_domains, labels) + self.cross_entropy(apart, labels)
        return loss + self.penalty_rate * (score - score.detach())  # its gradient alone

    def _score(self, features: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """The loss on one domain after a few steps of another's classifier, a scalar.

        It is the same in all processes, and depends on the penalty's weights alone.
        """
        one, other = self._pair(domains)
        if in_processes():
            features, labels, domains = (
                gather_processes(part).flatten(0, 1) for part in (features, labels, domains)
            )
        weight, bias = (
            every.detach()[one].squeeze(0).requires_grad_() for every in (self.weights, self.biases)
        )
        for _ in range(self.inner_steps):
            loss = self._mean(F.linear(features, weight, bias), labels, domains == one)
            loss = loss + (self.penalty * weight.abs()).sum()
            slopes = torch.autograd.grad(loss, (weight, bias), create_graph=True)
            weight, bias = weight - self.alpha * slopes[0], bias - self.alpha * slopes[1]
        return self._mean(F.linear(features, weight, bias), labels, domains == other)

    def _pair(self, domains: Tensor) -> tuple[Tensor, Tensor]:
        """Two domains of the batch, (1,) each, the same in all processes; a single one twice."""
        known = torch.arange(len(self.weights), device=domains.device)
        absent = (domains.unsqueeze(1) != known).all(0)
        place = torch.rand(len(known), device=domains.device)
        if in_processes():
            distributed.broadcast(place, 0)
        order = (place + absent).argsort()
        return order[:1], order[:2][-1:]

    def _mean(self, logits: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
        losses = F.cross_entropy(
            logits,
            labels,
            self.class_weights,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        return (losses * counted).sum() / counted.sum().clamp_min(1)


def _stage(epoch: int, warm_up: int) -> str:
    return "penalty" if epoch < max(1, warm_up) else "train"
