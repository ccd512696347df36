"""How much preparing images and making batches cost, as ratios within one run.

    PYTHONPATH=src python benchmarks/data.py prepare ../shared/data/pacs     on any machine
    PYTHONPATH=src python benchmarks/data.py batches                         on a GPU

`prepare` compares a first preparation with the bare work in it: read, decode and resize the same
files with the same library on the same number of processes, and keep nothing. `batches` trains a
ResNet-18 in bf16 on random images of PACS' number and size, 16 of each of 3 domains a step, and
says what share of a step goes when the batch is there already. README.md beside this file has the
results.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from timing import recorded, seconds, warm_up
from torch import Tensor

from bne.data.augment import Augmentation, Strength
from bne.data.batches import DomainBatches
from bne.data.cache import PreparedImages, prepare
from bne.data.decoding import usable_cores
from bne.data.feed import Feed
from bne.data.images import ImageFile, ImageSet, decode, resize
from bne.data.sources import open_images
from bne.methods import BNE, DeepAll
from bne.models.registry import Preprocessing

TRAIN_SIZES = {"art_painting": 1840, "cartoon": 2107, "sketch": 3531}  # PACS, target photo
PACS_EPOCH = 220  # steps
ROUNDS = 4

Step = Callable[[Tensor, Tensor, Tensor], None]


class Case(NamedTuple):
    """One comparison of `batches`.

    Attributes:
        method: "DeepAll", or "BNE" in distance training.
        run: how a step is run, "eager" or as a CUDA "graph", where the GPU sets the pace.
        augmentation: its strength.
        images_on_gpu: or streamed.
        steps: an epoch.
    """

    method: str
    run: str
    augmentation: Strength
    images_on_gpu: bool
    steps: int


CASES = (
    Case("DeepAll", "graph", "paper", True, PACS_EPOCH),
    Case("DeepAll", "eager", "paper", True, 100),
    Case("DeepAll", "graph", "paper", False, 100),
    Case("DeepAll", "graph", "strong", True, 100),
    Case("DeepAll", "graph", "randaugment", True, 10),
    Case("BNE", "graph", "paper", True, PACS_EPOCH),
    Case("BNE", "eager", "paper", True, 20),
)


def bare(files: tuple[ImageFile, ...]) -> int:
    """Reads, decodes and resizes; returns the number of bytes so that all must be done."""
    return sum(len(resize(decode(file.read(), file.name), 256).tobytes()) for file in files)


def compare_prepare(path: Path, rounds: int) -> dict[str, object]:
    """Times a first preparation against the bare work in it."""
    images = open_images(path)
    chunks = [images.files[i : i + 32] for i in range(0, len(images), 32)]
    cores = usable_cores()
    load = os.getloadavg()[0]
    bare_times, prepare_times, open_times = [], [], []
    for _ in range(rounds):
        with ProcessPoolExecutor(cores) as pool:
            bare_times.append(seconds(lambda: list(pool.map(bare, chunks)), "cpu"))
        with tempfile.TemporaryDirectory() as folder:
            prepare_times.append(seconds(lambda: prepare(images, folder), "cpu"))
            open_times.append(seconds(lambda: prepare(open_images(path), folder), "cpu"))
    # The least of several rounds is the one other programs disturbed least.
    return {
        "benchmark": "prepare",
        "images": len(images),
        "cores": cores,
        "load_before": load,
        "bare_s": min(bare_times),
        "prepare_s": min(prepare_times),
        "ratio": min(prepare_times) / min(bare_times),
        "open_again_s": min(open_times),
        "all_bare_s": bare_times,
        "all_prepare_s": prepare_times,
    }


def compare_batches(case: Case, prepared: PreparedImages) -> dict[str, object]:
    """Times training steps with and without the making of batches."""
    device = torch.device("cuda")
    count = 16 * len(TRAIN_SIZES)
    images = torch.randn(count, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(count, device=device) % 7
    domains = torch.arange(len(TRAIN_SIZES), device=device).repeat_interleave(16)
    step = training_step(case)
    if case.run == "graph":
        step = graphed(step, images, labels, domains)

    def without_batches() -> None:
        for _ in range(case.steps):
            step(images, labels, domains)

    seconds(without_batches, "cuda")  # warms up the step, but nothing that makes batches
    numbers = iter(range(len(prepared)))
    members = {name: list(islice(numbers, size)) for name, size in TRAIN_SIZES.items()}
    batches = DomainBatches(members, 16, epoch=case.steps)
    augmentation = Augmentation(case.augmentation, Preprocessing(224))
    start = time.perf_counter()
    feed = Feed(prepared, device, resident=case.images_on_gpu)
    upload_s = time.perf_counter() - start

    def with_batches() -> None:
        for batch in feed.epoch(batches, augmentation):
            step(batch.images, batch.labels, batch.domains)

    def only_batches() -> None:
        for _ in feed.epoch(batches, augmentation):
            pass

    works = {"full": with_batches, "fixed": without_batches, "alone": only_batches}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + ROUNDS):  # interleaved, so that a change of clock hits all alike
        for name, work in works.items():
            times[name].append(seconds(work, "cuda") / case.steps * 1e3)
    first = times["full"][0]  # the first batches, but for the trial that `Feed` made
    full, fixed, alone = (median(times[name][1:]) for name in works)
    return {
        "benchmark": "batches",
        **case._asdict(),
        "device": torch.cuda.get_device_name(device),
        "first_upload_s": upload_s,
        "step_ms": full,
        "step_in_first_epoch_ms": first,
        "step_on_fixed_batch_ms": fixed,
        "batches_alone_ms": alone,
        "share_of_step": (full - fixed) / full,
        "share_in_first_epoch": (first - fixed) / first,
        "all_step_ms": times["full"],
        "all_step_on_fixed_batch_ms": times["fixed"],
    }


def training_step(case: Case) -> Step:
    """A step of ResNet-18 in bf16."""
    from torchvision.models import resnet18

    network = resnet18(num_classes=7)
    bne = case.method == "BNE"
    method = (BNE if bne else DeepAll)(network, list(TRAIN_SIZES))
    method.to("cuda", memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(method.parameters(), 1e-3, momentum=0.9, fused=True)

    def step(images: Tensor, labels: Tensor, domains: Tensor) -> None:
        optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = method.loss(images, labels, domains)
        loss.backward()
        optimiser.step()

    return step


def graphed(step: Step, *example: Tensor) -> Step:
    """The same step as one CUDA graph."""
    fixed = [tensor.clone() for tensor in example]
    warm_up(lambda: step(*fixed))
    graph = recorded(lambda: step(*fixed))

    def replay(*batch: Tensor) -> None:
        for own, given in zip(fixed, batch, strict=True):
            own.copy_(given)
        graph.replay()

    return replay


def random_images(count: int) -> PreparedImages:
    """Images as `prepare` would give them, of noise."""
    pixels = torch.randint(-(2**63), 2**63 - 1, (count, 256 * 256 * 3 // 8)).view(torch.uint8)
    pixels = pixels.view(count, 256, 256, 3)
    files = tuple(ImageFile(str(i), i % 7, 0, bytes, "") for i in range(count))
    return PreparedImages(ImageSet(("all",), tuple("0123456"), files), pixels, Path())


def show(row: dict[str, object], record: Path | None) -> None:
    """Prints a result as a table, and records it as a line of JSON."""
    for key, value in row.items():
        print(f"{key:>26}  {value:.4f}" if isinstance(value, float) else f"{key:>26}  {value}")
    print(flush=True)
    if record:
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        with record.open("a") as file:
            file.write(json.dumps({**row, **versions}) + "\n")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="a .jsonl file to add the results to")
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("prepare")
    one.add_argument("path", type=Path)
    one.add_argument("--rounds", type=int, default=5)
    verbs.add_parser("batches")
    options = parser.parse_args()
    if options.verb == "prepare":
        show(compare_prepare(options.path, options.rounds), options.record)
    else:
        prepared = random_images(sum(TRAIN_SIZES.values()))
        for case in CASES:
            show(compare_batches(case, prepared), options.record)


if __name__ == "__main__":
    main()
