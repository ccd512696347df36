"""An exported graph in the place of a trained method, to be measured as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from bne.core.options import Lean
    from bne.deploy.onnx import OnnxEngine


class GraphMethod(nn.Module):
    """Answers as `Method.predict` does; what the graph tells of branches is not asked for.

    Args:
        engine: the graph.
    """

    def __init__(self, engine: OnnxEngine) -> None:
        super().__init__()
        self.net = nn.Identity()  # has no branches
        self.lean: Lean = engine.model.lean
        self._engine = engine

    def predict(self, images: Tensor) -> Tensor:
        """Logits, (N, classes), of (N, C, size, size) uint8 images, which no transform has seen."""
        pixels = images.permute(0, 2, 3, 1).contiguous().numpy()
        return torch.from_numpy(self._engine(pixels).logits)
