"""Images of one unknown domain, together: their pooled statistics in place of each one's own.

An image's own statistics enter a prediction in two places: they place it among the domains, and it
leans on them. A first pass predicts every image alone and pools what it meets in both places. In a
second pass the pooled statistics take the place of each image's own: one set of weights for all
images, and one point to lean on at every layer of every branch. For a single image both passes are
the same.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bne.core.activations import image_moments
from bne.core.embedding import Embedding
from bne.core.ensemble import DomainEnsemble
from bne.core.moments import Moments, combine
from bne.core.norm import domain_layers
from bne.core.options import ONE_PASS


class Together:
    """What images of one unknown domain have in common, for a network in evaluation.

        together = Together(net)
        for images in batches:
            together.add(images)
        with together:
            logits = net(images)

    The pooled statistics are kept, not the images. A layer used in several places has one point.

    Args:
        net: the network that predicts.
    """

    def __init__(self, net: DomainEnsemble) -> None:
        self._net = net
        self._passes = next(domain_layers(net.model)).passes
        self._adding = False
        self._pools: dict[str, _Pool] = {}
        self._points = _Pool()
        self._like: Embedding | None = None

    def __enter__(self) -> None:
        self._passes.together = self

    def __exit__(self, *_: object) -> None:
        self._passes.together = None

    @torch.no_grad()
    def add(self, images: Tensor, *, places: bool = True) -> None:
        """Adds (N, ...) images to those that are pooled.

        Args:
            images: as the network takes them.
            places: whether they are to be placed among the domains even if their answers do not
                depend on it.
        """
        net, self._adding = self._net, True
        try:
            with self:
                if net.mix in ONE_PASS:
                    net(images, details=places)
                else:
                    net.embed(images)
                    if net.leans:  # on all branches: which are the nearest to all is not yet known
                        net.branches(images)
        finally:
            self._adding = False

    def point(self, images: Tensor, embed: Callable[[Tensor], Embedding]) -> Embedding:
        """Where images lie: each at its own point while they are added, then all at one.

        Args:
            images: (N, ...).
            embed: gives each one's own point.
        """
        if self._adding:
            self._like = found = embed(images)
            self._points.add(Moments(found.mean, found.var))
            return found
        if self._like is None:
            raise ValueError("no image was placed among the domains: call add before")
        mean, var = (own.expand(len(images), -1) for own in self._points.moments)
        return Embedding(mean, var, self._like.layers, self._like.channels)

    def moments(self, layer: str, samples: Tensor, domains: Tensor | None, groups: int) -> Moments:
        """What images lean on at a layer: each on its own while they are added, then on the pooled.

        Args:
            layer: its name.
            samples: (N, rows, C, *spatial).
            domains: (N,), the branch that each image is run in; None if there is one for all.
            groups: the number of branches, if `domains` names them.

        Returns:
            Moments of shape (N, C) or, for all images, (1, C).
        """
        if self._adding:
            own = image_moments(samples)
            pool = self._pools.setdefault(layer, _Pool())
            pool.add(own, domains, 1 if domains is None else groups)
            return own
        if layer not in self._pools:
            raise ValueError(f"no image was pooled at layer {layer!r}: call add before")
        pooled = self._pools[layer].moments
        return pooled if domains is None else Moments(*(own[domains] for own in pooled))


class _Pool:
    """The moments of groups of images that come one after another, (G, C)."""

    def __init__(self) -> None:
        self.moments = Moments(torch.zeros(1, 1), torch.zeros(1, 1))
        self._count = torch.zeros(1)

    def add(self, own: Moments, group: Tensor | None = None, groups: int = 1) -> None:
        """Adds moments of images, (N, C), each to its group, (N,)."""
        if group is None:
            group = torch.zeros(len(own.mean), dtype=torch.long, device=own.mean.device)
        each = torch.arange(groups, device=group.device).unsqueeze(1)
        belongs = (group == each).to(own.mean.dtype)  # (G, N)
        count = belongs.sum(1)
        new = combine(own, belongs / count.clamp_min(1).unsqueeze(1), group)
        known, before = self.moments, self._count.to(count).expand_as(count)
        self._count = before + count
        share = torch.stack([before, count], 1) / self._count.clamp_min(1).unsqueeze(1)
        pairs = (
            torch.stack([old.to(one).expand_as(one), one], 1)
            for old, one in zip(known, new, strict=True)
        )
        self.moments = combine(Moments(*pairs), share)
