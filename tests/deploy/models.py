"""Models that do not exist, and models that know what is usual from any images."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bne.deploy.classifier import Classifier
from bne.deploy.manifest import Manifest
from bne.deploy.reference import Reference, usual_distances


def manifest(**fields: Any) -> Manifest:
    """What is known of a model, of which nothing is there."""
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


def watching(model: Classifier, images: dict[str, np.ndarray]) -> Classifier:
    """The same model, with (n, size, size, 3) images of each domain as those held out."""
    engine = model.engine
    looks = {
        name: engine._look(torch.from_numpy(own).permute(0, 3, 1, 2))
        for name, own in images.items()
    }
    distances = np.concatenate([seen.distances for seen, _ in looks.values()])
    points = {name: found.numpy() for name, (_, found) in looks.items()}
    reference = Reference.of(points, usual_distances(distances, model.domains))
    scale = replace(model.info.calibration, reference=reference)
    return Classifier(engine.method, replace(model.info, calibration=scale), "cpu")
