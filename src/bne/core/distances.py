"""Distances between points in the space of domains, and the weights made from them."""

from collections.abc import Callable

import torch
from torch import Tensor

from bne.core.embedding import Embedding

Distance = Callable[[Embedding, Embedding], Tensor]
"""Takes N points and K points over the same layers, returns their distances, (N, K)."""

_REGISTRY: dict[str, Distance] = {}


def register(name: str) -> Callable[[Distance], Distance]:
    """Decorator that makes a distance available under a name, to `convert` and in recipes."""

    def add(distance: Distance) -> Distance:
        if name in _REGISTRY:
            raise ValueError(f"a distance named {name!r} is registered already")
        _REGISTRY[name] = distance
        return distance

    return add


def get(name: str) -> Distance:
    """The distance registered under a name."""
    if name not in _REGISTRY:
        raise ValueError(f"no distance is named {name!r}; there are {names()}")
    return _REGISTRY[name]


def names() -> list[str]:
    """The names of all registered distances."""
    return sorted(_REGISTRY)


@register("wasserstein")
def wasserstein(a: Embedding, b: Embedding) -> Tensor:
    """Squared 2-Wasserstein distance between diagonal Gaussians, summed over layers.

    The paper's equations 6 and 7. Between diagonal Gaussians it is the squared Euclidean distance
    of their (μ, σ) vectors, so one call serves all images, domains and layers.

    Args:
        a: N points.
        b: K points over at least the layers of `a`; only those are compared.

    Returns:
        (N, K).
    """
    b = b.select(a.layers)
    return _squares(a, b)


@register("root-wasserstein")
def root_wasserstein(a: Embedding, b: Embedding) -> Tensor:
    """2-Wasserstein distance between diagonal Gaussians, not squared, summed over layers.

    The paper prints the squared distance, but asks for one that satisfies the triangle inequality,
    as this does. Weights are flatter, and no single layer dominates.

    Args:
        a: N points.
        b: K points over at least the layers of `a`; only those are compared.

    Returns:
        (N, K).
    """
    layers = torch.stack([_squares(a.select([name]), b.select([name])) for name in a.layers])
    return layers.clamp_min(torch.finfo(layers.dtype).tiny).sqrt().sum(0)  # finite gradients at 0


@register("bhattacharyya")
def bhattacharyya(a: Embedding, b: Embedding, *, eps: float = 1e-5) -> Tensor:
    """Bhattacharyya distance between diagonal Gaussians, summed over layers.

    Args:
        a: N points.
        b: K points over at least the layers of `a`; only those are compared.
        eps: the constant added to every variance, as in batch norm. Without it, the distance from a
            point without variance would be infinite.

    Returns:
        (N, K).
    """
    b = b.select(a.layers)
    var_a, var_b = (a.var + eps).unsqueeze(1), b.var + eps
    std_a, std_b = var_a.sqrt(), var_b.sqrt()
    means = (a.mean.unsqueeze(1) - b.mean).square() / (4 * (var_a + var_b))
    # ln((σ² + τ²) / 2στ), written such that nothing cancels where σ and τ are close.
    variances = torch.log1p((std_a - std_b).square() / (2 * std_a * std_b))
    return (means + variances / 2).sum(-1)


@register("uniform")
def uniform(a: Embedding, b: Embedding) -> Tensor:
    """The same distance, 1, between all points: every domain weighs the same.

    Args:
        a: N points.
        b: K points.

    Returns:
        (N, K).
    """
    return a.mean.new_ones(a.mean.shape[0], b.mean.shape[0])


def inverse_weights(distances: Tensor) -> Tensor:
    """Weights proportional to 1 / distance (the paper's equation 9), which add up to 1.

    A domain at distance 0 gets all the weight, and several at distance 0 share it. Gradients are
    finite there too.

    Args:
        distances: (N, K).

    Returns:
        (N, K).
    """
    return torch.softmax(nearness(distances), dim=-1)


def nearness(distances: Tensor) -> Tensor:
    """-log distance, finite at distance 0 too: the weights are its softmax.

    Args:
        distances: (N, K).

    Returns:
        (N, K).
    """
    smallest = torch.finfo(distances.dtype).tiny
    return -distances.clamp_min(smallest).log()


MANY = 64
"""Points beyond which distances are found by a matrix product."""

BLOCK = 256
"""Points to compare at a time: to copy those of a thousand domains takes as much as a network."""


def _squares(a: Embedding, b: Embedding) -> Tensor:
    """Squared, between the (μ, σ) vectors of N and K points over the same layers, (N, K)."""
    if len(b) > MANY:
        return _squares_of_many(a, b)
    one, other = (torch.cat([points.mean, points.std], dim=-1) for points in (a, b))
    if one.is_cuda and not torch.compiler.is_exporting():  # in one launch; ONNX has no `cdist`
        # The quick way through a matrix product cancels digits where points lie close together.
        return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist").square()
    # On a CPU `cdist` loses digits: it adds up thousands of channels one after another.
    return torch.stack([(one - point).square().sum(-1) for point in other], dim=1)


def _squares_of_many(a: Embedding, b: Embedding) -> Tensor:
    """The same by matrix products, for some of many points at a time."""
    parts = zip(b.mean.split(BLOCK), b.var.split(BLOCK), strict=True)
    points = [Embedding(mean, var, b.layers, b.channels) for mean, var in parts]
    squares = [_products(a.mean, some.mean) + _products(a.std, some.std) for some in points]
    return torch.cat(squares, dim=1).clamp_min(0)


def _products(one: Tensor, other: Tensor) -> Tensor:
    """Squared distances between (N, D) and (K, D), (N, K)."""
    # From the middle, so that few digits cancel: only points that almost coincide lose some.
    middle = other.mean(0)
    one, other = one - middle, other - middle
    lengths = one.square().sum(1, keepdim=True) + other.square().sum(1)
    device = "cpu" if one.is_meta else one.device.type  # a meta tensor knows no autocast
    with torch.autocast(device, enabled=False):  # half precision would lose the rest
        return torch.addmm(lengths, one, other.T, alpha=-2)
