"""MLDG of Li et al.: a step on some domains must help on another one."""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn
from torch.func import functional_call

from bne.core.moments import gather_processes, in_processes
from bne.core.options import check_least
from bne.methods.baselines import DeepAll
from bne.methods.method import register


class Episodes(DeepAll):
    """One network, trained in episodes: a virtual step on some domains, scored on one held out.

    Args:
        model: the plain network.
        domains: the source domains' names.
        alpha: the learning rate of the virtual step.
        first_order: whether the gradient takes the virtual step for a constant.

    Raises:
        ValueError: `alpha` is negative.
    """

    def __init__(
        self, model: nn.Module, domains: Sequence[str], *, alpha: float, first_order: bool
    ) -> None:
        super().__init__(model, domains)
        check_least(0, alpha=alpha)
        self.alpha, self.first_order = alpha, first_order
        self._domains = len(domains)

    def split(self, domains: Tensor) -> tuple[Tensor, Tensor]:
        """Draws the domain of the batch that is held out, the same one in all processes.

        If there is a single domain, half its images are held out.

        Args:
            domains: (N,), as many images of each.

        Returns:
            The numbers of the other domains' images, and those of its images.
        """
        place = torch.rand(self._domains, device=domains.device)
        if in_processes():
            distributed.broadcast(place, 0)
        order = place[domains].argsort(stable=True)
        present = min(self.domains_per_step or self._domains, self._domains)
        held_out = max(1, len(domains) // max(2, present))
        return order[held_out:], order[:held_out]

    def virtual_step(self, loss: Tensor) -> dict[str, Tensor]:
        """The network's parameters, by name, after one step down the loss of all processes."""
        named = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
        slopes = torch.autograd.grad(
            loss,
            list(named.values()),
            retain_graph=True,
            create_graph=not self.first_order,
            materialize_grads=True,
        )
        if in_processes():
            sizes = [slope.numel() for slope in slopes]
            mean = gather_processes(torch.cat([slope.flatten() for slope in slopes])).mean(0)
            parts = zip(mean.split(sizes), slopes, strict=True)
            slopes = tuple(part.view(slope.shape) for part, slope in parts)
        pairs = zip(named.items(), slopes, strict=True)
        return {name: value - self.alpha * self._clipped(s) for (name, value), s in pairs}

    def _clipped(self, slope: Tensor) -> Tensor:
        """A parameter's gradient, as the virtual step takes it."""
        return slope


@register(
    "mldg",
    "extend to domain generalization the widely used model agnostic meta learning framework",
)
class MLDG(Episodes):
    """One network whose steps on some domains lower the loss on another.

    Every step holds out one domain of the batch. The loss is that of the other domains, and that of
    the held-out one after a virtual step on the others.

    Args:
        model: the plain network.
        domains: the source domains' names.
        alpha: the learning rate of the virtual step.
        beta: the factor of the loss on the held-out domain.
        first_order: whether the gradient takes the virtual step for a constant, which saves the
            second derivatives.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        alpha: float = 5e-4,
        beta: float = 1.0,
        first_order: bool = False,
    ) -> None:
        super().__init__(model, domains, alpha=alpha, first_order=first_order)
        check_least(0, beta=beta)
        self.beta = beta

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy before the virtual step and, on the held-out domain, after it."""
        seen, held_out = self.split(domains)
        before = self.cross_entropy(self.net(images[seen]), labels[seen])
        ahead: Tensor = functional_call(self.net, self.virtual_step(before), (images[held_out],))
        return before + self.beta * self.cross_entropy(ahead, labels[held_out])
