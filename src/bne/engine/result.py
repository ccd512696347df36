"""What a run ends with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bne.engine.events import Epoch, Scores, scores_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Result:
    """Everything a run has found, kept in `result.json`.

    Attributes:
        recipe: every setting, as `Recipe.to_dict` gives them.
        environment: in which it ran.
        epochs: all records, in order.
        accuracy: of every target domain, under the rules "last", "validation" (absent if no images
            were held out) and "oracle" (chosen on the target itself).
        precision: that was really used, "bf16" or "float32".
        target_images: what training knew of the target's images: "unseen", or "unlabelled" if they
            joined without their labels.
        analysis: what the caller's own analysis of the trained network gave.
        seconds: that the run took, evaluation included.
    """

    recipe: dict[str, Any]
    environment: dict[str, Any]
    epochs: list[Epoch]
    accuracy: dict[str, Scores]
    precision: str
    target_images: Literal["unseen", "unlabelled"]
    analysis: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Result:
        """What `to_dict` gave."""
        epochs = [Epoch.from_dict(epoch) for epoch in fields["epochs"]]
        accuracy = {rule: scores_from_dict(scores) for rule, scores in fields["accuracy"].items()}
        return cls(**{**fields, "epochs": epochs, "accuracy": accuracy})
