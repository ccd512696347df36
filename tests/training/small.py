"""Runs that take a second: a tiny network with dropout, and images of four domains."""

import os
import signal
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.models import registry
from bne.models.registry import Backbone, Preprocessing
from bne.recipes.inputs import Inputs
from bne.recipes.schema import HeadPhase, Optimiser, Phase, Recipe
from bne.training import run as engine
from bne.training.events import Epoch, Listener
from bne.training.folder import Result

DOMAINS = ("art", "cartoon", "photo", "sketch")
CLASSES = ("dog", "house", "tree")
SIZE = 10
PER_CLASS = 8


def tiny(num_classes: int, dropout: float = 0.2) -> nn.Module:
    layers = {
        "conv1": nn.Conv2d(3, 6, 3, stride=2, bias=False),
        "bn1": nn.BatchNorm2d(6),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(6, 8, 2, bias=False),
        "bn2": nn.BatchNorm2d(8),
        "relu2": nn.ReLU(),
        "drop": nn.Dropout2d(dropout),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(8, num_classes),
    }
    return nn.Sequential(OrderedDict(layers))


for _name, _create in {"tiny": tiny, "tiny-dry": partial(tiny, dropout=0.0)}.items():
    registry._BACKBONES.setdefault(_name, Backbone(_create, ("fc",), Preprocessing(SIZE - 2)))


def images() -> PreparedImages:
    """Images whose mean colour tells the class, tinted by their domain."""
    generator = torch.Generator().manual_seed(0)
    files, pixels = [], []
    for d, domain in enumerate(DOMAINS):
        for c, name in enumerate(CLASSES):
            for number in range(PER_CLASS):
                files.append(ImageFile(f"{domain}/{name}/{number}", c, d, bytes, ""))
                colour = torch.full((1, 1, 3), 60.0 + 10 * d)
                colour[..., c] += 90
                noise = torch.randn(SIZE, SIZE, 3, generator=generator) * 25
                pixels.append((colour + noise).clamp(0, 255).to(torch.uint8))
    return PreparedImages(ImageSet(DOMAINS, CLASSES, tuple(files)), torch.stack(pixels), Path())


def recipe(method: str = "bne", **changes: object) -> Recipe:
    """Two epochs of the last layer, then four, two of them of warm-up, of five steps each."""
    optimiser = Optimiser("adam", 1e-2, 0.0, weight_decay=1e-4, head_factor=1.0, clip=5.0)
    base = Recipe(
        method=method,
        target=("sketch",),
        backbone="tiny",
        weights=None,
        seed=3,
        per_domain=4,
        epoch=5,
        validation=0.25,
        lean=0.0,
        resize=SIZE,
        head=HeadPhase(2, Optimiser("sgd", 1e-2, momentum=0.9, head_factor=1.0)),
        train=Phase(4, warm_up=2, optimiser=optimiser),
        exact_statistics=False,
    )
    return replace(base, **changes)


def run(recipe: Recipe, prepared: PreparedImages, folder: Path, **how: object) -> Result:
    """A run of a recipe on prepared images."""
    data = {key: how.pop(key) for key in ("split_file", "allow_gaps") if key in how}
    return engine.run(Inputs.of(recipe, prepared.images, **data), prepared, folder, **how)


def tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def timeless(epochs: list[Epoch]) -> list[Epoch]:
    return [replace(epoch, seconds=0, images_per_second=0) for epoch in epochs]


def only(prepared: PreparedImages, numbers: list[int]) -> PreparedImages:
    """Some of the images."""
    return replace(
        prepared, images=prepared.images.select(numbers), pixels=prepared.pixels[numbers]
    )


def mislabelled(prepared: PreparedImages, domain: str) -> PreparedImages:
    """The same images, but every label of the domain is wrong."""
    files, classes = list(prepared.images.files), len(prepared.images.classes)
    for index in prepared.images.indices_of([domain]):
        files[index] = replace(files[index], label=(files[index].label + 1) % classes)
    return replace(prepared, images=replace(prepared.images, files=tuple(files)))


def blackened(prepared: PreparedImages, domain: str) -> PreparedImages:
    """The same labels, but every image of the domain is black."""
    pixels = prepared.pixels.clone()
    pixels[prepared.images.indices_of([domain])] = 0
    return replace(prepared, pixels=pixels)


class StopAt(Listener):
    """Presses Ctrl-C at a step, in the one process that has listeners."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step):
        if step.total_step == self.step:
            signal.raise_signal(signal.SIGINT)


def in_another_process(module: str, *arguments: str) -> str:
    """What a module of the tests prints, run as a program."""
    command = [sys.executable, "-m", f"tests.training.{module}", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    return subprocess.check_output(command, cwd=root, env=environment, text=True)
