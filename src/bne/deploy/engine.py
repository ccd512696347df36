"""A trained network under torch: from prepared pixels to what it says of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bne.core.distances import uniform, wasserstein
from bne.core.prediction import Prediction
from bne.data.transform import upload
from bne.deploy.answers import Calibration, Seen
from bne.errors import DataError
from bne.inspection.observe import branches
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from bne.data.feed import Feed
    from bne.data.images import Way
    from bne.data.transform import EvalTransform
    from bne.methods import Method
    from bne.training.model_folder import Trained


class Engine:
    """A method, in evaluation mode on its device, that looks at images.

    Args:
        method: the trained model, on the device.
        transform: from prepared images to its input.
        device: to compute on.
    """

    def __init__(
        self, method: Method, transform: EvalTransform, device: torch.device | str
    ) -> None:
        self.method = method
        self.transform = transform
        self.device = torch.device(device)

    @property
    def size(self) -> int:
        """Height and width of the images it is given."""
        return self.transform.resize

    @property
    def way(self) -> Way:
        """How images are prepared for it."""
        return self.transform.way

    @property
    def batch(self) -> int:
        """How many images suit the device at a time."""
        return 128 if self.device.type == "cuda" else 16

    def __call__(self, pixels: NDArray[np.uint8], *, places: bool = True) -> Seen:
        """Looks at (N, size, size, C) images; see `look`."""
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        return self.look(upload(images, self.device), places=places)

    @torch.inference_mode()
    def look(self, images: Tensor, *, places: bool = True) -> Seen:
        """Looks at (N, C, size, size) uint8 images on the device.

        Args:
            images: resized to what the transform expects.
            places: whether weights and distances are wanted, which may cost another pass.

        Raises:
            DataError: An answer is not finite.
        """
        found = tuple(
            None if part is None else part.float().cpu().numpy()
            for part in explained(self.method, self.transform(images), places=places)
        )
        seen = Seen(*found)  # type: ignore[arg-type]
        if not np.isfinite(seen.logits).all():
            raise DataError(
                "The network's answers are not finite: its training has diverged; train it anew, "
                "with a smaller learning rate."
            )
        return seen


def explained(
    method: Method, images: Tensor, *, places: bool = True
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Logits, (N, classes); and (N, K) weights and distances, if the method has them.

    Args:
        method: the trained model, in evaluation mode.
        images: (N, 3, H, W), as the network takes them.
        places: whether weights and distances are wanted. The centre does without the pass that
            measures them.
    """
    explain: Any = getattr(method, "explain", None)
    if explain is None or not (places or weighs(method)):
        return method.predict(images), None, None
    told = explain(images)
    if not isinstance(told, Prediction):
        return told.logits, told.weights, None
    distances, net = told.distances, method.net
    if net.distance is uniform:  # which is the same everywhere and tells no nearest domain
        known: Any = net.domain_embeddings()  # type: ignore[operator]
        distances = wasserstein(told.embedding, known)
    return told.logits, told.weights, distances


def weighs(method: Method) -> bool:
    """Whether answers depend on where images lie, which they then are asked for at no cost."""
    return bool(branches(method)) and getattr(method.net, "mix", None) != "centre"


def calibrate(engine: Engine, feed: Feed, numbers: Sequence[int]) -> Calibration:
    """Measures probabilities and distances on held-out images.

    Args:
        engine: the trained model.
        feed: all images, on the engine's device.
        numbers: of the held-out ones.
    """
    if not len(numbers):
        return Calibration()
    shown = feed.gather(batches(torch.as_tensor(numbers)))
    parts = [(engine.look(images), labels.cpu().numpy()) for images, labels in shown]
    seen = Seen.cat([seen for seen, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return Calibration.of(seen.logits, labels, seen.distances)


def calibrate_run(trained: Trained) -> dict[str, Any]:
    """What a run records of its network for use: how it does on the sources' held-out images."""
    held_out = [number for split in trained.splits.values() for number in split.validation]
    engine = Engine(trained.method, trained.transform, trained.device)
    return {"calibration": asdict(calibrate(engine, trained.feed, held_out))}
