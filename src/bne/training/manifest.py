"""The manifest of a run: digests of all that it was made of and of all that it left."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bne.errors import DataError
from bne.training.files import write_json, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from bne.data.cache import PreparedImages
    from bne.recipes.inputs import Inputs

FILE, IMAGES, RESULT = "manifest.json", "images.csv", "result.json"
BUNDLE = "model.bne"  # the model as one file, which `bne train` adds
MODEL = ("model.json", "model.safetensors")
FILES = (
    *("recipe.yaml", "materials.json", "environment.json", "metrics.jsonl", IMAGES),
    *(f"{folder}/{name}" for folder in ("model", "best") for name in MODEL),
)
TRAIN, VALIDATION, TARGET, UNUSED = "train", "validation", "target", "unused"


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says of a run.

    Attributes:
        files: SHA-256 of each file that the run left, by its path in the run's folder. One of them
            is `images.csv`, with the part and the SHA-256 of every image.
        weights: the initial weights: their `source`, the `sha256` of their tensors, whether from a
            file, downloaded or random, and the `terms` of their use as far as known.
        environment: versions and machine, as `bne.training.environment.describe` gives them.
        determinism: what a repetition gives again and what it may not, with the settings of torch
            that decide it.
    """

    files: Mapping[str, str]
    weights: Mapping[str, str | None] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    determinism: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Writes it into a run's folder, as a whole."""
        write_json(folder / FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """What `write` wrote.

        Raises:
            DataError: There is none, or a damaged one.
        """
        try:
            fields = json.loads((folder / FILE).read_text())
            if not all(isinstance(value, dict) for value in fields.values()):
                raise TypeError("it is no manifest")
            return cls(**fields)
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{folder} has no {FILE}: it is no run's folder, or its run is not finished or of "
                "an earlier version, which wrote none."
            ) from None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise DataError(f"{folder / FILE} cannot be read ({error}).") from error


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of each of `FILES` that a run's folder has."""
    return {name: sha256_of(folder / name) for name in FILES if (folder / name).is_file()}


def sha256_of(file: Path) -> str:
    """Of a file's bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def parts(inputs: Inputs) -> dict[str, str]:
    """What each image is used for: `train`, `validation`, `target` or `unused`, by its name."""
    used: dict[int, str] = {}
    for split in inputs.splits.values():
        used |= dict.fromkeys(split.train, TRAIN) | dict.fromkeys(split.validation, VALIDATION)
    for numbers in inputs.target.values():
        used |= dict.fromkeys(numbers, TARGET)
    return {file.name: used.get(n, UNUSED) for n, file in enumerate(inputs.images.files)}


def write_images(folder: Path, inputs: Inputs, prepared: PreparedImages) -> None:
    """Writes the table of images: file, part, and SHA-256 of its content as far as known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("file", "part", "sha256"))
    digests = prepared.digests or ("",) * len(prepared)
    for (name, part), digest in zip(parts(inputs).items(), digests, strict=True):
        writer.writerow((name, part, digest))
    write_text(folder / IMAGES, text.getvalue())


def read_images(folder: Path) -> dict[str, tuple[str, str]]:
    """The part and the SHA-256 of each image, by its name.

    Raises:
        DataError: The table is not there, or damaged.
    """
    try:
        with (folder / IMAGES).open(encoding="utf-8", newline="") as file:
            return {row["file"]: (row["part"], row["sha256"]) for row in csv.DictReader(file)}
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise DataError(f"{folder / IMAGES} cannot be read ({error}).") from error


SAME = (
    "The split, the initial weights, the order of batches and the random changes of images follow "
    "from the seed."
)
ON_CPU = (
    "On a CPU of the same kind, with the same versions and the same number of threads, training "
    "and scores repeat to the last bit."
)
ON_GPU = (
    "On a GPU, sums of the backward pass have no fixed order: two trainings may differ in the last "
    "digits of their weights, and so in accuracy. Scores of a kept model repeat on the same kind "
    "of GPU, with the same versions, as long as cuDNN chooses the same algorithms."
)


def determinism(device: torch.device) -> dict[str, Any]:
    """What a repetition of a run on a device gives again, and the settings that decide it."""
    import torch

    return {
        "repeats": SAME,
        "device": ON_GPU if device.type == "cuda" else ON_CPU,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }
