"""An exported graph in int8, and the accuracy that it costs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bne.data.decoding import in_threads
from bne.data.images import pixels
from bne.deploy.onnx import OnnxEngine
from bne.deploy.pictures import Picture
from bne.deploy.predict import predict
from bne.errors import DataError, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bne.data.images import ImageFile, ImageSet

RANGES = 64  # images that set the ranges of activations
TESTED = 1000  # images at most that the accuracy is measured on
KINDS = ["Conv", "Gemm", "MatMul"]  # statistics and distances stay float32


@dataclass(frozen=True)
class Cost:
    """What int8 costs.

    Attributes:
        images: number of labeled images that did not set the ranges.
        before: number that the float32 graph classifies correctly.
        after: number that the int8 graph classifies correctly.
    """

    images: int
    before: int
    after: int


def to_int8(data: bytes, images: ImageSet, path: Path) -> Any:
    """The graph of an exported file with weights and activations of its layers in int8.

    Args:
        data: bytes of the float32 file.
        images: labeled images, some of which set the ranges of activations.
        path: of the file, for errors.

    Returns:
        An `onnx.ModelProto`, still with the metadata of the float32 graph.
    """
    library: Any = require("onnxruntime.quantization", "onnx")
    engine = OnnxEngine.of(data, path)
    chosen, _ = _divided(images)
    batches: Iterator[NDArray[Any]] = (
        engine.inputs(own[None]) for own in in_threads(_read(engine), chosen)
    )

    class Reader(library.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            batch = next(batches, None)
            return None if batch is None else {"images": batch}

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        before.write_bytes(data)
        library.quantize_static(
            before,
            after,
            Reader(),
            quant_format=library.QuantFormat.QDQ,
            op_types_to_quantize=KINDS,
            per_channel=True,
        )
        return require("onnx", "onnx").load(after)


def cost(before: OnnxEngine, after: OnnxEngine, images: ImageSet) -> Cost:
    """Shows labeled images that did not set the ranges to both graphs.

    Raises:
        DataError: One cannot be read, or is of a class that the model does not know.
    """
    _, rest = _divided(images)
    unknown = [name for name in images.classes if name not in before.model.classes]
    if unknown:
        raise DataError(
            f"The model does not know the class {unknown[0]!r} of the data; it knows "
            f"{', '.join(before.model.classes)}."
        )
    truth = {file.name: images.classes[file.label] for file in rest}
    pictures, right = [Picture(file.name, file.read) for file in rest], []
    for engine in (before, after):
        right.append(0)
        for part in predict(engine, engine.model, pictures):
            if part.problems:
                raise DataError(part.problems[0])
            assert part.answers is not None
            answers = zip(part.names, part.answers.classes, strict=True)
            right[-1] += sum(truth[name] == answer for name, answer in answers)
    return Cost(len(rest), *right)


def _divided(images: ImageSet) -> tuple[Sequence[ImageFile], Sequence[ImageFile]]:
    """Images that set ranges, and others to test on; both spread over all."""
    count = len(images)
    if count < 4:
        raise DataError("int8 needs some images, to set its ranges and to test on; give more.")
    every = np.random.default_rng(0).permutation(count)
    few = min(RANGES, count // 2)
    files = images.files
    return [files[k] for k in every[:few]], [files[k] for k in every[few : few + TESTED]]


def _read(engine: OnnxEngine) -> Any:
    def work(file: ImageFile) -> NDArray[np.uint8]:
        return pixels(file.read(), file.name, engine.way)

    return work
