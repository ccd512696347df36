"""How far a run has come."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bne.engine.events import Epoch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bne.engine.events import PhaseName


@dataclass
class Progress:
    """The numbers that a checkpoint remembers.

    Attributes:
        phase: the present one.
        epoch: epochs of the phase that are over.
        step: steps of the run that are over.
        epoch_seconds: that the steps of the present epoch have taken.
        seconds: that the run has taken.
        epochs: all records.
    """

    phase: PhaseName = "head"
    epoch: int = 0
    step: int = 0
    epoch_seconds: float = 0.0
    seconds: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Progress:
        """What `to_dict` gave; from nothing, the beginning."""
        epochs = [Epoch.from_dict(epoch) for epoch in fields.get("epochs", [])]
        return cls(**{**fields, "epochs": epochs})
