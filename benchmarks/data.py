"""How much preparing images and making batches cost, as ratios within one run.

    python benchmarks/data.py prepare ../shared/data/pacs     on any machine
    python benchmarks/data.py batches                         on a GPU

`prepare` compares a first preparation with the bare work in it: read, decode and resize the same
files with the same library on the same number of processes, and keep nothing. `batches` trains a
ResNet-18 in bf16 on random images of PACS' number and size, 16 of each of 3 domains a step, and
says what share of a step goes when the batch is there already.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median

import torch

from bne.data.augment import Augmentation
from bne.data.batches import DomainBatches
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.images import ImageFile, ImageSet, decode
from bne.data.prepared import PreparedImages
from bne.data.resize import resize
from bne.data.sources import open_images
from bne.models.preprocessing import Preprocessing

TRAIN_SIZES = {"art_painting": 1840, "cartoon": 2107, "sketch": 3531}  # PACS, target photo


def bare(files: tuple[ImageFile, ...]) -> int:
    """Reads, decodes and resizes; returns the number of bytes so that all must be done."""
    return sum(len(resize(decode(file.read(), file.name), 256).tobytes()) for file in files)


def compare_prepare(path: Path, rounds: int) -> dict[str, object]:
    """Times a first preparation against the bare work in it."""
    images = open_images(path)
    chunks = [images.files[i : i + 32] for i in range(0, len(images), 32)]
    cores = len(os.sched_getaffinity(0))
    bare_times, prepare_times, open_times = [], [], []
    for _ in range(rounds):
        with ProcessPoolExecutor(cores) as pool:
            bare_times.append(seconds(lambda: list(pool.map(bare, chunks))))
        with tempfile.TemporaryDirectory() as folder:
            prepare_times.append(seconds(lambda: prepare(images, folder)))
            open_times.append(seconds(lambda: prepare(open_images(path), folder)))
    # The least of several rounds is the one other programs disturbed least.
    return {
        "benchmark": "prepare",
        "images": len(images),
        "cores": cores,
        "bare_s": min(bare_times),
        "prepare_s": min(prepare_times),
        "ratio": min(prepare_times) / min(bare_times),
        "open_again_s": min(open_times),
        "all_bare_s": bare_times,
        "all_prepare_s": prepare_times,
    }


def compare_batches(strength: str, resident: bool, graphed: bool, steps: int) -> dict[str, object]:
    """Times training steps with and without the making of batches."""
    device = torch.device("cuda")
    prepared = random_images(sum(TRAIN_SIZES.values()))
    numbers = iter(range(len(prepared)))
    members = {name: list(islice(numbers, size)) for name, size in TRAIN_SIZES.items()}
    batches = DomainBatches(members, 16, epoch=steps)
    feed = Feed(prepared, device, resident=resident)
    augment = Augmentation(strength, Preprocessing(224))

    def make() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in feed.epoch(batches):
            yield augment(batch.images, batch.step, batch.positions), batch.labels

    images, labels = next(make())
    train = graphed_step(images, labels) if graphed else training_step(device)

    def with_batches() -> None:
        for pair in make():
            train(*pair)

    def without_batches() -> None:
        for _ in range(steps):
            train(images, labels)

    def only_batches() -> None:
        for _ in make():
            pass

    batches.step = 0
    works = {"full": with_batches, "fixed": without_batches, "alone": only_batches}
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(6):  # interleaved, so that a change of clock hits all alike
        for name, work in works.items():
            taken = gpu_seconds(work) / steps * 1e3
            if round_ > 0:  # the first one warms up
                times[name].append(taken)
    full, fixed, alone = (median(times[name]) for name in works)
    return {
        "benchmark": "batches",
        "augmentation": strength,
        "images_on_gpu": resident,
        "cuda_graph": graphed,
        "device": torch.cuda.get_device_name(device),
        "step_ms": full,
        "step_on_fixed_batch_ms": fixed,
        "batches_alone_ms": alone,
        "share_of_step": (full - fixed) / full,
    }


def training_step(device: torch.device) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A step of ResNet-18 in bf16."""
    from torchvision.models import resnet18

    network = resnet18(num_classes=7).to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, fused=True)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()

    return step


def graphed_step(
    images: torch.Tensor, labels: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """The same as one CUDA graph: then the GPU, not Python, sets the pace."""
    step = training_step(images.device)
    fixed_images, fixed_labels = images.clone(), labels.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(fixed_images, fixed_labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(fixed_images, fixed_labels)

    def replay(images: torch.Tensor, labels: torch.Tensor) -> None:
        fixed_images.copy_(images)
        fixed_labels.copy_(labels)
        graph.replay()

    return replay


def random_images(count: int) -> PreparedImages:
    """Images as `prepare` would give them, of noise."""
    pixels = torch.randint(0, 256, (count, 256, 256, 3), dtype=torch.uint8)
    files = tuple(ImageFile(str(i), i % 7, 0, bytes, "") for i in range(count))
    return PreparedImages(ImageSet(("all",), tuple("0123456"), files), pixels, Path())


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def gpu_seconds(work: Callable[[], object]) -> float:
    """How long `work` and all it asked of the GPU take."""
    torch.cuda.synchronize()
    return seconds(lambda: (work(), torch.cuda.synchronize()))


def show(rows: list[dict[str, object]]) -> None:
    """Prints a table and a line of JSON for each result."""
    for row in rows:
        for key, value in row.items():
            print(f"{key:>24}  {value:.3f}" if isinstance(value, float) else f"{key:>24}  {value}")
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        print(json.dumps({**row, **versions}), flush=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("prepare")
    one.add_argument("path", type=Path)
    one.add_argument("--rounds", type=int, default=5)
    two = verbs.add_parser("batches")
    two.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    if options.verb == "prepare":
        show([compare_prepare(options.path, options.rounds)])
    else:
        cases = (
            ("paper", True, True),
            ("paper", True, False),
            ("paper", False, True),
            ("strong", True, True),
        )
        show([compare_batches(*case, options.steps) for case in cases])


if __name__ == "__main__":
    main()
