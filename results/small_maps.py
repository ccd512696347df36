"""Leaning on small maps: ResNet-18 at 64 or 96 pixels, whose last maps are 2 × 2 or 3 × 3.

    python results/small_maps.py --size 64 --data pacs --weights resnet18.safetensors \
        --out results/beyond/small-maps.jsonl

The deviation of four values is a guess. So the share is also tried where it shrinks with the number
of values n of a layer: its odds a / (1 − a) are n / (n + c) of what they are elsewhere.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

import bne
from bne.core.norm import DomainBatchNorm
from bne.data.benchmarks import BENCHMARKS
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.splits import official_split
from bne.training.folder import held_out_images, read_training
from bne.training.model_folder import load_model
from bne.training.scores import batches

if TYPE_CHECKING:
    from bne.data.transform import EvalTransform
    from bne.methods import Method

METHODS, CONSTANTS, SHARES = (
    ("deepall", "points"),
    (0, 1, 4, 16, 64),
    (0.05, 0.1, 0.15, 0.2, 0.3, 0.5),
)


def values(method: Method, size: int, device: str) -> dict[str, int]:
    """The number of values per channel that every layer sees in an image, by its name."""
    found: dict[str, int] = {}

    def look(name: str) -> Any:
        return lambda _, inputs: found.__setitem__(name, inputs[0][0, 0].numel())

    layers = [
        (layer.name if isinstance(layer, DomainBatchNorm) else name, layer)
        for name, layer in method.net.named_modules()
        if isinstance(layer, DomainBatchNorm | _BatchNorm)
    ]
    hooks = [layer.register_forward_pre_hook(look(name)) for name, layer in layers]
    with torch.inference_mode():
        method.predict(torch.zeros(2, 3, size, size, device=device))
    for hook in hooks:
        hook.remove()
    return found


@torch.inference_mode()
def accuracy(method: Method, transform: EvalTransform, feed: Feed, numbers: list[int]) -> float:
    """In percent."""
    right = sum(
        int((method.predict(transform(pixels)).argmax(1) == labels).sum())
        for pixels, labels in feed.gather(batches(torch.as_tensor(numbers)))
    )
    return 100 * right / len(numbers)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=64, help="in pixels")
    parser.add_argument("--data", type=Path, required=True, help="PACS")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/small-maps"))
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()
    size, resize = options.size, options.size * 8 // 7
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images = open_images(options.data)
    feed = Feed(prepare(images, None, resize), torch.device(device))
    done = set()
    if options.out.exists():
        found = map(json.loads, options.out.read_text(encoding="utf-8").splitlines())
        done = {(line["size"], line["target"], line["method"]) for line in found}
    for (target,), name in product(BENCHMARKS["pacs"].targets, METHODS):
        if (size, target, name) in done:
            continue
        folder = options.runs / f"{name}-{target}-{size}"
        settings = {"method": name, "weights": options.weights, "size": size, "resize": resize}
        run = bne.train(options.data, target, recipe="beyond-pacs-resnet18", out=folder, **settings)
        method, transform, info = load_model(folder)
        method.to(device)
        training = read_training(folder)
        held_out, _ = held_out_images(training, info.domains, images, official_split(options.data))
        sizes = values(method, size, device)
        for constant, share in product(CONSTANTS, SHARES):
            method.lean = {k: share * n / (n + constant * (1 - share)) for k, n in sizes.items()}
            line = {
                "size": size, "method": name, "target": target, "zero": run.accuracy,
                "c": constant, "share": share,
                "target_accuracy": accuracy(method, transform, feed, images.indices_of([target])),
                "held-out": accuracy(method, transform, feed, sorted(held_out)),
            }  # fmt: skip
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
