"""What the commands do, from Python: `bne.train` and `bne.load`, which give objects."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from PIL import Image
    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet
    from bne.data.transform import EvalTransform
    from bne.methods import Method
    from bne.recipes.inputs import Inputs
    from bne.training.events import Listener
    from bne.training.folder import Result
    from bne.training.model_folder import ModelInfo

    Picture = str | os.PathLike[str] | Image.Image | Tensor

BATCH = 64  # images at a time


@dataclass(frozen=True)
class TrainedRun:
    """What `bne.train` gives.

    Attributes:
        folder: of the run, with everything it left.
        result: the accuracies under every rule, all epochs, the recipe and the environment.
        notes: what one should know of the data, in sentences.
    """

    folder: Path
    result: Result
    notes: tuple[str, ...] = ()

    @property
    def accuracy(self) -> float:
        """On all images of the target, in percent, of the network of the last epoch."""
        from bne.training.scores import pooled

        return pooled(self.result.accuracy["last"].values()).accuracy

    def model(self, device: str = "auto") -> Classifier:
        """The network of the last epoch, ready for use."""
        return load(self.folder, device)


def train(
    data: object,
    target: str | Sequence[str] | None = None,
    *,
    recipe: str | Path = "default",
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    cache: str | Path | None = None,
    skip_bad: bool = False,
    allow_gaps: bool = False,
    progress: bool = False,
    listeners: Sequence[Listener] = (),
    **settings: Any,
) -> TrainedRun:
    """Trains a network on some domains and tests it on one it has never seen: `bne train`.

    Args:
        data: a folder, a CSV or a dataset, as `bne.data.sources.open_images` takes it.
        target: the domain held out, or several, in a list or joined by commas.
        recipe: the name of one that comes with the package, or a .yaml file.
        out: the run's folder; `runs/recipe-method-target-seed` by default. One that holds this very
            run, finished, is read and nothing is trained.
        device: "auto", "cpu" or "cuda".
        resume: whether to go on with an interrupted run in the folder.
        cache: where prepared images are kept.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether a source domain may lack classes that others have.
        progress: whether to show on stderr how it goes.
        listeners: hear how it goes; they are closed at the end.
        **settings: any of the recipe, by name (`method="deepall"`, `lr=1e-3`, `batch_size=8`), as a
            group (`train={"epochs": 5}`) or by dotted key (`**{"train.epochs": 5}`).

    Raises:
        SettingsError: A setting is unknown, impossible or does not fit the data.
        DataError: The data cannot be read or trained on.
        TrainingError: Training cannot begin or go on.
    """
    from bne.recipes.checks import check_weights
    from bne.recipes.inputs import Inputs
    from bne.training.environment import choose_device
    from bne.training.files import check_folder
    from bne.training.run import run

    inputs = resolve(data, target, recipe, settings, allow_gaps=allow_gaps)
    chosen = inputs.recipe
    folder = Path(out) if out else Path("runs") / _name(Path(recipe).stem, inputs)
    check_folder(folder, data, write=not (folder / "result.json").exists())
    place = choose_device(device)
    check_weights(chosen)
    shown = progress and os.environ.get("RANK", "0") == "0"  # torchrun's first process
    prepared = prepare(inputs.images, data, cache, chosen.resize, skip_bad=skip_bad, show=shown)
    if prepared.skipped:
        inputs = Inputs.of(chosen, prepared.images, inputs.split_file, allow_gaps=allow_gaps)
    if shown:
        show_notes([inputs])
        print(inputs.held_out(), file=sys.stderr)
    heard = [*([_progress()] if shown else []), *listeners]
    result = run(inputs, prepared, folder, device=place, listeners=heard, resume=resume)
    return TrainedRun(folder, result, tuple(inputs.notes()))


def resolve(
    data: object,
    target: str | Sequence[str] | None,
    recipe: str | Path,
    settings: Mapping[str, Any],
    *,
    allow_gaps: bool = False,
) -> Inputs:
    """What `train` would train, checked: opens images, of which it decodes none."""
    from bne.data.sources import open_images
    from bne.recipes.files import load
    from bne.recipes.inputs import Inputs, official_split

    images = open_images(data)
    own = {"target": parse_names(target, images.domains)} if target else {}
    chosen = load(recipe, {**settings, **own})
    return Inputs.of(chosen, images, official_split(images, data), allow_gaps=allow_gaps)


def parse_names(names: str | Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Names in a list, or joined by commas; one that is known may have commas itself."""
    if not isinstance(names, str):
        return list(names)
    return [names] if names in known else [name.strip() for name in names.split(",")]


def prepare(
    images: ImageSet,
    data: object,
    cache: str | Path | None,
    size: int,
    *,
    skip_bad: bool,
    show: bool,
) -> PreparedImages:
    """Decodes and resizes the images of some data, with a progress bar the first time."""
    from rich.console import Console
    from rich.progress import Progress

    from bne.data import cache as image_cache
    from bne.training.files import check_apart

    check_apart(Path(cache) if cache else image_cache.default_folder(), data, "--cache")
    console = Console(stderr=True, quiet=not show)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("Preparing images", total=len(images))
        prepared = image_cache.prepare(
            images,
            cache,
            size,
            skip_bad=skip_bad,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    for problem in prepared.skipped:
        console.print(f"Skipped: {problem}", markup=False, highlight=False, soft_wrap=True)
    return prepared


def show_notes(inputs: Iterable[Inputs]) -> None:
    """Says once, on stderr, what one should know of runs though nothing is wrong."""
    for note in dict.fromkeys(note for one in inputs for note in one.notes()):
        print(f"Note: {note}", file=sys.stderr)


def _name(recipe: str, inputs: Inputs) -> str:
    chosen = inputs.recipe
    target = "+".join(chosen.target).replace("/", "-")  # a CSV may name a domain anything
    return f"{recipe}-{chosen.method}-{target}-{chosen.seed}"


def _progress() -> Listener:
    from rich.console import Console

    from bne.training.listeners import ProgressBar, ProgressLines

    console = Console(stderr=True)
    return ProgressBar(console) if console.is_terminal else ProgressLines(console)


@dataclass(frozen=True)
class Answers:
    """What a classifier says of N images.

    Attributes:
        classes: the name of each one's most probable class.
        probabilities: (N, classes), on the CPU.
        weights: (N, domains), how much the branch of each domain counted; None for methods that
            have no branches.
    """

    classes: tuple[str, ...]
    probabilities: Tensor
    weights: Tensor | None


class Classifier:
    """A trained network in use.

    Made by `bne.load`.

    Attributes:
        classes: their names.
        domains: the names of the domains it knows, those of its branches if it has any.
        method: the name of the method that trained it.
        info: all that its folder tells of it.
    """

    def __init__(
        self, method: Method, transform: EvalTransform, info: ModelInfo, device: str
    ) -> None:
        self.classes = info.classes
        self.domains: tuple[str, ...] = getattr(method.net, "domains", info.domains)
        self.method = info.method
        self.info = info
        self._method = method.to(device)
        self._transform = transform
        self._device = device

    def __repr__(self) -> str:
        """In a line, for interactive use."""
        names = f"classes={list(self.classes)}, domains={list(self.domains)}"
        return f"{type(self).__name__}(method={self.method!r}, {names})"

    def predict(self, images: Picture | Iterable[Picture]) -> Answers:
        """Classifies images of any size, of domains that need not be known.

        Args:
            images: one or several: files, PIL images, or uint8 tensors of (3, H, W). Several of one
                size may be one tensor of (N, 3, H, W).

        Raises:
            DataError: One cannot be read, or is something else.
        """
        import torch

        single = isinstance(images, str | os.PathLike) or not hasattr(images, "__iter__")
        if single or (isinstance(images, torch.Tensor) and images.ndim == 3):
            images = [images]  # type: ignore[list-item]
        pictures = list(images)  # type: ignore[arg-type]
        if not pictures:
            raise DataError("There are no images to classify; give at least one.")
        parts = [
            self._explain(torch.cat([self._input(one) for one in pictures[start : start + BATCH]]))
            for start in range(0, len(pictures), BATCH)
        ]
        probabilities = torch.cat([logits for logits, _ in parts]).softmax(1)
        weights = [weights for _, weights in parts if weights is not None]
        names = tuple(self.classes[number] for number in probabilities.argmax(1).tolist())
        return Answers(names, probabilities, torch.cat(weights) if weights else None)

    def _explain(self, batch: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and weights, on the CPU."""
        import torch

        batch, explain = batch.to(self._device), getattr(self._method, "explain", None)
        with torch.inference_mode():
            if explain is None:
                return self._method.predict(batch).float().cpu(), None
            told = explain(batch)
        return told.logits.float().cpu(), told.weights.float().cpu()

    def _input(self, picture: Any) -> Tensor:
        """(1, 3, size, size), as in training."""
        import torch
        from PIL import Image

        if isinstance(picture, str | os.PathLike):
            return self._transform.file(Path(picture))
        if isinstance(picture, torch.Tensor):
            if picture.dtype != torch.uint8 or picture.ndim != 3 or len(picture) != 3:
                raise DataError(
                    f"An image of shape {tuple(picture.shape)} and {picture.dtype} was given; as a "
                    "tensor it must be uint8 of (3, H, W)."
                )
            picture = Image.fromarray(picture.permute(1, 2, 0).cpu().numpy())
        if not isinstance(picture, Image.Image):
            kind = type(picture).__name__
            raise DataError(f"A {kind} is no image; give a file, a PIL image or a tensor.")
        return self._transform.image(picture)


def load(path: str | Path, device: str = "auto") -> Classifier:
    """Reads a trained network; neither recipe nor data nor initial weights are needed.

    Args:
        path: a run's folder, whose network of the last epoch is read, or a model's.
        device: "auto", "cpu" or "cuda".

    Raises:
        DataError: The folder holds no model, or a damaged one.
        SettingsError: There is no such device.
    """
    from bne.training.environment import choose_device
    from bne.training.model_folder import load_model

    return Classifier(*load_model(path), choose_device(device))
