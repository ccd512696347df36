"""What several distances make of PACS before any training, for comparison with the paper's tables.

python results/distances.py data/pacs resnet18_imagenet.safetensors

A ResNet-18 with the given weights is converted, its population statistics are those of a sample
of each domain, and the same images are placed by their instance statistics. One record a distance
is written to distances.jsonl: similarities as the paper's table has them, and how often an image
lies nearest to its own domain, with each domain left out in turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import bne
from bne.core.surgery import domain_layers
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.transform import EvalTransform
from bne.inspection.observe import sample
from bne.models.build import build
from bne.models.registry import Preprocessing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

IMAGES, SEED = 256, 0
RECORDS = Path(__file__).resolve().parent / "distances.jsonl"

# From squared distances, (layers, N, K), to one of all layers, (N, K).
OVER_LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "squared": lambda squares: squares.sum(0),
    "root of the sum": lambda squares: squares.sum(0).sqrt(),
    "sum of the layers' roots": lambda squares: squares.sqrt().sum(0),
}


@torch.no_grad()
def main(data: str, weights: str) -> None:
    """Writes the records."""
    prepared = prepare(open_images(data))
    chosen = sample(prepared.images, prepared.images.domains, IMAGES, SEED)
    names = list(chosen)
    net = bne.convert(build("resnet18", 7, weights), names)
    for layer in domain_layers(net):
        layer.momentum = 1.0  # so that one batch makes the statistics
    transform, feed = EvalTransform(Preprocessing(224)), Feed(prepared, "cpu")
    points = []
    for number, numbers in enumerate(chosen.values()):
        ((images, _),) = feed.gather([torch.tensor(numbers)])
        images = transform(images)
        net.train()(images, domains=torch.full((len(images),), number))
        points.append(net.eval().embed(images))
    known = net.domain_embeddings()
    with RECORDS.open("w", encoding="utf-8") as file:
        for spread in ("σ", "σ²"):
            squares = [squared_by_layer(own, known, spread) for own in points]
            for form, over_layers in OVER_LAYERS.items():
                distances = [over_layers(own) for own in squares]
                record = {
                    "spread": spread,
                    "form": form,
                    "images": IMAGES,
                    "seed": SEED,
                    "weights": Path(weights).name,
                    "similarity": {name: similarity(distances, names, name) for name in names},
                    "domain_accuracy": {name: accuracy(distances, names, name) for name in names},
                }
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


def squared_by_layer(points: bne.Embedding, known: bne.Embedding, spread: str) -> Tensor:
    """(layers, N, K), squared Euclidean distances of (μ, σ) or of (μ, σ²)."""

    def vectors(embedding: bne.Embedding, where: slice) -> Tensor:
        other = embedding.std if spread == "σ" else embedding.var
        return torch.cat([embedding.mean[:, where], other[:, where]], 1).double()

    slices = points.slices.values()
    return torch.stack([torch.cdist(vectors(points, s), vectors(known, s)) for s in slices]) ** 2


def similarity(
    distances: list[Tensor], names: list[str], unseen: str
) -> dict[str, dict[str, float]]:
    """The mean of 1 / distance of every source's images to every source."""
    sources = [number for number, name in enumerate(names) if name != unseen]
    means = {names[s]: (1 / distances[s][:, sources]).mean(0).tolist() for s in sources}
    columns = [names[s] for s in sources]
    return {name: dict(zip(columns, values, strict=True)) for name, values in means.items()}


def accuracy(distances: list[Tensor], names: list[str], unseen: str) -> float:
    """How often an image lies nearest to its own domain, mean over the sources, in percent."""
    sources = [number for number, name in enumerate(names) if name != unseen]
    right = [
        (distances[s][:, sources].argmin(1) == place).double().mean()
        for place, s in enumerate(sources)
    ]
    return 100 * float(torch.stack(right).mean())


if __name__ == "__main__":
    main(*sys.argv[1:])
