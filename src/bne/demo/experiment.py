"""DeepAll, BNE and points, leave-one-domain-out, on digits drawn in four ways.

All methods get the same network, initial weights, batches, steps and optimizer. The last step's
network is tested as it is and leaning on its images; a tenth of the known domains' images is held
out, to choose how far.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches, seed_of
from bne.data.decoding import usable_cores
from bne.data.feed import Feed
from bne.data.transform import EvalTransform
from bne.methods import BNE, DeepAll, DeepAllPoints, Method, Points
from bne.models import build, preprocessing
from bne.training.events import Leaning, Score
from bne.training.loop import TrainingStep
from bne.training.scores import choose_leaning, shares_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor

    from bne.core.options import Lean
    from bne.data.cache import PreparedImages
    from bne.training.events import Share

METHODS = ("DeepAll", "BNE", "Points")
ROWS = {
    "DeepAll": ("DeepAll", False),
    "BNE": ("BNE", False),
    "BNE, leaning": ("BNE", True),
    "Points, leaning": ("Points", True),
}
"""What is shown: a method, as it is or leaning."""
HELD_OUT = 10  # one in so many images of a known domain
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
        leanings: Scores on all images of the target and on held-out images of the known domains,
            leaning on the images' own statistics by several shares, the first of them 0.
        examples: A few of those images; BNE's only.
    """

    method: str
    target: str
    seed: int
    leanings: tuple[Leaning, ...]
    examples: tuple[Unseen, ...]

    @property
    def share(self) -> Share:
        """How far images lean: as learned, or as far as the held-out images allow."""
        return self._chosen.share

    @property
    def _chosen(self) -> Leaning:
        most = (Points if self.method.startswith("Points") else Method).most_lean
        return choose_leaning(self.leanings, most)

    def accuracy(self, *, leaning: bool = False) -> float:
        """Accuracy on the target, in percent, as it is or leaning by `share`."""
        found = self._chosen if leaning else self.leanings[0]
        return found.target[self.target].accuracy


def compare(
    prepared: PreparedImages,
    seeds: int,
    settings: Settings,
    advance: Callable[[], object] = lambda: None,
) -> list[Outcome]:
    """Trains and tests all methods on every target, one network per CPU core at a time.

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
        with _main_hidden(), _spared_ctrl_c():
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


@contextmanager
def _spared_ctrl_c() -> Iterator[None]:
    """Lets processes start that ignore Ctrl-C, from their imports on: it is for us to stop them."""
    before = None
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which new processes inherit
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _start_worker() -> None:
    torch.set_num_threads(1)


def run(
    prepared: PreparedImages, target: str, seed: int, method_name: str, settings: Settings
) -> Outcome:
    """Trains one network on all domains but the target, and tests it there."""
    method, transform = fit(prepared, [target], seed, method_name, settings)
    leanings = score(method.eval(), transform, prepared, [target])
    shown = method_name == "BNE"
    examples = _explain(method, prepared, transform, target) if shown else ()
    return Outcome(method_name, target, seed, leanings, examples)


def score(
    method: Method, transform: EvalTransform, prepared: PreparedImages, unseen: Sequence[str]
) -> tuple[Leaning, ...]:
    """Scores a trained method, in evaluation mode, at all shares."""
    images, shares = prepared.images, shares_of(method)
    sources = [domain for domain in images.domains if domain not in unseen]
    held_out = [number for domain in sources for number in held_out_of(prepared, domain)]
    groups = {"held-out": held_out, **{domain: images.indices_of([domain]) for domain in unseen}}
    right = {
        kind: _right(method, shares.values(), transform, prepared, torch.tensor(numbers))
        for kind, numbers in groups.items()
    }
    return tuple(_leaning(right, place, share) for place, share in enumerate(shares))


@torch.inference_mode()
def _right(
    method: Method,
    shares: Iterable[Lean],
    transform: EvalTransform,
    prepared: PreparedImages,
    numbers: Tensor,
) -> Tensor:
    """(shares, N), whether each image is classified correctly, leaning by each share."""
    images, labels = transform(prepared.pixels[numbers].permute(0, 3, 1, 2)), prepared.labels
    rows = []
    for method.lean in shares:
        rows.append(method.predict(images).argmax(1) == labels[numbers])
    method.lean = 0.0
    return torch.stack(rows)


def _leaning(right: dict[str, Tensor], place: int, share: Share) -> Leaning:
    unseen = {kind: Score(int(rows[place].sum()), rows.shape[1]) for kind, rows in right.items()}
    held_out = {"held-out": unseen.pop("held-out")}
    now, before = right["held-out"][place], right["held-out"][0]
    gained, lost = int((now & ~before).sum()), int((before & ~now).sum())
    return Leaning(share, held_out, unseen, gained, lost)


def held_out_of(prepared: PreparedImages, domain: str) -> list[int]:
    """A tenth of a domain's images, which are sorted by class."""
    return prepared.images.indices_of([domain])[HELD_OUT // 2 :: HELD_OUT]


def fit(
    prepared: PreparedImages, unseen: Sequence[str], seed: int, method_name: str, settings: Settings
) -> tuple[Method, EvalTransform]:
    """Trains one method on all domains but those that are to stay unseen."""
    images = prepared.images
    sources = {}
    for domain in images.domains:
        if domain not in unseen:
            held_out = set(held_out_of(prepared, domain))
            sources[domain] = [n for n in images.indices_of([domain]) if n not in held_out]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build("small_cnn", num_classes=len(images.classes))
    # Few steps: the layers' own momentum of 0.1, which DeepAll has too, instead of 0.01.
    method: Method
    match method_name:
        case "DeepAll":
            method = DeepAll(model, list(sources))
        case "BNE":
            method = BNE(model, list(sources), momentum="keep")
        case "Points":
            method = Points(model, list(sources), momentum="keep")
        case "Points, learned":
            method = Points(model, list(sources), learn_lean=True, momentum="keep")
        case _:
            method = DeepAllPoints(model, list(sources), momentum="keep")
    optimiser = torch.optim.Adam(method.parameters(), weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=settings.steps
    )
    augmentation = Augmentation("paper", preprocessing(model), seed, flip=False)
    batches = DomainBatches(sources, settings.per_domain, seed=seed, epoch=settings.steps)
    step = TrainingStep(method.train(), optimiser, losses=torch.zeros(()))
    with torch.random.fork_rng(devices=[]):
        for batch in Feed(prepared, "cpu").epoch(batches, augmentation):
            method.begin_epoch(batch.step, warm_up=settings.warm_up_steps)
            torch.manual_seed(seed_of(seed, "step", batch.step))
            step(batch.images, batch.labels, batch.domains)
            schedule.step()
    return method, EvalTransform(preprocessing(model), resize=prepared.pixels.shape[1])


def _explain(
    method: Method, prepared: PreparedImages, transform: EvalTransform, target: str
) -> tuple[Unseen, ...]:
    numbers = torch.tensor(prepared.images.indices_of([target]))
    shown = numbers[:: len(numbers) // SHOWN][:SHOWN]
    pixels = prepared.pixels[shown]
    assert isinstance(method, BNE)
    with torch.inference_mode():
        out = method.explain(transform(pixels.permute(0, 3, 1, 2)))
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
