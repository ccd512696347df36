"""What a comparison is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

    from bne.training.inputs import Precision

Work = Literal["training", "warm-up", "inference", "distance"]


@dataclass(frozen=True)
class Settings:
    """What all cases of a comparison share.

    Attributes:
        backbone: one of `bne.models.list_models`.
        device: where everything runs.
        precision: of convolutions and matrix products.
        domains: K.
        per_domain: images of each domain in a training step.
        batch: images in inference.
        size: height and width of the images.
        repeat: how often each case is timed; the median counts.
    """

    backbone: str
    device: torch.device
    precision: Precision
    domains: int
    per_domain: int
    batch: int
    size: int
    repeat: int

    @property
    def on_gpu(self) -> bool:
        """Whether steps can be CUDA graphs, memory is counted and the goals for a GPU hold."""
        return self.device.type == "cuda"

    @property
    def compiles(self) -> bool:
        """Whether networks are also timed as `torch.compile` gives them, which takes Triton."""
        return self.on_gpu and find_spec("triton") is not None

    @property
    def images(self) -> int:
        """Images in a training step."""
        return self.domains * self.per_domain

    def gpu_goal(self, ratio: float) -> float | None:
        """The ratio where it is a goal, on a GPU."""
        return ratio if self.on_gpu else None


@dataclass(frozen=True)
class Case:
    """Something to be timed.

    Attributes:
        work: a "training" step, a "warm-up" step, "inference", or "distance": embedding and
            distance alone, forward and backward.
        images: how many at once.
        graph: whether it is run as a CUDA graph, otherwise call by call.
        domains: K; 0 is the plain network.
        options: of `bne.convert`.
        compiled: whether the network goes through `torch.compile` first; in inference only.
    """

    work: Work
    images: int
    graph: bool
    domains: int = 0
    options: tuple[tuple[str, object], ...] = ()
    compiled: bool = False

    @property
    def plain(self) -> Case:
        """The plain network doing the same with as many images."""
        work: Work = "inference" if self.work == "inference" else "training"
        return replace(self, work=work, domains=0, options=())
