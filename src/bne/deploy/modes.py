"""Ways in which one trained model may answer: which branches run, and how far images lean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from bne.core.ensemble import Mix
from bne.errors import SettingsError, did_you_mean
from bne.methods.bne import BNE

if TYPE_CHECKING:
    from bne.core.ensemble import Lean
    from bne.deploy.manifest import Manifest
    from bne.methods import Method


def set_mode(
    method: Method,
    model: Manifest,
    *,
    lean: Lean | None = None,
    mix: str | None = None,
    nearest: int | None = None,
    layers: int | None = None,
) -> Manifest:
    """Changes how a trained model answers; what is None stays.

    Args:
        method: the model, which is changed.
        model: what is known of it.
        lean: how far images lean on their own statistics, 0 to 1.
        mix: what is mixed, see `bne.convert`.
        nearest: the number of branches that are run for each image, the nearest ones.
        layers: the number of first layers that place images among the domains. Distances are then
            others, and what is usual for them is no longer known.

    Returns:
        What is now known of it.

    Raises:
        SettingsError: The model has no branches, or cannot do so.
    """
    if lean is not None:
        try:
            method.lean = lean
        except ValueError as error:
            raise SettingsError(f"lean {lean}: {error}.") from error
        model = replace(model, lean=lean)
    asked = {"mix": mix, "nearest": nearest, "layers": layers}
    options: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    if not options:
        return model
    if not isinstance(method, BNE):
        raise SettingsError(
            f"{model.method} has no branches that are weighed by distances; leave "
            f"{' and '.join(options)} out."
        )
    if mix is not None and mix not in get_args(Mix):
        raise SettingsError(f"mix {mix} is unknown; {did_you_mean(mix, get_args(Mix))}.")
    if nearest is not None and not 1 <= nearest <= len(model.branches):
        raise SettingsError(f"nearest {nearest}: choose 1 to {len(model.branches)} branches.")
    for key, value in options.items():
        try:
            setattr(method.net, key, value)
        except ValueError as error:
            raise SettingsError(f"{error}.") from error
    if layers is not None:
        options["layers"] = list(method.net.layers or ())
        scale = replace(model.calibration, percentiles=(), reference=None)
        model = replace(model, calibration=scale)
    return replace(model, mix=mix or model.mix, options={**model.options, **options})
