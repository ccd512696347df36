"""MASF of Dou et al.: after a virtual step, classes relate alike in all domains."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bne.core.moments import gather_processes, in_processes
from bne.core.options import check_least
from bne.methods.features import classifier, with_features
from bne.methods.method import register
from bne.methods.mldg import Episodes

HIDDEN, EMBEDDED = 1024, 256  # of the network that embeds features, as the authors have it


@register(
    "masf",
    "to expose the optimization to domain shift while regularizing the semantic structure of the "
    "feature space",
)
class MASF(Episodes):
    """One network whose features keep their structure on a domain that a step has not seen.

    Every step holds out one domain of the batch. To the loss of the other domains come two of all
    images after a virtual step on the others: the classes' mean answers must be those of the
    held-out domain, and a triplet loss groups the features by class, whatever their domain.

    Args:
        model: the plain network.
        domains: the source domains' names.
        alpha: the learning rate of the virtual step.
        clip: the largest norm of a parameter's gradient in the virtual step.
        alignment: the factor of the loss of the classes' mean answers.
        temperature: what their logits are divided by.
        cohesion: the factor of the triplet loss.
        margin: of the triplet loss, in squared distances.
        first_order: whether the gradient takes the virtual step for a constant, as the authors do.

    Raises:
        ValueError: A number that must not be is negative or 0.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        alpha: float = 1e-5,
        clip: float = 2.0,
        alignment: float = 1.0,
        temperature: float = 2.0,
        cohesion: float = 0.005,
        margin: float = 20.0,
        first_order: bool = True,
    ) -> None:
        super().__init__(model, domains, alpha=alpha, first_order=first_order)
        check_least(0, alignment=alignment, cohesion=cohesion, margin=margin)
        for name, value in (("clip", clip), ("temperature", temperature)):
            if value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        self.clip, self.alignment, self.temperature = clip, alignment, temperature
        self.cohesion, self.margin = cohesion, margin
        own = classifier(model)
        self.embedder = nn.Sequential(
            nn.Linear(own.in_features, HIDDEN),
            nn.LeakyReLU(0.2),
            nn.Linear(HIDDEN, EMBEDDED),
            nn.LeakyReLU(0.2),
        ).to(own.weight)

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """One pass before the virtual step, and one after it."""
        return cls.stage, 2, 1

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy before the virtual step, and both losses after it."""
        seen, held_out = self.split(domains)
        task = self.cross_entropy(self.net(images[seen]), labels[seen])
        unseen = domains[held_out[:1]]
        logits, features = with_features(self.net, images, self.virtual_step(task))
        embedded = self.embedder(features)
        if in_processes():
            logits, embedded, labels, domains = (
                gather_processes(part).flatten(0, 1) for part in (logits, embedded, labels, domains)
            )
        apart = self._misalignment(logits, labels, domains, unseen)
        return (
            task + self.alignment * apart + self.cohesion * triplets(embedded, labels, self.margin)
        )

    def _misalignment(
        self, logits: Tensor, labels: Tensor, domains: Tensor, unseen: Tensor
    ) -> Tensor:
        """How far each class's mean answers on other domains are from those on the unseen one.

        The symmetric divergence of Kullback and Leibler, of classes that both domains have images
        of, over the number of all classes; the mean over the other domains.
        """
        classes = torch.arange(logits.shape[1], device=logits.device)
        known = torch.arange(self._domains, device=logits.device)
        of_domain = domains == known.unsqueeze(1)  # (K, N)
        members = (of_domain.unsqueeze(1) & (labels == classes.unsqueeze(1))).to(logits.dtype)
        counts = members.sum(2)  # (K, classes)
        means = members @ logits / counts.clamp_min(1).unsqueeze(2)
        answers = (means / self.temperature).log_softmax(2)
        there, missing = answers[unseen], (counts == 0) | (counts[unseen] == 0)
        # Both directions at once: KL(p, q) + KL(q, p) = sum of (p - q) (log p - log q).
        apart = ((answers.exp() - there.exp()) * (answers - there)).sum(2) / 2
        others = of_domain.any(1) & (known != unseen)
        apart = apart.masked_fill(missing | ~others.unsqueeze(1), 0)
        return apart.sum() / (len(classes) * others.sum().clamp_min(1))

    def _clipped(self, slope: Tensor) -> Tensor:
        """A parameter's gradient, of `clip`'s norm at most."""
        norm: Tensor = torch.linalg.vector_norm(slope)
        return slope / (norm / self.clip).clamp_min(1)


def triplets(points: Tensor, labels: Tensor, margin: float) -> Tensor:
    """The triplet loss with semi-hard negatives, the mean over all pairs of one class.

    Of each pair's negatives, those of another class than its first point, it takes the nearest one
    that is farther away than the pair's second point; if there is none, the farthest of all.

    Args:
        points: (N, D).
        labels: (N,).
        margin: by how much the negative shall be farther away, in squared distances.
    """
    distances = torch.cdist(points, points).square()
    same = labels.unsqueeze(1) == labels
    negatives, _ = distances.masked_fill(same, torch.inf).sort(1)
    farther = torch.searchsorted(negatives.detach(), distances.detach(), right=True)
    count = (~same).sum(1, keepdim=True)
    negative = negatives.gather(1, torch.minimum(farther, (count - 1).clamp_min(0)))
    themselves = torch.eye(len(points), dtype=torch.bool, device=points.device)
    pairs = same & ~themselves & (count > 0)
    losses = (margin + distances - negative.masked_fill(~pairs, 0)).relu()
    return losses.masked_fill(~pairs, 0).sum() / pairs.sum().clamp_min(1)
