"""Where held-out images lie among the domains, layer by layer, kept for new ones to compare with.

Distances are taken at every layer: at some, a new domain may lie as near as known ones do. This
file needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Rows = Sequence[Sequence[float]]

MOST, DIGITS = 500, 4  # images of each domain, and decimals
AXES, PER_AXIS = 12, 5  # principal axes, and images of the smallest domain that each needs


@dataclass(frozen=True)
class Reference:
    """Images of known domains, each in P numbers.

    Attributes:
        columns: names of the K domains that distances are measured to.
        origin: (L * K,), the images' mean of the logarithms of distances, at all L layers.
        axes: (P, L * K), directions in which they differ most, to scale.
        vectors: (n, P) by domain, where its images lie along these.
        usual: by domain that images are weighed by, the mean logarithm of the whole distance of
            those images that lie nearest to it.
    """

    columns: tuple[str, ...]
    origin: Sequence[float]
    axes: Rows
    vectors: Mapping[str, Rows]
    usual: Mapping[str, float]

    @classmethod
    def of(
        cls, by_layer: Floats, distances: Floats, columns: Sequence[str], members: Mapping[str, Any]
    ) -> Reference:
        """Keeps N held-out images.

        Args:
            by_layer: (N, L, K), distances at each layer.
            distances: (N, K), whole ones.
            columns: names of the K domains.
            members: which of the images are of which domain, by name: rows or a slice.
        """
        rows = {name: _some(np.arange(len(by_layer))[own]) for name, own in members.items()}
        values = logarithms(by_layer.reshape(len(by_layer), -1))
        chosen = values[np.concatenate([*rows.values()])]
        origin, scale = chosen.mean(0), np.maximum(chosen.std(0), 1e-6)
        count = int(np.clip(min(map(len, rows.values())) // PER_AXIS, 1, AXES))
        directions = np.linalg.svd((chosen - origin) / scale, full_matrices=False)[2][:count]
        found = cls(
            tuple(columns), origin.round(DIGITS).tolist(), _short(directions / scale), {}, {}
        )
        vectors = {name: found._rounded(by_layer[own], columns) for name, own in rows.items()}
        return replace(found, vectors=vectors, usual=_usual(distances, columns))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Reference:
        """What `dataclasses.asdict` gave, also after JSON."""
        return cls(**{**fields, "columns": tuple(fields["columns"])})

    def place(self, by_layer: Floats, names: Sequence[str]) -> Floats:
        """(N, P), where images lie.

        Args:
            by_layer: (N, L, K or more), their distances at each layer.
            names: of the domains in these.
        """
        own = by_layer[:, :, [names.index(name) for name in self.columns]]
        values = logarithms(own.reshape(len(own), -1))
        found: Floats = (values - np.asarray(self.origin)) @ np.asarray(self.axes).T
        return found

    def including(
        self, name: str, by_layer: Floats, distances: Floats, names: Sequence[str]
    ) -> Reference:
        """The same with images of one more domain; the arguments are as in `of` and `place`."""
        vectors = self._rounded(by_layer[_some(np.arange(len(by_layer)))], names)
        own = {name: float(logarithms(distances[:, names.index(name)]).mean())}
        return replace(self, vectors={**self.vectors, name: vectors}, usual={**self.usual, **own})

    def without(self, name: str) -> Reference:
        """The same without a domain that `including` added."""
        vectors = {key: own for key, own in self.vectors.items() if key != name}
        usual = {key: own for key, own in self.usual.items() if key != name}
        return replace(self, vectors=vectors, usual=usual)

    def _rounded(self, by_layer: Floats, names: Sequence[str]) -> list[list[float]]:
        found: list[list[float]] = self.place(by_layer, names).round(DIGITS).tolist()
        return found


def logarithms(distances: Floats) -> Floats:
    """Of distances, finite at 0 too."""
    smallest = np.finfo(np.float32).tiny
    found: Floats = np.log(np.maximum(distances.astype(np.float64), smallest))
    return found


def _usual(distances: Floats, columns: Sequence[str]) -> dict[str, float]:
    nearest, values = distances.argmin(1), logarithms(distances)
    return {
        name: float(values[nearest == k, k].mean())
        for k, name in enumerate(columns)
        if (nearest == k).any()
    }


def _some(rows: NDArray[Any]) -> NDArray[Any]:
    """At most `MOST` of them, evenly."""
    found: NDArray[Any] = rows[
        np.linspace(0, len(rows) - 1, min(MOST, len(rows))).round().astype(int)
    ]
    return found


def _short(values: Floats) -> list[list[float]]:
    return [[float(f"{value:.5g}") for value in row] for row in values.tolist()]
