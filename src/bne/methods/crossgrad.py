"""CrossGrad of Shankar et al.: images moved towards other domains train the network of labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.options import check_least, check_share
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, with_features, with_new_classifier
from bne.methods.method import register


@register(
    "crossgrad",
    "Data augmentation methods based on domain-guided perturbations of input samples",
)
class CrossGrad(DeepAll):
    """Two networks that make each other's training images: one tells labels, one tells domains.

    An image moved along the gradient of its domain's loss looks like another domain, and keeps its
    label; the network of labels learns from both. The network of domains learns from images moved
    along the gradient of the label's loss.

    Args:
        model: the plain network; a copy of it with a new classifier tells the domains.
        domains: the source domains' names.
        epsilon: the factor of the gradient that an image is moved by.
        clip: the largest value of the gradient at a pixel.
        share: the share of moved images in either loss.
        domain_features: whether the features that tell domains help to tell labels.

    Raises:
        ValueError: `epsilon` or `clip` is negative, or `share` is none.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        epsilon: float = 1.0,
        clip: float = 0.1,
        share: float = 0.5,
        domain_features: bool = False,
    ) -> None:
        super().__init__(model, domains)
        check_least(0, epsilon=epsilon, clip=clip)
        check_share("share", share)
        self.epsilon, self.clip, self.share = epsilon, clip, share
        self.domain_net = with_new_classifier(model, len(domains))
        self.from_domain: nn.Linear | None = None
        if domain_features:
            own = classifier(model)
            # Beside the network's own classifier: one layer on both kinds of features.
            self.from_domain = nn.Linear(own.in_features, own.out_features, bias=False)
            self.from_domain.to(own.weight)

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """Two networks, on the images and on moved ones."""
        return cls.stage, 4, 1

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of labels and of domains, on the images and on moved ones."""
        images = images.detach().requires_grad_()
        domain_logits, features = with_features(self.domain_net, images)
        logits = self._label_logits(images, features)
        of_domains = self._moved(images, F.cross_entropy(domain_logits, domains, reduction="sum"))
        of_labels = self._moved(images, F.cross_entropy(logits, labels, reduction="sum"))
        moved_features = with_features(self.domain_net, of_domains)[1] if self.from_domain else None
        moved_logits = self._label_logits(of_domains, moved_features)
        plain = self.cross_entropy(logits, labels) + F.cross_entropy(domain_logits, domains)
        moved = self.cross_entropy(moved_logits, labels)
        moved = moved + F.cross_entropy(self.domain_net(of_labels), domains)
        return (1 - self.share) * plain + self.share * moved

    def predict(self, images: Tensor) -> Tensor:
        """The logits of the network that tells labels."""
        features = with_features(self.domain_net, images)[1] if self.from_domain else None
        return self._label_logits(images, features)

    @torch.no_grad()
    def observe(self, images: Tensor, domains: Tensor) -> None:
        """Runs both networks."""
        self.net(images)
        self.domain_net(images)

    def _label_logits(self, images: Tensor, domain_features: Tensor | None) -> Tensor:
        logits: Tensor = self.net(images)
        if self.from_domain is None:
            return logits
        assert domain_features is not None
        more: Tensor = self.from_domain(domain_features.detach())  # labels never train them
        return logits + more

    def _moved(self, images: Tensor, total: Tensor) -> Tensor:
        """The images moved along the gradient of the sum of their losses, each along its own."""
        (slope,) = torch.autograd.grad(total, images, retain_graph=True)
        return (images + self.epsilon * slope.clamp(-self.clip, self.clip)).detach()
