"""Maps of the space of domains: t-SNE of instance statistics with the domains' own points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.core.embedding import Embedding
from bne.errors import DataError
from bne.inspection.observe import silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bne.inspection.observe import Observed, Tell

COMPONENTS = 50
PERPLEXITY = 30.0
FEWEST = 5  # points that can be laid out
NEIGHBORS = 5
ALL_LAYERS = "all layers"


@dataclass(frozen=True, eq=False)
class Map:
    """M images and K domains in the plane.

    Attributes:
        name: name of the layer, or `ALL_LAYERS`.
        images: (M, 2), places of the images.
        domains: (K, 2), places of the domains.
        distances: (M, K), distances of the images from the domains, as the model measures them.
        neighbors: (M, up to 5), the training images of known domains that lie nearest to each, the
            nearest first, by the Wasserstein distance in these layers; none if none is there.
    """

    name: str
    images: NDArray[np.float64]
    domains: NDArray[np.float64]
    distances: NDArray[np.float64]
    neighbors: NDArray[np.int64]


def choose_layers(there: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The layers to map: those wanted, or the first, the middle and the last.

    Raises:
        DataError: A wanted layer is not there.
    """
    if wanted is None:
        return list(dict.fromkeys((there[0], there[len(there) // 2], there[-1])))
    for layer in wanted:
        if layer not in there:
            raise DataError(
                f"--layers {layer}: the model compares no such layer; choose from "
                f"{', '.join(there)}."
            )
    return list(dict.fromkeys(wanted))


def make_maps(
    observed: Observed, layers: Sequence[str] | None, seed: int, tell: Tell = silent
) -> list[Map]:
    """One map of all layers together, then one of each that is chosen; none of too few points.

    `tell` is called after each.
    """
    points, known = observed.points, observed.known
    if points is None or known is None or len(points) + len(known) < FEWEST:
        return []
    there = points.layers
    wanted = {ALL_LAYERS: (there, -observed.nearness)}
    for layer in choose_layers(there, layers):
        wanted[layer] = ((layer,), observed.layer_distances[:, there.index(layer)])
    both = Embedding.cat([points, known])
    maps = []
    for name, (compared, distances) in wanted.items():
        vectors = _vectors(both.select(compared))
        flat = flatten(vectors, seed)
        own = distances[observed.mapped].double().numpy()
        near = _neighbors(vectors[: len(points)], _training_images(observed))
        maps.append(Map(name, flat[: len(points)], flat[len(points) :], own, near))
        tell(1)
    return maps


def _training_images(observed: Observed) -> NDArray[np.int64]:
    """Points on the map that are images of known domains, not held out from training."""
    known = torch.tensor([name in observed.branches for name in observed.domains])
    rows = observed.mapped
    inside = known[observed.domain[rows]] & ~observed.held_out[rows]
    found: NDArray[np.int64] = inside.nonzero().flatten().numpy()
    return found


def _neighbors(vectors: NDArray[np.float64], among: NDArray[np.int64]) -> NDArray[np.int64]:
    """(M, up to 5), which of `among` lie nearest to each of (M, D), itself left out."""
    from sklearn.neighbors import NearestNeighbors

    if not len(among):
        return np.zeros((len(vectors), 0), np.int64)
    most = min(NEIGHBORS + 1, len(among))
    search = NearestNeighbors(n_neighbors=most, algorithm="brute").fit(vectors[among])
    found = among[search.kneighbors(vectors, return_distance=False)]
    own = found == np.arange(len(vectors))[:, None]
    own[~own.any(1), -1] = True  # of others the farthest goes
    others: NDArray[np.int64] = found[~own].reshape(len(vectors), most - 1)
    return others


def flatten(points: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Lays points, (N, D), out in the plane, (N, 2), by PCA and t-SNE.

    The squared Euclidean distance of (μ, σ) vectors is the paper's Wasserstein distance.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if not np.ptp(points, axis=0).any():
        return np.zeros((len(points), 2))  # all the same, of which t-SNE can make nothing
    count = min(COMPONENTS, len(points) - 1, points.shape[1])
    reduced = PCA(count, random_state=seed).fit_transform(points)
    layout = TSNE(perplexity=min(PERPLEXITY, (len(points) - 1) / 3), random_state=seed)
    return np.asarray(layout.fit_transform(reduced), dtype=np.float64)


def _vectors(points: Embedding) -> NDArray[np.float64]:
    """(N, 2D), means and standard deviations."""
    return np.concatenate([points.mean.double().numpy(), points.std.double().numpy()], axis=1)
