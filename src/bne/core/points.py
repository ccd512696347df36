"""Training on points: every image under its own domain and, leaning, under another, in one pass.

The paper's space holds more than the domains: any mixture of them is a point in it, and so is every
point on the way from there to an image. A network that was trained at such points answers there.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bne.core.norm import DomainBatchNorm
from bne.core.options import check_names, check_share
from bne.core.passes import Rule


def rule_of_points(
    own: Tensor,
    domains: int,
    layers: Iterable[str],
    max_lean: float | Mapping[str, Tensor],
    elsewhere: Tensor | None,
    beyond: Tensor | None,
) -> Rule:
    """What layers do with all images under their own domains, then with all of them again.

    Args:
        own: (N,), each image's domain.
        domains: the number of domains, K.
        layers: the names of the network's layers.
        max_lean: see `DomainEnsemble.forward`, as the rest.
        elsewhere: (N, K).
        beyond: (N,).
    """
    shares = _shares(max_lean, own, list(layers))
    other = own if elsewhere is not None else another(own, domains)
    ids = torch.cat([own, other])
    first = torch.ones_like(own, dtype=torch.bool)
    members = torch.cat([first, ~first])
    weights = past = None
    if elsewhere is not None or beyond is not None:
        here, there = (
            (ids.unsqueeze(1) == torch.arange(domains, device=own.device)).float().chunk(2)
        )
        weights = torch.cat([here, there if elsewhere is None else elsewhere])
    if beyond is not None:
        _check_beyond(beyond, own)
        past = torch.cat([torch.zeros_like(beyond), beyond])

    def rule(layer: DomainBatchNorm, x: Tensor) -> Tensor:
        lean = shares.get(layer.name)
        return layer.by_domain(x, ids, members, shares=lean, weights=weights, beyond=past)

    return rule


def _shares(
    max_lean: float | Mapping[str, Tensor], own: Tensor, layers: list[str]
) -> dict[str, Tensor]:
    """How far all images and their second copies lean, (2 N,), by layer name."""
    if isinstance(max_lean, Mapping):
        check_names(max_lean, layers)
        return {
            name: torch.cat([share.new_zeros(own.shape), share.expand(own.shape)])
            for name, share in max_lean.items()
        }
    check_share("max_lean", max_lean)
    shares = torch.rand(own.shape, device=own.device) * max_lean
    return dict.fromkeys(layers, torch.cat([torch.zeros_like(shares), shares]))


def another(own: Tensor, domains: int) -> Tensor:
    """For each image another of the domains in the batch, (N,), drawn evenly; its own if alone."""
    each = torch.arange(domains, device=own.device)
    present = (own.unsqueeze(1) == each).any(0)
    chance = torch.rand(own.shape[0], domains, device=own.device)
    others = chance.masked_fill(~present, -1).scatter(1, own.unsqueeze(1), -0.5)
    return others.argmax(1)


def _check_beyond(beyond: Tensor, own: Tensor) -> None:
    looking = beyond.is_cpu and not torch.compiler.is_compiling()  # which would stall a GPU
    if beyond.shape != own.shape or (looking and not (beyond >= 0).all()):
        raise ValueError(f"beyond must have {len(own)} numbers of at least 0, one for each image")
