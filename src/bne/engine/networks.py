"""The plain network and the method that takes it over, made as the recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bne.engine.errors import TrainingError
from bne.engine.synchronised import synchronise
from bne.methods import create
from bne.models import build, calibrate_batch_norm

if TYPE_CHECKING:
    from torch import nn

    from bne.engine.setting import Setting
    from bne.methods import Method

CALIBRATION_IMAGES = 1024  # of all source domains together


def make_model(setting: Setting, *, resumed: bool) -> nn.Module:
    """The plain network, on the device.

    Args:
        setting: of the run.
        resumed: whether a checkpoint replaces all its tensors, so that statistics need no
            calibration.

    Raises:
        TrainingError: There is no such network, or the initial weights do not fit it.
    """
    recipe = setting.recipe
    setting.seed("model")
    try:
        model = build(recipe.backbone, len(setting.prepared.images.classes), recipe.weights)
    except (ValueError, RuntimeError) as error:
        raise TrainingError(f"backbone {recipe.backbone}: {error}.") from error
    _place(model, setting)
    if recipe.calibrate and not resumed:
        calibrate_batch_norm(model, list(setting.look(_sample(setting))))
    return model


def make_method(setting: Setting, model: nn.Module) -> Method:
    """The recipe's method, which takes the network over, on the device.

    Raises:
        TrainingError: There is no such method, or its options are wrong.
    """
    recipe = setting.recipe
    setting.seed("method")
    try:
        method = create(recipe.method, model, setting.domains, recipe.options)
    except ValueError as error:
        raise TrainingError(f"method {recipe.method}: {error}.") from error
    if setting.processes.count > 1:
        synchronise(method)
    _place(method, setting)
    return method


def _place(network: nn.Module, setting: Setting) -> None:
    network.to(setting.processes.device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def _sample(setting: Setting) -> list[int]:
    """Training images, as many of every source domain, spread evenly over each."""
    share = CALIBRATION_IMAGES // len(setting.train)
    return [
        numbers[place * len(numbers) // count]
        for numbers in setting.train.values()
        for count in [min(share, len(numbers))]
        for place in range(count)
    ]
