"""Points in the space of domains: statistics stacked over layers (paper, equations 4 and 5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from bne.core.moments import Moments


@dataclass(frozen=True, eq=False)
class Embedding:
    """N images or K domains, each a point: its mean and variance in every channel of every layer.

    Attributes:
        mean: (N, D), where D is the number of channels of all layers together.
        var: (N, D), biased variances.
        layers: the layers' names, in order.
        channels: the layers' numbers of channels, which add up to D.
    """

    mean: Tensor
    var: Tensor
    layers: tuple[str, ...]
    channels: tuple[int, ...]

    @classmethod
    def stack(cls, moments: Mapping[str, Moments]) -> "Embedding":
        """Stacks each layer's moments, (N, C), into points."""
        if not moments:
            raise ValueError(
                "the embedding has no layer: no batch-norm layer with running statistics saw more "
                "than one value per channel"
            )
        return cls(
            torch.cat([layer.mean for layer in moments.values()], dim=-1),
            torch.cat([layer.var for layer in moments.values()], dim=-1),
            tuple(moments),
            tuple(layer.mean.shape[-1] for layer in moments.values()),
        )

    @classmethod
    def cat(cls, parts: Sequence["Embedding"]) -> "Embedding":
        """The points of several embeddings over the same layers, one after another."""
        return cls(
            torch.cat([part.mean for part in parts]),
            torch.cat([part.var for part in parts]),
            parts[0].layers,
            parts[0].channels,
        )

    @property
    def std(self) -> Tensor:
        """Standard deviations, (N, D), with gradient 0 instead of infinity at 0."""
        return self.var.clamp_min(torch.finfo(self.var.dtype).tiny).sqrt()

    @property
    def slices(self) -> dict[str, slice]:
        """Where each layer lies among the D channels."""
        bounds = pairwise(accumulate(self.channels, initial=0))
        return {name: slice(*bound) for name, bound in zip(self.layers, bounds, strict=True)}

    def select(self, layers: Iterable[str]) -> "Embedding":
        """The same points in the named layers alone, in the order given."""
        layers = tuple(layers)
        if layers == self.layers:
            return self
        slices = self.slices
        if unknown := [name for name in layers if name not in slices]:
            raise ValueError(f"no layer {unknown} in this embedding; it has {list(self.layers)}")
        return Embedding.stack(
            {
                name: Moments(self.mean[:, slices[name]], self.var[:, slices[name]])
                for name in layers
            }
        )

    def __len__(self) -> int:
        return self.mean.shape[0]
