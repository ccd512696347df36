"""Records of epochs as they are read back, which may be damaged."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from bne.engine.events import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_epochs(records: Iterable[Any]) -> tuple[Epoch, ...]:
    """The epochs of a run, all that pages show of them being there.

    Args:
        records: what `Epoch.to_dict` gave, as JSON has it.

    Raises:
        ValueError: One is no epoch, a number is none, or the epochs are of different domains.
    """
    try:
        epochs = tuple(map(_epoch, records))
    except (KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError("no epoch") from error
    if len({(*epoch.validation, None, *epoch.target) for epoch in epochs}) > 1:
        raise ValueError("epochs of different domains")
    return epochs


def _epoch(fields: Any) -> Epoch:
    epoch = Epoch.from_dict(fields)
    scores = [*epoch.validation.values(), *epoch.target.values()]
    for number in (epoch.loss, *(score.accuracy for score in scores)):
        isfinite(number)  # which takes nothing but numbers
    if not epoch.target or not isinstance(epoch.stage, str):
        raise ValueError("no target or no stage")
    return epoch
