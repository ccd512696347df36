"""PACS with a mark on every image, whose color goes with the class by a code of the domain's own.

    python results/marks.py --data pacs --weights resnet18_imagenet.safetensors \
        --out results/marks.jsonl

In a known domain nine marks in ten follow the domain's code; in the unseen domain colors mean
nothing. It is the cue of `spurious.py` on photographs, paintings and drawings, which differ in much
more than their statistics. Small images and few steps: a CPU suffices. What is recorded already is
not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from spurious import carry_out, table

from bne.api import resolve
from bne.data.benchmarks import BENCHMARKS
from bne.data.cache import prepare
from bne.training.run import run
from bne.training.scores import last, mean_accuracy, pooled

if TYPE_CHECKING:
    from bne.data.cache import PreparedImages

METHODS = ("deepall", "bne", "points", "deepall-points")
COLORS = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255),
    (128, 128, 128),
)  # fmt: skip
SIZE, RESIZE, KEPT = 64, 72, 0.9
SETTINGS = {
    "size": SIZE,
    "resize": RESIZE,
    "epoch": 50,
    "train": {"epochs": 4, "warm_up": 2},
    "head": {"epochs": 1},
    "exact_statistics": True,
    "precision": "float32",
}


def marked(prepared: PreparedImages, target: str, seed: int) -> PreparedImages:
    """The images with a square at the middle of the upper part, which mirroring leaves there."""
    generator = torch.Generator().manual_seed(seed)
    pixels, colors = prepared.pixels.clone(), torch.tensor(COLORS, dtype=torch.uint8)
    side = RESIZE // 7
    top, left = RESIZE // 6, (RESIZE - side) // 2
    for number, domain in enumerate(prepared.images.domains):
        own = torch.tensor(prepared.images.indices_of([domain]))
        code = (prepared.labels[own] + 2 * number) % len(COLORS)
        chance = torch.randint(len(COLORS), code.shape, generator=generator)
        follows = torch.rand(code.shape, generator=generator) < (0 if domain == target else KEPT)
        mark = colors[torch.where(follows, code, chance)][:, None, None]
        pixels[own, top : top + side, left : left + side] = mark.expand(-1, side, side, -1)
    return replace(prepared, pixels=pixels)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="PACS")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()

    def line(method: str, target: str, seed: int) -> dict[str, object]:
        """One run: the last epoch's accuracy on the unseen domain and on held-out images."""
        own = {**SETTINGS, "method": method, "seed": seed, "weights": options.weights}
        inputs = resolve(options.data, target, "pacs-resnet18-standard", own, allow_gaps=False)
        prepared = marked(prepare(inputs.images, None, RESIZE), target, seed)
        with tempfile.TemporaryDirectory() as folder:
            found = last(run(inputs, prepared, Path(folder) / "run").epochs)
        return {
            "method": method, "target": target, "seed": seed,
            "accuracy": pooled(found.target.values()).accuracy,
            "held-out": mean_accuracy(found.validation),
        }  # fmt: skip

    targets = [target for (target,) in BENCHMARKS["pacs"].targets]
    carry_out(options.out, product(range(options.seeds), targets, METHODS), line)
    print(table(options.out, METHODS))


if __name__ == "__main__":
    main()
