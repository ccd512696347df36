"""Backbones and their weights.

`build("resnet18", num_classes=7, weights="torchvision")` makes a network, and `preprocessing` of
it is the input size and the normalization that it expects.
"""

from bne.models.build import Origin, build, classifier_parameters, origin, preprocessing
from bne.models.calibration import calibrate_batch_norm
from bne.models.registry import Preprocessing, list_models

__all__ = [
    "Origin",
    "Preprocessing",
    "build",
    "calibrate_batch_norm",
    "classifier_parameters",
    "list_models",
    "origin",
    "preprocessing",
]
