"""A trained network under torch: from prepared pixels to what it says of them.

And the reverse: an exported graph in the place of a trained method.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bne.core.convert import convert
from bne.core.distances import uniform, wasserstein
from bne.core.ensemble import DomainEnsemble
from bne.core.prediction import Prediction
from bne.core.together import Together
from bne.data.decoding import in_threads
from bne.data.transform import upload
from bne.deploy.answers import Calibration, Seen
from bne.deploy.reference import IN_ALL, MOST, Reference, some, usual_distances
from bne.errors import DataError, SettingsError
from bne.inspection.observe import branches
from bne.methods import DSON, DNet
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from bne.core.options import Lean
    from bne.data.feed import Feed
    from bne.data.images import Way
    from bne.data.transform import EvalTransform
    from bne.deploy.onnx import OnnxEngine
    from bne.methods import Method
    from bne.training.model_folder import Trained

    Told = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
    """Logits, weights, distances and points; see `explained`."""

FLAT = 1e-4  # added to standard deviations, which may be 0


class Engine:
    """A method, in evaluation mode on its device, that looks at images.

    Args:
        method: the trained model, on the device.
        transform: from prepared images to its input.
        device: to compute on.
        reference: along whose axes images are placed, if that is wanted.
    """

    def __init__(
        self,
        method: Method,
        transform: EvalTransform,
        device: torch.device | str,
        reference: Reference | None = None,
    ) -> None:
        self.method = method
        self.reference = reference
        self.transform = transform
        self.device = torch.device(device)
        self._together: Together | None = None

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
        return self.look(self._uploaded(pixels), places=places)

    @torch.inference_mode()
    def stream(self, parts: Iterable[NDArray[np.uint8]]) -> Iterator[Seen]:
        """Looks at some (N, size, size, C) images after others.

        A GPU never waits: the next ones are sent to it and begun while it still computes.
        """
        on_gpu = self.device.type == "cuda"
        stream = torch.cuda.current_stream(self.device) if on_gpu else None

        def sent(pixels: NDArray[np.uint8]) -> Tensor:
            # That of the caller's thread; on a CPU nothing may ask for a GPU.
            with torch.cuda.stream(stream) if stream else nullcontext():
                return self._uploaded(pixels)

        begun = map(self._told, in_threads(sent, parts, threads=1, ahead=2))
        last = next(begun, None)
        while last is not None:
            coming = next(begun, None)
            yield self._seen(*last)
            last = coming

    def _uploaded(self, pixels: NDArray[np.uint8]) -> Tensor:
        return upload(torch.from_numpy(pixels).permute(0, 3, 1, 2), self.device)

    @torch.inference_mode()
    def together(self, parts: Iterable[NDArray[np.uint8]], *, places: bool = True) -> Engine:
        """The same model for images of one unknown domain, which it looks at twice.

        Args:
            parts: all images, (N, size, size, C) at a time. They are not kept.
            places: as in `look`.

        Raises:
            SettingsError: Its answers cannot depend on other images.
        """
        found = Engine(_with_domain_layers(self.method), self.transform, self.device)
        net = found.method.net
        assert isinstance(net, DomainEnsemble)
        found._together = Together(net)
        wanted = places or weighs(found.method)
        for pixels in parts:
            found._together.add(self.transform(self._uploaded(pixels)), places=wanted)
        return found

    @torch.inference_mode()
    def look(self, images: Tensor, *, places: bool = True) -> Seen:
        """Looks at (N, C, size, size) uint8 images on the device.

        Args:
            images: resized to what the transform expects.
            places: whether weights and distances are wanted, which may cost another pass.

        Raises:
            DataError: An answer is not finite.
        """
        return self._look(images, places=places)[0]

    @torch.inference_mode()
    def _look(self, images: Tensor, *, places: bool = True) -> tuple[Seen, Tensor | None]:
        """What `look` gives, and the images' points, (N, D), if they have any."""
        told = self._told(images, places=places)
        return self._seen(*told), told[-1]

    def _told(self, images: Tensor, *, places: bool = True) -> Told:
        with self._together or nullcontext():
            return _told(self.method, self.transform(images), places=places)

    def _seen(self, *told: Tensor | None) -> Seen:
        """What `_told` says, fetched from the device."""
        *said, points = told
        found = [None if part is None else part.float().cpu().numpy() for part in said]
        vectors = None
        if points is not None and self.reference is not None:
            vectors = self.reference.place(points.cpu().numpy())
        seen = Seen(*found)._replace(vectors=vectors)  # type: ignore[arg-type]
        if not np.isfinite(seen.logits).all():
            raise DataError(
                "The network's answers are not finite: its training has diverged; train it anew, "
                "with a smaller learning rate."
            )
        return seen


class GraphMethod(nn.Module):
    """An exported graph that answers as `Method.predict` does, to be measured as a method is.

    What the graph tells of branches is not asked for.

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
    return _told(method, images, places=places)[:3]


def _told(method: Method, images: Tensor, *, places: bool) -> Told:
    """The same, and the images' points, (N, D): means and logarithms of standard deviations."""
    explain: Any = getattr(method, "explain", None)
    if explain is None or not (places or weighs(method)):
        return method.predict(images), None, None, None
    told = explain(images)
    if not isinstance(told, Prediction):
        return told.logits, told.weights, None, None
    distances, net, point = told.distances, method.net, told.embedding
    if net.distance is uniform:  # which is the same everywhere and tells no nearest domain
        known: Any = net.domain_embeddings()  # type: ignore[operator]
        distances = wasserstein(point, known)
    points = torch.cat([point.mean, (point.std + FLAT).log()], 1).float() if places else None
    return told.logits, told.weights, distances, points


def _with_domain_layers(method: Method) -> Method:
    """The same model, whose layers can take statistics from elsewhere than each image.

    Raises:
        SettingsError: It uses no statistics of images, or in a way of its own.
    """
    if not isinstance(method.net, DomainEnsemble) and (lean := method.lean):
        method = copy.deepcopy(method)
        method.lean = 0  # its plain network leans otherwise
        method.net = convert(method.net, lean=lean)
    net, special = method.net, isinstance(method, DNet | DSON)
    if special:
        raise SettingsError(
            f"one domain: {type(method).__name__} answers image by image, by weights or layers of "
            "its own; leave it out."
        )
    if not isinstance(net, DomainEnsemble) or not (branches(method) or net.leans):
        raise SettingsError(
            f"one domain: {type(method).__name__} answers image by image, since it neither leans "
            "nor weighs branches by distances; leave it out."
        )
    return method


def weighs(method: Method) -> bool:
    """Whether answers depend on where images lie, which they then are asked for at no cost."""
    return bool(branches(method)) and getattr(method.net, "mix", None) != "centre"


def calibrate(engine: Engine, feed: Feed, members: Mapping[str, Sequence[int]]) -> Calibration:
    """Measures probabilities and distances on held-out images.

    Args:
        engine: the trained model.
        feed: all images, on the engine's device.
        members: numbers of the held-out ones, by domain.
    """
    numbers = [number for own in members.values() for number in own]
    if not numbers:
        return Calibration()
    most = min(MOST, max(1, IN_ALL // len(members)))
    parts, labels = [], []
    points: dict[str, Any] = {}
    for name, own in members.items():
        looks, count = [], 0
        kept = np.isin(np.arange(len(own)), some(len(own), most))  # of far more, perhaps
        for images, truth in feed.gather(batches(torch.as_tensor(own))):
            seen, found = engine._look(images)
            parts.append(seen)
            labels.append(truth.cpu().numpy())
            if found is not None:
                looks.append(found.cpu().numpy()[kept[count : count + len(found)]])
                count += len(found)
        if looks:
            points[name] = np.concatenate(looks)
    seen, known = Seen.cat(parts), branches(engine.method)
    reference = None
    if points and seen.distances is not None:
        reference = Reference.of(points, usual_distances(seen.distances, known))
    return Calibration.of(seen.logits, np.concatenate(labels), seen.distances, reference)


def calibrate_run(trained: Trained) -> dict[str, Any]:
    """What a run records of its network for use: how it does on the sources' held-out images."""
    held_out = {n: split.validation for n, split in trained.splits.items() if split.validation}
    engine = Engine(trained.method, trained.transform, trained.device)
    return {"calibration": asdict(calibrate(engine, trained.feed, held_out))}
