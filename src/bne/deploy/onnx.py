"""An exported model in use, without torch: ONNX Runtime, NumPy and Pillow are enough.

`python -m bne.deploy.onnx model.onnx photos` predicts where not even the command line is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bne.deploy import rows
from bne.deploy.answers import Seen
from bne.deploy.manifest import KEY, opened
from bne.deploy.pictures import NAMES, find_pictures
from bne.deploy.predict import predict
from bne.errors import BneError, DataError, require, sentence
from bne.training.files import check_file, open_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bne.deploy.manifest import Manifest

UNSIGNED = "uint8"
UNREADABLE, INTERRUPTED = 3, 130  # exit codes


class OnnxEngine:
    """A graph that looks at images.

    Args:
        session: of ONNX Runtime.
        model: what is known of the model.
        checksum: of the file.
        prepares: whether the graph crops and normalizes images itself.
    """

    def __init__(self, session: Any, model: Manifest, checksum: str, *, prepares: bool) -> None:
        self.model = model
        self.checksum = checksum
        self._session = session
        self._prepares = prepares
        inner = model.transform["preprocessing"]
        self.way = model.way
        self.batch = 16
        start = round((self.way.size - inner["size"]) / 2)
        self._crop = slice(start, start + inner["size"])
        mean, std = (np.asarray(inner[key], np.float32) for key in ("mean", "std"))
        self._scale, self._shift = 1 / (255 * std), -mean / std

    @classmethod
    def of(cls, data: bytes, path: Path, threads: int = 0) -> OnnxEngine:
        """From the bytes of a file, which `path` names in errors; 0 threads are as many as cores.

        Raises:
            DataError: They are no exported model, or a damaged one.
        """
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of classes that ONNX Runtime does not export
            raise DataError(
                f"{path} is no ONNX model, or a damaged one; copy or export it again."
            ) from error
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
        model, beside = opened(text, path)
        checksum = str(beside.get("sha256"))
        if hashlib.sha256(data.replace(checksum.encode(), b"0" * 64, 1)).hexdigest() != checksum:
            raise DataError(
                f"{path} is damaged: its checksum is not the one it was written with; copy it "
                "again."
            )
        return cls(session, model, checksum, prepares=beside.get("input") == UNSIGNED)

    @classmethod
    def load(cls, path: Path, threads: int = 0) -> OnnxEngine:
        """Reads an exported file.

        Raises:
            DataError: It is not there, no exported model, or a damaged one.
        """
        try:
            return cls.of(path.read_bytes(), path, threads)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from error

    def run(self, images: NDArray[Any]) -> list[NDArray[np.float32]]:
        """All outputs of the graph, for images as it takes them."""
        found: list[NDArray[np.float32]] = self._session.run(None, {"images": images})
        return found

    def inputs(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        """(N, size, size, C) images as the graph takes them."""
        if self._prepares:
            return pixels
        cut = pixels[:, self._crop, self._crop].astype(np.float32)
        return np.ascontiguousarray((cut * self._scale + self._shift).transpose(0, 3, 1, 2))

    def __call__(self, pixels: NDArray[np.uint8], *, places: bool = True) -> Seen:
        """Looks at (N, size, size, C) images; the graph gives all it has, asked or not."""
        names = [output.name for output in self._session.get_outputs()]
        return Seen(**dict(zip(names, self.run(self.inputs(pixels)), strict=True)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Predicts images, as `bne predict` does; returns the exit code."""
    parser = argparse.ArgumentParser("python -m bne.deploy.onnx", description=main.__doc__)
    parser.add_argument("model", type=Path, help="what bne export has written")
    parser.add_argument("images", nargs="+", help="files, folders, globs, archives, tables or -")
    parser.add_argument("--out", type=Path, help="a .csv or .jsonl file; by default JSON lines")
    parser.add_argument("--top", type=int, default=1, help="classes per image")
    parser.add_argument("--columns", help="joined by commas")
    parser.add_argument("--column", default="path", help="of a table, that has the paths")
    parser.add_argument("--abstain", type=float, default=0.0, help="the least probability")
    given = parser.parse_args(arguments)
    open_streams()
    try:
        code = _predict(given)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # such as `head`, which has read enough
        sys.stdout = None  # which Python would flush once more
        return 1
    except (BneError, OSError) as error:
        print(f"Error: {sentence(error)}", file=sys.stderr)
        return 1


def _predict(given: argparse.Namespace) -> int:
    from contextlib import nullcontext

    if given.out:
        rows.check_suffix(given.out)
        check_file(given.out, "--out", *given.images)
    names = sys.stdin if NAMES in given.images else ()
    pictures = find_pictures(given.images, names, given.column)
    engine = OnnxEngine.load(given.model)
    wanted = [name.strip() for name in given.columns.split(",")] if given.columns else None
    columns = rows.choose_columns(engine.model, wanted, given.top)
    unreadable = 0
    like = rows.row_like(engine.model, columns, given.top)
    with (
        rows.file_writer(given.out, like) if given.out else nullcontext(rows.json_lines(sys.stdout))
    ) as write:
        for part in predict(engine, engine.model, pictures, abstain=given.abstain):
            for problem in part.problems:
                print(f"Skipped: {problem}", file=sys.stderr)
            unreadable += len(part.problems)
            if part.answers:
                write(rows.rows(part.names, part.answers, columns, given.top))
    return UNREADABLE if unreadable else 0


if __name__ == "__main__":
    sys.exit(main())
