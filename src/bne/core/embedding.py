"""Points in the space of domains: statistics stacked over layers (paper, equations 4 and 5)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from bne.core.moments import Moments, in_processes, is_traced
from bne.core.norm import DomainBatchNorm, domain_layers
from bne.core.passes import Pass, Passes


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


class InstancePass:
    """The pass that places images: each is normalized by its own statistics, which are its point.

    Args:
        layers: the layers that points are made of, by name; None for all that can be.
    """

    def __init__(self, layers: tuple[str, ...] | None) -> None:
        self.layers = layers
        self._calls_needed: int | None = None  # of layers, until the last that counts

    def __call__(
        self, model: nn.Module, passes: Passes, images: Tensor, *, whole: bool
    ) -> Embedding:
        """The images' points.

        Args:
            model: the network.
            passes: the network's state.
            images: (N, ...).
            whole: whether the pass is to run to the network's end, even if that is not needed.

        Raises:
            ValueError: A layer sees one value per channel.
        """
        found: dict[str, list[Moments]] = {}
        calls: list[str] = []
        may_end = self.layers is not None and not (whole or _is_watched())

        def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
            x, moments = layer.by_instance(x, images.shape[0])
            if moments is not None:
                found.setdefault(layer.name, []).append(moments)
            if may_end:
                calls.append(layer.name)
                if len(calls) == self._calls_needed:
                    raise _Enough
            return x

        with suppress(_Enough), Pass(passes, rule, placing=True):
            model(passes.copies(images, 1))
        names = [layer.name for layer in domain_layers(model) if layer.name in found]
        if self.layers is not None:
            if may_end and self._calls_needed is None:
                # Not before: a layer may be used in several places.
                places = (place for place, name in enumerate(calls, 1) if name in self.layers)
                self._calls_needed = max(places, default=0)
            if missing := [name for name in self.layers if name not in found]:
                raise ValueError(f"layers {missing} see one value per channel: leave them out")
            names = list(self.layers)
        return Embedding.stack({name: _average(found[name]) for name in names})


class _Enough(Exception):  # noqa: N818 - no error
    """Ends a pass that has met all layers it was for."""


def _is_watched() -> bool:
    """Whether others follow a pass and must see its end: compilers, or hooks of sharded layers."""
    return is_traced() or in_processes()


def _average(uses: list[Moments]) -> Moments:
    """A layer used in several places has one point: its running statistics mix the places too."""
    if len(uses) == 1:
        return uses[0]
    return Moments(*(torch.stack(statistic).mean(0) for statistic in zip(*uses, strict=True)))
