"""A look at a comparison before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bne.core.ensemble import convert
from bne.errors import DataError
from bne.models import build
from bne.models.registry import find
from bne.speed.work import CLASSES

if TYPE_CHECKING:
    from collections.abc import Container

    from bne.speed.settings import Settings

FAILURES = (RuntimeError, ValueError, AssertionError)  # that networks meet wrong inputs with


def try_out(settings: Settings, parts: Container[str]) -> None:
    """Takes one image through the network on the CPU, so that nothing fails while it is timed.

    Args:
        settings: of the comparison.
        parts: that are to be compared.

    Raises:
        DataError: Of the network, the size or the number of images, whichever cannot be timed.
    """
    name, size = settings.backbone, settings.size
    network = build(name, CLASSES)
    try:
        ensemble = convert(network, map(str, range(settings.domains)))
    except ValueError as error:
        raise DataError(
            f"--backbone {name}: {error}; choose a network with batch norm, resnet18 for example."
        ) from None
    with torch.inference_mode():
        try:
            image = torch.zeros(1, 3, size, size)
            network.eval()(image)
            ensemble.eval()(image)
        except FAILURES as error:
            raise DataError(
                f"--size {size}: {name} does not take images of {size} × {size} pixels "
                f"({_first_line(error)}); leave it out for {find(name).preprocessing.size}."
            ) from None
        if settings.images > 1 or not ("train" in parts or "memory" in parts):
            return
        try:
            network.train()(image)
        except FAILURES as error:
            raise DataError(
                f"--per-domain 1: {name} does not train on one image of {size} × {size} pixels "
                f"a step ({_first_line(error)}); give at least 2."
            ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
