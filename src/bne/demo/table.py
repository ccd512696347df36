"""The demo's table: mean and standard error over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.evaluation.cells import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.demo.experiment import Outcome


def cells(outcomes: Sequence[Outcome], method: str) -> dict[str, Cell]:
    """A method's accuracy on each target."""
    own = [outcome for outcome in outcomes if outcome.method == method]
    found = {o.target: {p.seed: p.accuracy for p in own if p.target == o.target} for o in own}
    return {target: Cell(values, len(values)) for target, values in found.items()}
