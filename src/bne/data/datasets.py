"""Images that a Python object holds: torch and Hugging Face datasets."""

from __future__ import annotations

import hashlib
import io
import operator
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from bne.data.entries import Entry, gather, printable
from bne.data.images import ImageFile, ImageSet, as_rgb, of_pillow
from bne.data.layouts import APART, PARTS, TRAIN, VALIDATION
from bne.errors import DataError, require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from PIL import Image


def from_saved(folder: Path) -> ImageSet:
    """Lists what `save_to_disk` of `datasets` wrote; its splits train and validation are kept.

    Raises:
        DataError: It cannot be read, or lacks a column.
        MissingLibraryError: `datasets` is not installed.
    """
    library = require("datasets", "datasets")
    try:
        found = library.load_from_disk(str(folder))
    except Exception as error:  # whatever the library raises on damaged files
        raise DataError(f"{folder}: cannot be read as a saved dataset ({error}).") from error
    if not isinstance(found, dict):
        return from_dataset(found)
    sets = {name: from_dataset(own) for name, own in found.items()}
    parts = {name: PARTS.get(name, APART) for name in sets}
    split = {TRAIN, VALIDATION} <= set(parts.values())
    entries = (
        Entry(
            own.domains[file.domain],
            own.classes[file.label],
            f"{name}-{file.name.rpartition('/')[2]}",
            file.read,
            file.stamp,
            file.group,
            parts[name] if split else "",
        )
        for name, own in sets.items()
        for file in own.files
    )
    return gather(entries, str(folder))


def from_dataset(dataset: Any) -> ImageSet:
    """Lists a map-style torch `Dataset` of `(image, label, domain)`, or a Hugging Face dataset.

    A Hugging Face dataset has columns of these three names, and may have a column group. Images
    are PIL images, uint8 arrays (H, W) or (H, W, C), uint8 or 0..1 float tensors (H, W) or
    (C, H, W), or gray in uint16; they must be the same every time they are asked for, so without
    random transforms. Labels and domains are numbers or names; numbers are named by the dataset's
    `classes` and `domains`, or by `ClassLabel` features, where it has them. A torch dataset is read
    once from end to end, for its labels and its stamps.

    Raises:
        DataError: The object is no such dataset.
    """
    indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not indexed or isinstance(dataset, dict):
        raise DataError(
            f"Images cannot come from an object of type {type(dataset).__name__}; give a path, a"
            " map-style torch Dataset or one split of a Hugging Face dataset."
        )
    if not len(dataset):
        raise DataError("The dataset holds no images.")
    groups = [""] * len(dataset)
    if hasattr(dataset, "column_names") and hasattr(dataset, "features"):
        field: int | str = "image"
        label, domain, stamps = _hugging_face_columns(dataset)
        if "group" in dataset.column_names:
            groups = [printable(str(group)) for group in dataset["group"]]
    else:
        field = 0
        label, domain, stamps = _torch_columns(dataset)
    classes, labels = _number(*label, "label")
    domains, domain_ids = _number(*domain, "domain")
    files = (
        ImageFile(
            f"{domains[domain_id]}/{classes[label_id]}/{index}",
            label_id,
            domain_id,
            partial(read_item, dataset, index, field),
            stamp,
            group,
        )
        for index, (label_id, domain_id, stamp, group) in enumerate(
            zip(labels, domain_ids, stamps, groups, strict=True)
        )
    )
    return ImageSet(domains, classes, tuple(files))


_access = threading.Lock()  # a dataset need not know of threads: one item at a time


def read_item(dataset: Any, index: int, field: int | str) -> bytes:
    """One image of a dataset as a PNG file: without loss, and read as any other image is."""
    name = f"item {index}"
    try:
        with _access:
            picture = as_picture(dataset[index][field], name)
    except DataError:
        raise
    except Exception as error:  # whatever the dataset's own code may raise
        raise DataError(f"{name}: cannot be read ({error}); mend or remove it.") from error
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def as_picture(image: Any, name: str) -> Image.Image:
    """Makes RGB, or 16-bit gray, of a PIL image, an array or a tensor as `from_dataset` says."""
    import numpy as np
    import torch
    from PIL import Image

    if isinstance(image, Image.Image):
        return image if image.mode == "I;16" else as_rgb(of_pillow(image, name))
    if isinstance(image, torch.Tensor):
        if image.is_floating_point():
            if image.numel() and not (image.min() >= 0 and image.max() <= 1):
                raise DataError(f"{name}: float pixels outside 0..1; give it before normalization.")
            image = (image * 255).round().to(torch.uint8)
        image = (image.movedim(0, -1) if image.ndim == 3 else image).numpy(force=True)
    if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    gray_16 = isinstance(image, np.ndarray) and image.dtype == np.uint16 and image.ndim == 2
    if not isinstance(image, np.ndarray) or not (image.dtype == np.uint8 or gray_16):
        kind = getattr(image, "dtype", type(image).__name__)
        raise DataError(f"{name}: an image of type {kind}; give PIL, uint8 or a float tensor.")
    if image.size == 0 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))):
        raise DataError(
            f"{name}: the shape {tuple(image.shape)} is none of a gray, RGB or RGBA image."
        )
    picture = Image.fromarray(np.ascontiguousarray(image))
    return picture if gray_16 else as_rgb(of_pillow(picture, name))


_Column = tuple["list[Any]", "Sequence[str] | None"]  # values, and what numbers among them mean


def _hugging_face_columns(dataset: Any) -> tuple[_Column, _Column, list[str]]:
    found = dataset.column_names
    if not {"image", "label", "domain"} <= set(found):
        names = ", ".join(found)
        raise DataError(f"The dataset needs the columns image, label and domain; found {names}.")
    label, domain = (
        (list(dataset[column]), getattr(dataset.features[column], "names", None))
        for column in ("label", "domain")
    )
    return label, domain, [f"{dataset._fingerprint}:{index}" for index in range(len(dataset))]


def _torch_columns(dataset: Any) -> tuple[_Column, _Column, list[str]]:
    labels, domains, stamps = [], [], []
    for index in range(len(dataset)):
        try:
            item = dataset[index]
        except Exception as error:
            raise DataError(f"Item {index} of the dataset cannot be read ({error}).") from error
        if not isinstance(item, tuple | list) or len(item) != 3:
            raise DataError(f"Item {index} of the dataset is not (image, label, domain).")
        image, label, domain = item
        labels.append(label)
        domains.append(domain)
        stamps.append(_content(image, f"item {index}"))
    class_names, domain_names = getattr(dataset, "classes", None), getattr(dataset, "domains", None)
    return (labels, class_names), (domains, domain_names), stamps


def _content(image: Any, name: str) -> str:
    try:
        picture = as_picture(image, name)
    except OSError:  # a file opened lazily and damaged: it fails, by name, when it is read
        return "unreadable"
    return hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()


def _number(
    values: list[Any], names: Sequence[str] | None, field: str
) -> tuple[tuple[str, ...], list[int]]:
    """Names in order, and for every value the position of its name."""
    if all(isinstance(value, str) for value in values):
        places = {name: place for place, name in enumerate(sorted(set(values)))}
        return tuple(map(printable, places)), [places[value] for value in values]
    try:
        numbers = [operator.index(value) for value in values]
    except TypeError as error:
        raise DataError(f"Every {field} of the dataset must be a number or a name.") from error
    if names is None:
        found = {number: place for place, number in enumerate(sorted(set(numbers)))}
        return tuple(map(str, found)), [found[number] for number in numbers]
    if min(numbers) < 0 or max(numbers) >= len(names):
        raise DataError(f"A {field} of the dataset has no name: 0..{len(names) - 1} have one.")
    return tuple(printable(str(name)) for name in names), numbers
