"""Where an image lies on a model's map of domains; needs NumPy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bne.deploy.answers import Seen
    from bne.deploy.manifest import Manifest

NEIGHBOURS = 5
DIGITS = 3


def map_of(model: Manifest) -> Mapping[str, Any] | None:
    """The map that a model file keeps; without one, the domains on a circle and no images.

    None if the model has no branches.
    """
    if model.map is not None or not model.branches:
        return model.map
    count = len(model.branches)
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    corners = np.stack((np.cos(angles), np.sin(angles)), 1).round(DIGITS).tolist()
    return {"branches": dict(zip(model.branches, corners, strict=True)), "images": []}


def place(model: Manifest, seen: Seen) -> list[list[float]] | None:
    """The places of N images on `map_of` a model; None if it has no map or they were not weighed.

    On a map of held-out images, a new one lies amid those whose distances to the domains are most
    like its own, in ratio. Otherwise the domains' weights pull it towards them.
    """
    shown = map_of(model)
    if shown is None or seen.weights is None:
        return None
    images = shown["images"]
    found: NDArray[Any]
    if seen.distances is not None and images and "distances" in images[0]:
        known = _logs(np.array([image["distances"] for image in images]))
        apart = np.square(_logs(seen.distances)[:, None] - known).sum(2)
        nearest = np.argsort(apart, 1, kind="stable")[:, :NEIGHBOURS]
        near = 1 / (np.take_along_axis(apart, nearest, 1) + 1e-6)
        places = np.array([image["place"] for image in images])[nearest]
        found = (places * (near / near.sum(1, keepdims=True))[:, :, None]).sum(1)
    else:
        found = seen.weights @ np.array([shown["branches"][name] for name in model.branches])
    plain: list[list[float]] = found.astype(float).round(DIGITS).tolist()
    return plain


def _logs(distances: NDArray[Any]) -> NDArray[Any]:
    logs: NDArray[Any] = np.log(np.maximum(distances, 1e-12))
    return logs
