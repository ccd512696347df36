"""A model as one file: a safetensors file whose metadata hold the manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bne.core import distances
from bne.deploy.answers import Calibration
from bne.deploy.manifest import KEY, Manifest, envelope, opened
from bne.errors import DataError, require
from bne.inspection.observe import branches
from bne.methods.bne import BNE
from bne.training.files import hash_tensors, plain, snapshot, write_bytes
from bne.training.folder import read_training
from bne.training.model_folder import ModelInfo, read_model, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from bne.methods import Method
    from bne.training.folder import Training
    from bne.training.scores import Rule


class Bundle(NamedTuple):
    """A model as it lies in a file or a folder, and as it is used.

    Attributes:
        method: the trained network, in evaluation mode on the CPU.
        manifest: what is known of it.
    """

    method: Method
    manifest: Manifest


def open_model(path: Path | str) -> Bundle:
    """Reads a model file, or the folder of a run or a model.

    Raises:
        DataError: It is not there, damaged, of a later version, or something else.
    """
    path = Path(path)
    return _of_folder(path) if path.is_dir() else _of_file(path)


def write(path: Path, method: Method, manifest: Manifest) -> None:
    """Writes a model file, or replaces it, as a whole; the same model gives the same bytes."""
    tensors = snapshot(method.state_dict())
    text = envelope(manifest, checksum(tensors, manifest))
    data: bytes = require("safetensors.torch").save(tensors, {KEY: text})
    write_bytes(path, data)


def checksum(tensors: Mapping[str, Tensor], manifest: Manifest) -> str:
    """SHA-256 of all tensors and the manifest, the same however a file lays them out."""
    digest = hashlib.sha256(manifest.to_json().encode())
    hash_tensors(digest, tensors)
    return digest.hexdigest()


def _of_file(path: Path) -> Bundle:
    safetensors = require("safetensors")
    if not path.is_file():  # a pipe or a device is none, and opening one could block
        raise DataError(f"{path}: there is no such file or folder.")
    try:
        with safetensors.safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            manifest, beside = opened(text, path)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:  # which does not name the file
        raise DataError(f"{path}: cannot be read ({error}).") from error
    except safetensors.SafetensorError as error:
        if path.suffix in (".onnx", ".pt2"):
            raise DataError(
                f"{path} is an exported graph; give the model file or the run that it was made of."
            ) from error
        kind = "cut short" if _cut_short(path) else "no model file, or a damaged one"
        raise DataError(f"{path} is {kind} ({error}); copy or make it again.") from error
    if checksum(tensors, manifest) != beside.get("sha256"):
        raise DataError(
            f"{path} is damaged: its checksum is not the one it was written with; copy it again."
        )
    info = ModelInfo(**{field.name: getattr(manifest, field.name) for field in fields(ModelInfo)})
    domains = (manifest.branches, manifest.central) if manifest.branches else None
    return Bundle(restore(path, tensors, info, domains)[0], manifest)


def _cut_short(path: Path) -> bool:
    """Whether a file begins as our model files do, and has fewer bytes than its header counts."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        start = b'{"__metadata__":{"' + KEY.encode()
        if not file.read(len(start)).startswith(start):
            return False
        rest = file.read(min(length, path.stat().st_size) - len(start))
    if len(start + rest) < length:
        return True
    try:
        tensors = json.loads(start + rest)
        end = max(entry["data_offsets"][1] for key, entry in tensors.items() if key[:2] != "__")
    except (KeyError, TypeError, ValueError):
        return False
    return path.stat().st_size < 8 + length + int(end)


def _of_folder(folder: Path) -> Bundle:
    place, tensors, info = read_model(folder)
    method, _ = restore(place, tensors, info)
    training = read_training(place)
    manifest = Manifest(
        backbone=info.backbone,
        classes=info.classes,
        domains=info.domains,
        branches=branches(method),
        method=info.method,
        options=plain(info.options),
        distance=_distance(method),
        mix=getattr(method.net, "mix", None) if branches(method) else None,
        lean=method.lean,
        transform=plain(info.transform),
        weights=info.weights,
        bne=info.bne,
        **(_of_run(training, place.name) if training else {}),
    )
    return Bundle(method, manifest)


def _distance(method: Method) -> str | None:
    """The name of the distance that weighs a method's branches, if one does."""
    if not isinstance(method, BNE):
        return None
    known = distances.names()
    return next((name for name in known if distances.get(name) is method.net.distance), None)


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not None, so that models of earlier runs give the same file as before."""
    return {key: value for key, value in fields.items() if value is not None}


def _of_run(training: Training, name: str) -> dict[str, Any]:
    """What a run's records tell of its model of that name; no path of this machine is among it."""
    recipe = dict(training.settings)
    if recipe.get("weights"):
        recipe["weights"] = Path(recipe["weights"]).name
    found: dict[str, Any] = {"recipe": plain(recipe)}
    rule: Rule = "validation" if name == "best" else "last"
    if kept := training.kept(rule):
        scores = {"target": kept.target, "validation": kept.validation}
        found["accuracy"] = {"rule": rule, "lean": kept.share} | {
            kind: {domain: _known(vars(score)) for domain, score in own.items()}
            for kind, own in scores.items()
        }
    analysis = training.result.analysis if training.result else {}
    if rule == "last" and "calibration" in analysis:
        found["calibration"] = Calibration.from_dict(analysis["calibration"])
    return found
