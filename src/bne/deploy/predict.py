"""Many images through a model: decoded in threads while the network computes.

Torch is imported only if the model needs it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bne.data.decoding import in_threads
from bne.data.images import read, resized
from bne.data.values import Tally
from bne.deploy.answers import Answers, check_abstain
from bne.errors import DataError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from bne.data.images import Way
    from bne.deploy.answers import Seen
    from bne.deploy.manifest import Manifest
    from bne.deploy.pictures import Picture


class Looks(Protocol):
    """A network, under torch or ONNX Runtime."""

    @property
    def way(self) -> Way:
        """How images are prepared for it."""

    @property
    def batch(self) -> int:
        """How many images it is given at a time."""

    def __call__(self, pixels: NDArray[np.uint8], *, places: bool = True) -> Seen:
        """Looks at (N, size, size, C) images; `places` asks for weights and distances too."""


def open_engine(
    path: Path, device: str, *, threads: int | None = None, **mode: Any
) -> tuple[Looks, Manifest]:
    """The network of a model file, a run's folder or an exported file, and what is known of it.

    Args:
        path: of the file or folder.
        device: "auto", "cpu" or "cuda"; exported files run on the CPU.
        threads: of ONNX Runtime, by default one per core; torch's are set where it computes.
        **mode: how the model answers, see `bne.deploy.classifier.set_mode`.

    Raises:
        DataError: There is no model, or a damaged one.
        SettingsError: There is no such device, or the model cannot answer so.
    """
    if is_graph(path):
        from bne.deploy.onnx import OnnxEngine

        if asked := [name for name, value in mode.items() if value is not None]:
            raise SettingsError(
                f"--{asked[0]}: an exported model answers as it was exported; export it anew."
            )
        engine = OnnxEngine.load(path, threads or 0)
        return engine, engine.model
    from bne.deploy.classifier import Classifier
    from bne.training.environment import choose_device

    model = Classifier.load(path, choose_device(device), **mode)
    return model.engine, model.info


def is_graph(path: Path) -> bool:
    """Whether it is an exported file, by its name."""
    return path.suffix.lower() == ".onnx" and path.is_file()


class Part(NamedTuple):
    """What is said of some images.

    Attributes:
        names: of the images.
        answers: of the model, in the same order; None if none of them can be read.
        problems: why others cannot be read, in sentences.
        tally: what images of more than 8 bits lose.
    """

    names: list[str]
    answers: Answers | None
    problems: list[str]
    tally: Tally


def predict(
    engine: Looks,
    model: Manifest,
    pictures: Iterable[Picture],
    *,
    abstain: float = 0.0,
    places: bool = True,
    one_domain: bool = False,
) -> Iterator[Part]:
    """Classifies images in their order, batch by batch; those that cannot be read are left out.

    Args:
        engine: the network.
        model: what is known of it.
        pictures: the images; with `one_domain` a list of them, which is read twice.
        abstain: probability below which an image is left open.
        places: whether weights and distances are wanted, which may cost another pass.
        one_domain: whether all images are one unknown domain: their pooled statistics are used in
            place of each one's own.

    Raises:
        SettingsError: The model cannot take images as one domain, or `abstain` is no probability.
    """
    check_abstain(abstain)

    def prepare(picture: Picture) -> tuple[str, NDArray[np.uint8] | str, Tally]:
        name, way = picture.name, engine.way
        try:
            image = read(picture.read(), name)
            return name, resized(image, name, way), Tally.of(image, way.window)
        except DataError as error:
            return name, str(error), Tally()

    def batches() -> Iterator[list[tuple[str, NDArray[np.uint8] | str, Tally]]]:
        prepared = in_threads(prepare, pictures, ahead=2 * engine.batch)
        while part := list(islice(prepared, engine.batch)):
            yield part

    if one_domain:
        known = (
            [pixels for _, pixels, _ in part if not isinstance(pixels, str)] for part in batches()
        )
        engine = _together(engine)((np.stack(own) for own in known if own), places=places)
    for part in batches():
        good = [(name, own) for name, own, _ in part if not isinstance(own, str)]
        answers = None
        if good:
            seen = engine(np.stack([own for _, own in good]), places=places)
            answers = Answers(model, seen, abstain, one_domain)
        problems = [own for _, own, _ in part if isinstance(own, str)]
        tally = sum((own for *_, own in part), Tally())
        yield Part([name for name, _ in good], answers, problems, tally)


def check_one_domain(engine: Looks) -> None:
    """Refuses a network that cannot take images as one domain.

    Raises:
        SettingsError: It cannot.
    """
    _together(engine)(())


def _together(engine: Looks) -> Any:
    together = getattr(engine, "together", None)
    if together is None:
        raise SettingsError(
            "--one-domain: an exported model answers image by image; use the model file."
        )
    return together
