"""Clusters of points, large enough to train on and numbered alike from one time to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Labels = NDArray[np.int64]


def find_clusters(points: NDArray[np.float32], count: int, smallest: int) -> Labels:
    """Clusters points by k-means.

    Args:
        points: (N, D).
        count: how many clusters.
        smallest: a cluster of fewer points takes in those nearest to its centre, from clusters that
            can spare them, until it has so many, or its even share of all.

    Returns:
        (N,), each point's cluster.

    Raises:
        ValueError: There are fewer points than clusters.
    """
    from sklearn.cluster import KMeans

    if len(points) < count:
        raise ValueError(f"{len(points)} images cannot make {count} clusters: ask for fewer")
    model = KMeans(count, n_init=10, random_state=0).fit(points)
    labels: Labels = model.labels_.astype(np.int64)
    smallest = min(smallest, len(points) // count)
    sizes = np.bincount(labels, minlength=count)
    for cluster, distances in enumerate(model.transform(points).T):
        for point in np.argsort(distances, kind="stable"):
            if sizes[cluster] >= smallest:
                break
            if sizes[labels[point]] > smallest:
                sizes[labels[point]] -= 1
                sizes[cluster] += 1
                labels[point] = cluster
    return labels


def match(new: Labels, old: Labels, count: int) -> Labels:
    """Renumbers clusters such that as many points as possible keep their number.

    Args:
        new: (N,), each point's cluster.
        old: (N,), the cluster it was in before.
        count: how many clusters.

    Returns:
        (N,), `new` under other numbers.
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    shared = np.zeros((count, count), dtype=np.int64)
    np.add.at(shared, (new, old), 1)
    _, number = linear_sum_assignment(shared, maximize=True)
    renumbered: Labels = number[new]
    return renumbered
