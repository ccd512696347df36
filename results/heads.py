"""A frozen network and a new head: fitted without leaning and leaning, scored at every share.

    python results/heads.py --recipe beyond-pacs-resnet18 --data pacs \
        --weights resnet18_imagenet.safetensors --out results/beyond/heads.jsonl

The network keeps the weights it starts from; `bne.fit_head` fits the head to features of the source
domains' training images, each as it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import bne
from bne.benchmark.plan import choose, plan
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.splits import official_split
from bne.data.transform import EvalTransform
from bne.models import build, preprocessing
from bne.recipes.inputs import Inputs
from bne.training.scores import SHARES, batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

BATCH, FITTED = 64, (0.0, 0.05, 0.1, 0.2, 0.3)


class Shuffled:
    """Training images in a new order each time."""

    def __init__(self, feed: Feed, transform: EvalTransform, numbers: Iterable[int], seed: int):
        """Takes the images' numbers and the seed of the orders."""
        self.feed, self.transform = feed, transform
        self.numbers = torch.as_tensor(list(numbers))
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images, (B, 3, H, W), and labels, (B,)."""
        order = self.numbers[torch.randperm(len(self.numbers), generator=self.generator)]
        for pixels, labels in self.feed.gather(order.split(BATCH)):
            yield self.transform(pixels), labels


@torch.inference_mode()
def correct(net: nn.Module, transform: EvalTransform, feed: Feed, numbers: Iterable[int]) -> int:
    """The number of images that are classified correctly."""
    found = feed.gather(batches(torch.as_tensor(list(numbers))))
    return sum(int((net(transform(pixels)).argmax(1) == labels).sum()) for pixels, labels in found)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", required=True, help="whose targets and splits are taken")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, split = open_images(options.data), official_split(options.data)
    experiment = choose(recipe=options.recipe, rows=["DeepAll"])
    planned = plan(experiment, options.seeds, {}, weights=options.weights)
    feed = None
    for item in planned:
        recipe = item.recipe
        inputs = Inputs.of(recipe, images, split)
        held_out = [n for own in inputs.validation.values() for n in own]
        target = [n for own in inputs.target.values() for n in own]
        for fitted in FITTED:
            torch.manual_seed(recipe.seed)
            model = build(recipe.backbone, len(images.classes), options.weights).eval()
            transform = EvalTransform(preprocessing(model), recipe.resize)
            feed = feed or Feed(prepare(images, options.cache, recipe.resize), device)
            net = bne.convert(model, lean=fitted)
            net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            loader = Shuffled(feed, transform, inputs.train_labels, recipe.seed)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                bne.fit_head(net, loader)
                for net.lean in SHARES if not fitted else (fitted,):
                    line = {
                        "recipe": options.recipe, "target": recipe.target, "seed": recipe.seed,
                        "fitted": fitted, "share": net.lean,
                        "correct": correct(net, transform, feed, target), "count": len(target),
                        "held-out": correct(net, transform, feed, held_out),
                        "held-out count": len(held_out),
                    }  # fmt: skip
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
            print(item.target, recipe.seed, fitted, line["correct"] / len(target), flush=True)


if __name__ == "__main__":
    main()
