"""A small map of where held-out images lie among the domains, kept in a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bne.data.feed import Feed
from bne.deploy.reference import some
from bne.errors import SettingsError
from bne.inspection.maps import make_maps
from bne.inspection.observe import observe
from bne.report.look import thumbnails

if TYPE_CHECKING:
    from collections.abc import Collection

    from bne.data.cache import PreparedImages
    from bne.deploy.engine import Engine
    from bne.deploy.manifest import Manifest

DIGITS = 3
MOST = 2000  # thumbnails
SIDE, BUDGET = 56, 4_000_000  # pixels of a thumbnail at most, and characters of all together


def make_map(
    engine: Engine,
    model: Manifest,
    prepared: PreparedImages,
    held_out: Collection[int],
    most: int,
    *,
    pictures: bool = False,
) -> dict[str, Any]:
    """Lays held-out images and the domains out in the plane; no name of an image is in it.

    Args:
        engine: the trained model.
        model: what is known of it.
        prepared: the images of the run.
        held_out: numbers of those held out.
        most: number of images at most of each domain.
        pictures: whether a thumbnail of each image is kept.

    Returns:
        `branches`, the places of the domains; and `images`, their places, domains, classes,
        distances to the branches and, if wanted, thumbnails: small JPEGs, as `data:` addresses.

    Raises:
        SettingsError: The model measures no distances, there are too few images, or too many
            thumbnails.
    """
    if model.distance is None:
        raise SettingsError(f"--map: {model.method} measures no distances; leave it out.")
    members = {}
    for name in (one for one in model.domains if one in prepared.images.domains):
        own = [n for n in prepared.images.indices_of([name]) if n in held_out]
        members[name] = [own[n] for n in some(len(own), most)]  # they are sorted by class
    count = sum(map(len, members.values()))
    if pictures and count > MOST:
        raise SettingsError(
            f"--thumbnails keeps {MOST} images at most, and --map {most} has {count}; lower it."
        )
    seen = observe(
        engine.method,
        engine.transform,
        model.classes,
        prepared,
        Feed(prepared, engine.device),
        {name: own for name, own in members.items() if own},
        points=most,
        weightings=["uniform"],
    )
    found = make_maps(seen, [], seed=0)
    if not found:
        raise SettingsError("--map: too few images were held out to make a map of; leave it out.")
    images, domains = (own.round(DIGITS).tolist() for own in (found[0].images, found[0].domains))
    mapped = seen.mapped
    labels = seen.domain[mapped].tolist(), seen.truth[mapped].tolist()
    away = [[float(f"{one:.4g}") for one in own] for own in (-seen.nearness[mapped]).tolist()]
    shown = [
        {
            "place": place,
            "domain": seen.domains[domain],
            "class": model.classes[label],
            "distances": distances,
        }
        for place, domain, label, distances in zip(images, *labels, away, strict=True)
    ]
    if pictures:
        small = thumbnails(prepared, seen.numbers[mapped].tolist(), SIDE, BUDGET)
        shown = [{**one, "thumbnail": own} for one, own in zip(shown, small, strict=True)]
    return {"branches": dict(zip(model.branches, domains, strict=True)), "images": shown}
