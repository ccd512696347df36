"""Scores kept models of BNE on their target before and after it is enrolled from unlabeled images.

    bne benchmark --recipe pacs-resnet18 --data pacs --keep-models --out runs …
    python results/enroll.py runs --data pacs --out results/enroll.jsonl

Every line of the file is one model, one number of unlabeled target images, drawn at random, and one
way to use them: none ("before"), enrolled as one more domain, as images of one unknown domain
(`--one-domain`), or their statistics in place of the network's (AdaBN). Scores are of all images of
the target, those among them.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from kept import runs_of

from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.transform import EvalTransform
from bne.deploy.bundle import open_model
from bne.deploy.engine import Engine
from bne.deploy.enroll import enroll, forget
from bne.training.folder import read_training
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bne.data.cache import PreparedImages
    from bne.deploy.manifest import Manifest

SIZES = (16, 64, 256, None)
LEANS = (0.0, 0.1)
NAME = "the target"


def engines(
    engine: Engine, model: Manifest, prepared: PreparedImages, numbers: Sequence[int]
) -> Iterator[tuple[str, Engine]]:
    """The model after each way to use some unlabeled images, by name."""

    def adapted(bundle: Any) -> Engine:
        return Engine(bundle.method, engine.transform, engine.device)

    reads = [partial(prepared.pixels[n].numpy) for n in numbers]
    made = enroll(engine, model, NAME, reads)
    yield "enrolled", adapted(made)
    parts = np.array_split(np.asarray(numbers), -(-len(numbers) // 64))
    yield "one domain", engine.together(prepared.pixels[own].numpy() for own in parts)
    for name in model.branches:
        made = forget(adapted(made), made.manifest, name)
    yield "AdaBN", adapted(made)


def correct(engine: Engine, feed: Feed, numbers: Sequence[int]) -> int:
    """How many images are classified correctly."""
    return sum(
        int((engine.look(pixels, places=False).logits.argmax(1) == labels.cpu().numpy()).sum())
        for pixels, labels in feed.gather(batches(torch.as_tensor(numbers)))
    )


def score(run: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All lines of one run's model."""
    training = read_training(run)
    assert training is not None
    method, model = open_model(run)
    transform = EvalTransform.from_dict(model.transform)
    images = open_images(options.data)
    prepared = prepare(images, options.cache, transform.resize)
    feed = Feed(prepared, torch.device(options.device))
    numbers = images.indices_of(training.target)
    about = {key: training.settings[key] for key in ("method", "target", "seed")}
    about |= {"images": len(numbers)}
    for share in LEANS:
        method.lean = share
        engine = Engine(method.to(options.device), transform, options.device)
        told = {**about, "lean": share}
        yield {**told, "way": "before", "unlabeled": 0, "correct": correct(engine, feed, numbers)}
        for size in SIZES:
            for draw in range(options.draws if size else 1):
                order = np.random.default_rng(draw).permutation(numbers)[:size].tolist()
                for way, own in engines(engine, model, prepared, order):
                    found = {"way": way, "unlabeled": len(order), "draw": draw}
                    yield {**told, **found, "correct": correct(own, feed, numbers)}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder of a benchmark's kept runs")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--draws", type=int, default=3, help="of each number of images")
    options = parser.parse_args()
    for run in runs_of(options.runs, "bne"):
        for line in score(run, options):
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        print(run.name, flush=True)


if __name__ == "__main__":
    main()
