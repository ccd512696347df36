"""MixStyle of Zhou et al.: images trade the statistics of their features with one another."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from bne.core.activations import image_moments, mapped
from bne.core.ensemble import DomainEnsemble
from bne.core.moments import values_per_channel
from bne.core.options import check_share
from bne.methods.baselines import DeepAll
from bne.methods.method import register
from bne.methods.places import at_outputs, stages

EPS = 1e-6

Partners = Literal["random", "other domain", "own domain"]


class StyleMixing:
    """Mixes images' means and deviations of features, after some stages of a network.

    Args:
        model: the plain network.
        probability: of a step that mixes, drawn for every stage by itself.
        alpha: the parameter of the Beta distribution that an image's own share is drawn from.
        partners: whether an image mixes with a "random" one, or with one of an "other domain" or of
            its "own domain".
        layers: the names of the layers after which to mix; None takes the first three of ResNets'
            four, and of other networks all stages but the last.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        probability: float = 0.5,
        alpha: float = 0.1,
        partners: Partners = "random",
        layers: Sequence[str] | None = None,
    ) -> None:
        check_share("probability", probability)
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, not {alpha}")
        if partners not in get_args(Partners):
            raise ValueError(
                f"partners must be one of {list(get_args(Partners))}, not {partners!r}"
            )
        self.probability, self.alpha, self.partners = probability, alpha, partners
        found = list(stages(model))
        self.layers = list(layers) if layers is not None else found[:-1] or found
        names = dict(model.named_modules())
        for name in self.layers:
            if name not in names:
                raise ValueError(f"layers: the network has no layer {name!r}")

    def in_pass(self, net: nn.Module, domains: Tensor) -> AbstractContextManager[None]:
        """A context in which passes through a network mix features, all passes alike.

        The pass that places images among the domains mixes none: it measures images as they are.

        Args:
            net: the network, as it was or converted.
            domains: (N,), the images' domains. If each runs several times in a pass, its copies
                mix with those of its partner, all alike.
        """
        drawn: dict[str, tuple[Tensor, Tensor]] = {}

        def change(name: str, x: Tensor) -> Tensor | None:
            if x[0, 0].numel() == 1:  # which has no deviation
                return None
            if isinstance(net, DomainEnsemble) and net.placing:
                return None
            if name not in drawn:
                drawn[name] = self.draw(domains, x.device)
            partners, share = drawn[name]
            copies = torch.arange(0, len(x), len(domains), device=x.device).unsqueeze(1)
            return mixed(x, (copies + partners).flatten(), share.repeat(len(copies)))

        return at_outputs(net, {name: partial(change, name) for name in self.layers})

    def draw(self, domains: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """The partner of each image, (N,), and its own share in the mixture, (N,).

        Args:
            domains: (N,), indices of the source domains.
            device: of the features.
        """
        count = len(domains)
        if self.partners == "random":
            partners = torch.rand(count, device=device).argsort()
        else:
            own = domains.unsqueeze(1) == domains
            barred = own if self.partners == "other domain" else ~own
            partners = (torch.rand(count, count, device=device) - barred.float()).argmax(1)
        # In double precision, since a small alpha draws numbers next to 0.
        alpha = torch.full((2, count), self.alpha, dtype=torch.double, device=device)
        one, other = torch.distributions.Gamma(alpha, torch.ones_like(alpha), False).sample()
        mixes = torch.rand((), device=device) < self.probability
        share = one / (one + other)
        return partners, torch.where(mixes, share, torch.ones_like(share))


@register(
    "mixstyle",
    "past the paper: MixStyle of Zhou et al., in which images mix the means and deviations of "
    "their features with those of another image",
)
class MixStyle(DeepAll):
    """DeepAll that mixes images' means and deviations of features, after some stages.

    Args:
        model: the plain network.
        domains: the source domains' names.
        probability: as in `StyleMixing`, like all that follow.
        alpha: of the Beta distribution.
        partners: of images.
        layers: after which to mix.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        probability: float = 0.5,
        alpha: float = 0.1,
        partners: Partners = "random",
        layers: Sequence[str] | None = None,
    ) -> None:
        super().__init__(model, domains)
        self.styles = StyleMixing(
            model, probability=probability, alpha=alpha, partners=partners, layers=layers
        )

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the network whose features are mixed on the way."""
        with self.styles.in_pass(self.net, domains):
            return super().loss(images, labels, domains)


def mixed(x: Tensor, partners: Tensor, share: Tensor) -> Tensor:
    """Gives every image a mixture of its own and its partner's mean and deviation.

    No gradient flows through the statistics.

    Args:
        x: (N, C, H, W).
        partners: (N,), the number of each image's partner.
        share: (N,), of its own statistics.
    """
    samples = x.unsqueeze(1)
    mean, var = image_moments(samples.detach())
    values = values_per_channel(samples)
    deviation = (var * (values / (values - 1)) + EPS).sqrt()  # unbiased, as its authors have it
    share = share.unsqueeze(1).to(mean.dtype)
    new_mean, new_deviation = (torch.lerp(own[partners], own, share) for own in (mean, deviation))
    scale = new_deviation / deviation
    return mapped(samples, scale, new_mean - mean * scale)
