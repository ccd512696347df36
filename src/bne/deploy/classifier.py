"""A trained model as one object: what `bne.load` gives."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bne.core.distances import uniform
from bne.core.options import ONE_PASS
from bne.data.decoding import in_stacks
from bne.data.images import of_pillow, pixels, resized
from bne.data.transform import EvalTransform
from bne.data.values import Values
from bne.deploy import bundle
from bne.deploy.answers import Answers, Seen, check_abstain
from bne.deploy.engine import Engine
from bne.deploy.pictures import Picture as Encoded
from bne.deploy.pictures import find_pictures
from bne.errors import DataError, SettingsError, did_you_mean, require
from bne.methods.bne import BNE
from bne.training.files import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor

    from bne.core.options import Lean
    from bne.data.images import ImageSet, Way
    from bne.deploy.export import Exported, Format
    from bne.deploy.manifest import Manifest
    from bne.deploy.monitor import Watch
    from bne.methods import Method

    Picture = Encoded | str | os.PathLike[str] | bytes | Image.Image | Tensor | NDArray[np.uint8]


class Classifier:
    """A trained model in use, made by `bne.load`.

    Attributes:
        classes: names of the classes.
        domains: names of the domains it knows, those of its branches if it has any.
        method: name of the method that trained it.
        info: all else that is known of it.
        engine: the network itself.
    """

    def __init__(self, method: Method, manifest: Manifest, device: str) -> None:
        self.classes = manifest.classes
        self.domains: tuple[str, ...] = getattr(method.net, "domains", manifest.domains)
        self.method = manifest.method
        self.info = manifest
        transform = EvalTransform.from_dict(manifest.transform)
        reference = manifest.calibration.reference
        self.engine = Engine(method.to(device), transform, device, reference)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str, **mode: Any) -> Classifier:
        """Reads a model file, or the folder of a run or a model.

        Args:
            path: of the file or folder.
            device: "cpu" or "cuda".
            **mode: how it answers, see `bne.deploy.classifier.set_mode`.

        Raises:
            DataError: There is no model, or a damaged one.
            SettingsError: The model cannot answer so.
        """
        method, manifest = bundle.open_model(Path(path))
        return cls(method, set_mode(method, manifest, **mode), device)

    def __repr__(self) -> str:
        """In a line, for interactive use."""
        names = f"classes={list(self.classes)}, domains={list(self.domains)}"
        return f"{type(self).__name__}(method={self.method!r}, {names})"

    @property
    def id(self) -> str:
        """The same for the same model, wherever it lies."""
        return bundle.checksum(snapshot(self.engine.method.state_dict()), self.info)[:16]

    def predict(
        self,
        images: Picture | Iterable[Picture],
        *,
        abstain: float = 0.0,
        one_domain: bool = False,
    ) -> Answers:
        """Classifies images of any size, of domains that need not be known.

        Args:
            images: one or several: files, or folders, globs, archives and tables as `bne predict`
                takes them; bytes of image files, PIL images, uint8 tensors of (3, H, W) or uint8
                arrays of (H, W, 3), or with as many channels as the model takes. Several of one
                size may be one tensor or array with one more dimension in front.
            abstain: probability below which an image is left open: its class is None.
            one_domain: whether all images are one unknown domain: their pooled statistics are used
                in place of each one's own, to weigh the branches and to lean on.

        Raises:
            DataError: One cannot be read, or is something else.
            SettingsError: The model cannot take images as one domain, or `abstain` is no
                probability.
        """
        check_abstain(abstain)
        pictures = _several(images)
        if not pictures:
            raise DataError("There are no images to classify; give at least one.")

        way, batch = self.engine.way, self.engine.batch
        ready = getattr(images, "shape", ())[1:] == (way.size, way.size, way.channels)

        def parts() -> Iterator[NDArray[np.uint8]]:
            if ready and isinstance(images, np.ndarray) and images.dtype == np.uint8:
                return (images[start : start + batch] for start in range(0, len(images), batch))
            return in_stacks(partial(_pixels, way=way), pictures, batch)

        engine = self.engine.together(parts()) if one_domain else self.engine
        seen = Seen.cat(list(engine.stream(parts())))
        files = tuple(one.name if isinstance(one, Encoded) else None for one in pictures)
        return Answers(self.info, seen, abstain, one_domain, files)

    def enroll(
        self, name: str, images: Picture | Iterable[Picture], *, recenter: bool = False
    ) -> Classifier:
        """A copy that also knows a new domain, from unlabeled images of it, without training.

        Args:
            name: of the new domain.
            images: at least 2, better 64 or more; as `predict` takes them.
            recenter: whether the new domain counts in the domains' centre.

        Raises:
            SettingsError: The model cannot have more branches, or has one of that name.
            DataError: There are too few images, or one cannot be read.
        """
        from bne.deploy.enroll import enroll

        reads = [partial(_pixels, one, self.engine.way) for one in _several(images)]
        return self._like(enroll(self.engine, self.info, name, reads, recenter=recenter))

    def forget(self, name: str) -> Classifier:
        """A copy without one of the domains, enrolled or trained on.

        Raises:
            SettingsError: The model has no such domain, or no other.
        """
        from bne.deploy.enroll import forget

        return self._like(forget(self.engine, self.info, name))

    def expecting(self, records: str | os.PathLike[str]) -> Classifier:
        """A copy that also tells what to expect at a new domain: `bne bundle --records`.

        Args:
            records: file of runs with the same settings, each without one of the model's domains,
                as `bne.compare` leaves it.

        Raises:
            DataError: There is no such file, or it lacks such runs, or has them on different
                images.
        """
        from bne.deploy.expecting import expecting

        return self._like(bundle.Bundle(self.engine.method, expecting(self.info, Path(records))))

    def monitor(self, *, window: int = 64, alarm: float = 0.01, mixed: bool = False) -> Watch:
        """A watch over new images, which tells when they come from a domain not known.

        Args:
            window: images that are tested together.
            alarm: p-value below which a window alarms.
            mixed: whether a window may mix known domains.

        Raises:
            SettingsError: The model measures no distances, or keeps none of held-out images.
        """
        from bne.deploy.monitor import Watch

        return Watch(self.info, self.predict, window=window, alarm=alarm, mixed=mixed)

    def _like(self, made: bundle.Bundle) -> Classifier:
        return Classifier(*made, str(self.engine.device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as one file, which `bne.load` reads."""
        bundle.write(Path(path), self.engine.method, self.info)

    def export(
        self,
        path: str | os.PathLike[str],
        format: Format = "onnx",  # noqa: A002 - everybody's name for it
        *,
        preprocess: bool = False,
        places: bool = False,
        branch: str | None = None,
        quantize: ImageSet | None = None,
    ) -> Exported:
        """Writes the model as one graph; see `bne.deploy.export.export`."""
        from bne.deploy.export import export

        return export(
            self.engine.method,
            self.engine.transform,
            self.info,
            Path(path),
            format=format,
            preprocess=preprocess,
            places=places,
            branch=branch,
            quantize=quantize,
        )

    def to_onnx(self, path: str | os.PathLike[str], *, preprocess: bool = False) -> None:
        """Writes the model as an ONNX graph, which `bne predict` and ONNX Runtime run."""
        self.export(path, preprocess=preprocess)

    def push_to_hub(self, name: str, **options: Any) -> str:
        """Writes the model and its card to a repository of the Hugging Face Hub.

        Args:
            name: `owner/name`.
            **options: of `huggingface_hub.ModelHubMixin.push_to_hub`: private, token and others.

        Returns:
            The address of the commit.
        """
        require("huggingface_hub", "hub")
        from bne.deploy import hub

        return hub.push(self, name, **options)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes into a folder what `push_to_hub` uploads; `bne.from_pretrained` reads it."""
        require("huggingface_hub", "hub")
        from bne.deploy import hub

        hub.save(self, Path(folder))


def _several(images: Any) -> list[Any]:
    """One image or several, as `Classifier.predict` takes them, in a list; files as `Encoded`."""
    shape = getattr(images, "shape", ())
    one = isinstance(images, Encoded | str | bytes | os.PathLike) or len(shape) in (2, 3)
    found: list[Any] = []
    for given in [images] if one or not hasattr(images, "__iter__") else images:
        found += find_pictures([given]) if isinstance(given, str | os.PathLike) else [given]
    return found


def _pixels(picture: Any, way: Way) -> NDArray[np.uint8]:
    """(size, size, channels), as in training."""
    from PIL import Image

    if isinstance(picture, Encoded):
        return pixels(picture.read(), picture.name, way)
    if isinstance(picture, bytes):
        return pixels(picture, "image", way)
    if hasattr(picture, "shape"):
        values = _from_array(picture, way.channels)
        if values.shape[:2] == (way.size, way.size):  # prepared already
            return values
        return resized(
            Values(values[..., 0] if way.channels == 1 else values, "image", None), "image", way
        )
    if not isinstance(picture, Image.Image):
        kind = type(picture).__name__
        raise DataError(f"{kind} is no image; give a file, a PIL image, a tensor or an array.")
    return resized(of_pillow(picture, "image"), "image", way)


def _from_array(given: Any, channels: int) -> NDArray[np.uint8]:
    """The values of a tensor of (C, H, W) or an array of (H, W, C)."""
    shape = tuple(given.shape)
    array = isinstance(given, np.ndarray)
    wanted = f"an array it must be uint8 of (H, W, {channels})"
    if not array:
        wanted = f"a tensor it must be uint8 of ({channels}, H, W)"
    found = shape[2 if array else 0] if len(shape) == 3 else 0
    if found != channels or str(given.dtype).removeprefix("torch.") != "uint8":
        raise DataError(f"An image of shape {shape} and {given.dtype} was given; as {wanted}.")
    values: NDArray[np.uint8] = given if array else given.permute(1, 2, 0).cpu().numpy()
    return values


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
        if lean and not method.has_batch_norm:
            raise SettingsError(
                f"lean {lean}: the network has no batch norm, where images lean; leave it out."
            )
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
    if mix is not None and mix not in method.can_mix:
        raise SettingsError(
            f"{model.method} has no mix {mix}; {did_you_mean(mix, method.can_mix)}."
        )
    if nearest is not None:
        if not 1 <= nearest <= len(model.branches):
            raise SettingsError(f"nearest {nearest}: choose 1 to {len(model.branches)} branches.")
        if method.net.distance is uniform:
            raise SettingsError(
                f"nearest {nearest}: {model.method} weighs all branches alike; leave nearest out."
            )
        if (mixed := mix or model.mix) in ONE_PASS:
            raise SettingsError(
                f"nearest {nearest}: with mix {mixed} no branch is run; set mix to logits too."
            )
    try:
        method.answer_by(**options)
    except ValueError as error:
        raise SettingsError(f"{error}.") from error
    if layers is not None:
        options["layers"] = list(method.net.layers or ())
        scale = replace(model.calibration, percentiles=(), reference=None)
        model = replace(model, calibration=scale)
    return replace(model, mix=mix or model.mix, options={**model.options, **options})
