"""Descriptions of models that do not exist."""

from typing import Any

from bne.deploy.manifest import Manifest


def manifest(**fields: Any) -> Manifest:
    usual: dict[str, Any] = {
        "backbone": "none",
        "classes": ("cat", "dog"),
        "domains": ("art", "photo"),
        "branches": (),
        "method": "deepall",
        "options": {},
        "distance": None,
        "mix": None,
        "lean": 0.0,
        "transform": {},
        "weights": None,
        "bne": "0",
    }
    return Manifest(**usual | fields)
