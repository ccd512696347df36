"""Fusion of Mancini et al.: one classifier per domain, mixed by a predictor of domains."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.options import check_least, check_share
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, classifier_name
from bne.methods.method import register


class FusedHead(nn.Module):
    """One classifier per domain and a predictor of domains, in the place of the classifier.

    Args:
        start: what each domain's classifier starts as.
        domains: the number of domains.
    """

    def __init__(self, start: nn.Linear, domains: int) -> None:
        super().__init__()
        inputs, weight = start.in_features, start.weight
        outputs, biased = domains * start.out_features, start.bias is not None
        self.classes = nn.Linear(inputs, outputs, bias=biased).to(weight)
        self.domains = nn.Linear(inputs, domains).to(weight)
        with torch.no_grad():
            self.classes.weight.copy_(weight.repeat(domains, 1))
            if start.bias is not None:
                self.classes.bias.copy_(start.bias.repeat(domains))

    def forward(self, features: Tensor) -> Tensor:
        """(N, K + K * classes), the domains' logits and then those of their classifiers."""
        return torch.cat([self.domains(features), self.classes(features)], dim=1)


@register(
    "fusion",
    "train multiple domain-specific classifiers and estimate the probabilities that a target "
    "sample belongs to each source domain to fuse the classifiers' predictions",
)
class Fusion(DeepAll):
    """One network with one classifier per source domain, mixed by a predictor of domains.

    In training the own domain's classifier counts for 1, in use every domain's for its
    probability; in both, part of the mixture is the mean of all classifiers.

    Args:
        model: the plain network.
        domains: the source domains' names.
        agnostic: the share of the mean of all classifiers.
        domain_loss: factor of the cross-entropy of the domains.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        agnostic: float = 0.25,
        domain_loss: float = 1.0,
    ) -> None:
        super().__init__(model, domains)
        check_share("agnostic", agnostic)
        check_least(0, domain_loss=domain_loss)
        self.agnostic, self.domain_loss, self.domains = agnostic, domain_loss, len(domains)
        model.set_submodule(classifier_name(model), FusedHead(classifier(model), len(domains)))

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the mixture and, times its factor, of the domains."""
        domain_logits, branch_logits = self._answers(images)
        own = domains.unsqueeze(1) == torch.arange(self.domains, device=domains.device)
        loss = self.cross_entropy(self._mixed(own.to(branch_logits.dtype), branch_logits), labels)
        return loss + self.domain_loss * F.cross_entropy(domain_logits, domains)

    def predict(self, images: Tensor) -> Tensor:
        """The classifiers' logits, mixed by the predicted probabilities of the domains."""
        domain_logits, branch_logits = self._answers(images)
        return self._mixed(domain_logits.softmax(1), branch_logits)

    def _answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(N, K) and (N, K, classes)."""
        output = self.net(images)
        return output[:, : self.domains], output[:, self.domains :].unflatten(1, (self.domains, -1))

    def _mixed(self, probabilities: Tensor, branch_logits: Tensor) -> Tensor:
        weights = (1 - self.agnostic) * probabilities + self.agnostic / self.domains
        return (weights.unsqueeze(2) * branch_logits).sum(1)
