"""DeepAll and BNE, leave-one-domain-out, on digits drawn in four ways.

Both methods get the same network, initial weights, batches, steps and optimizer. The last step's
network is tested.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches
from bne.data.decoding import usable_cores
from bne.data.feed import Feed
from bne.data.transform import EvalTransform
from bne.methods import BNE, DeepAll, Method
from bne.models import build, preprocessing
from bne.training.loop import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from bne.data.cache import PreparedImages

METHODS = ("DeepAll", "BNE")
SHOWN = 6  # examples kept of every run


@dataclass(frozen=True)
class Settings:
    """How every network is trained, whatever the method.

    Attributes:
        warm_up_steps: Steps in which BNE runs every image under its own domain.
        distance_steps: Steps after them, in which it trains by distance.
        per_domain: Images of each domain in a step.
        learning_rate: The peak of Adam's one-cycle schedule.
    """

    warm_up_steps: int = 120
    distance_steps: int = 180
    per_domain: int = 16
    learning_rate: float = 2e-2

    @property
    def steps(self) -> int:
        """All steps; DeepAll knows no difference between them."""
        return self.warm_up_steps + self.distance_steps


@dataclass(frozen=True)
class Unseen:
    """An image of the unseen domain, and what BNE says of it.

    Attributes:
        name: The image's name, `domain/class/file`.
        pixels: (H, W, 3) uint8.
        truth: The digit it shows.
        answer: The digit BNE sees.
        weights: Weights of the source domains, by name.
    """

    name: str
    pixels: Tensor
    truth: str
    answer: str
    weights: dict[str, float]


@dataclass(frozen=True)
class Outcome:
    """One trained network, tested on the domain it has not seen.

    Attributes:
        method: One of `METHODS`.
        target: The unseen domain.
        seed: Seed of weights, batches and augmentation.
        accuracy: Accuracy on all images of the target, in percent.
        examples: A few of those images; BNE's only.
    """

    method: str
    target: str
    seed: int
    accuracy: float
    examples: tuple[Unseen, ...]


def compare(
    prepared: PreparedImages,
    seeds: int,
    settings: Settings,
    advance: Callable[[], object] = lambda: None,
) -> list[Outcome]:
    """Trains and tests both methods on every target, one network per CPU core at a time.

    Args:
        prepared: Images of several domains, as `bne.demo.digits.load` makes them.
        seeds: Number of runs of each.
        settings: Settings of every run.
        advance: A function to call after each run, for a progress bar.
    """
    runs = list(itertools.product(prepared.images.domains, range(seeds), METHODS))
    # On so small a network two processes do more than two threads.
    with ProcessPoolExecutor(
        min(usable_cores(), len(runs)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
    ) as workers:
        with _main_hidden():
            futures = [workers.submit(run, prepared, *which, settings) for which in runs]
        try:
            for future in as_completed(futures):
                future.result()
                advance()
        except BaseException:  # Ctrl-C too: leaving the workers would wait for all that is queued
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        return [future.result() for future in futures]


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Lets processes start that do not run the user's script again; so it needs no guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    torch.set_num_threads(1)


def run(
    prepared: PreparedImages, target: str, seed: int, method_name: str, settings: Settings
) -> Outcome:
    """Trains one network on all domains but the target, and tests it there."""
    method, transform = fit(prepared, target, seed, method_name, settings)
    numbers = torch.tensor(prepared.images.indices_of([target]))
    pixels = prepared.pixels[numbers].permute(0, 3, 1, 2)
    with torch.inference_mode():
        answers = method.eval().predict(transform(pixels)).argmax(1)
    accuracy = 100 * (answers == prepared.labels[numbers]).double().mean().item()
    examples = _explain(method, prepared, transform, numbers) if isinstance(method, BNE) else ()
    return Outcome(method_name, target, seed, accuracy, examples)


def fit(
    prepared: PreparedImages, target: str, seed: int, method_name: str, settings: Settings
) -> tuple[Method, EvalTransform]:
    """Trains one method on all domains but the target."""
    images = prepared.images
    sources = {d: images.indices_of([d]) for d in images.domains if d != target}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build("small_cnn", num_classes=len(images.classes))
    # Few steps: the layers' own momentum of 0.1, which DeepAll has too, instead of 0.01.
    bne = method_name == "BNE"
    method = BNE(model, list(sources), momentum="keep") if bne else DeepAll(model, list(sources))
    optimiser = torch.optim.Adam(method.parameters(), weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=settings.steps
    )
    augmentation = Augmentation("paper", preprocessing(model), seed, flip=False)
    batches = DomainBatches(sources, settings.per_domain, seed=seed, epoch=settings.steps)
    step = TrainingStep(method.train(), optimiser, losses=torch.zeros(()))
    for batch in Feed(prepared, "cpu").epoch(batches, augmentation):
        method.begin_epoch(batch.step, warm_up=settings.warm_up_steps)
        step(batch.images, batch.labels, batch.domains)
        schedule.step()
    return method, EvalTransform(preprocessing(model), resize=prepared.pixels.shape[1])


def _explain(
    method: BNE, prepared: PreparedImages, transform: EvalTransform, numbers: Tensor
) -> tuple[Unseen, ...]:
    shown = numbers[:: len(numbers) // SHOWN][:SHOWN]
    pixels = prepared.pixels[shown]
    with torch.inference_mode():
        out = method.net(transform(pixels.permute(0, 3, 1, 2)), details=True)
    files = prepared.images.files
    classes = prepared.images.classes
    return tuple(
        Unseen(
            files[number].name,
            pixels[i],
            classes[files[number].label],
            classes[int(out.logits[i].argmax())],
            dict(zip(method.net.domains, out.weights[i].tolist(), strict=True)),
        )
        for i, number in enumerate(shown.tolist())
    )
