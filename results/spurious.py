"""Methods on drawings with a spurious cue in every domain: stripes that go with the class.

    python results/spurious.py --seeds 3 --out results/spurious.jsonl

An image shows one of four shapes on striped paper. In a known domain the direction of the stripes
goes with the shape nine times in ten, by a code that is the domain's own; in the unseen domain it
means nothing. Paper, ink and noise differ by domain. What is recorded already is not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.benchmark.tables import signed
from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.recipes.inputs import Inputs
from bne.recipes.schema import HeadPhase, Optimiser, Phase, Recipe, Schedule
from bne.training.run import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

METHODS = (
    "deepall", "bne", "dson", "crossgrad", "metareg", "mldg", "epi-fcr", "jigen", "masf", "d-sam",
    "mmld", "fusion", "rsc", "mixstyle", "points", "deepall-points",
)  # fmt: skip
SHAPES = ("square", "disc", "cross", "triangle")
DOMAINS = ("card", "pencil", "marker", "night")
# Paper and ink, each in red, green and blue, and how loud the noise is.
STYLES = (
    ((0.8, 0.7, 0.6), (0.3, 0.2, 0.2), 0.08),
    ((0.9, 0.9, 0.85), (0.4, 0.4, 0.45), 0.05),
    ((0.85, 0.85, 0.9), (0.5, 0.2, 0.2), 0.03),
    ((0.65, 0.7, 0.8), (0.2, 0.2, 0.35), 0.1),
)
SIZE, EACH, KEPT, LOUD, VARY = 32, 60, 0.9, 0.15, 0.05


def shape(kind: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """(SIZE, SIZE), a shape of random size at a random place."""
    radius = generator.uniform(6, 9)
    y, x = np.mgrid[:SIZE, :SIZE] - generator.uniform(radius + 1, SIZE - radius - 2, (2, 1, 1))
    largest = np.maximum(abs(y), abs(x))
    return [
        largest < radius * 0.85,
        np.hypot(y, x) < radius,
        (np.minimum(abs(y), abs(x)) < radius / 3) & (largest < radius),
        (abs(x) < (y + radius) / 2) & (abs(y) < radius),
    ][kind]


def drawing(domain: int, kind: int, known: bool, generator: np.random.Generator) -> torch.Tensor:
    """(SIZE, SIZE, 3) uint8; `known` is whether its domain is one to train on."""
    code = (kind + domain) % len(SHAPES)
    if not known or generator.random() > KEPT:
        code = int(generator.integers(len(SHAPES)))
    y, x = np.mgrid[:SIZE, :SIZE]
    stripes = (np.stack([x, y, x + y, x - y])[code] // 2 % 2)[..., None] * LOUD - LOUD / 2
    paper, ink, noise = STYLES[domain]
    own = generator.normal(0, VARY, (2, 3))  # no two sheets or pens are alike
    mask = shape(kind, generator)[..., None]
    image = np.where(mask, ink + own[0], paper + own[1] + stripes)
    image = image + generator.normal(0, noise, image.shape)
    return torch.from_numpy((255 * image.clip(0, 1)).astype(np.uint8))


def images(target: str, seed: int) -> PreparedImages:
    """All drawings of a run."""
    generator = np.random.default_rng([seed, DOMAINS.index(target)])
    files, pixels = [], []
    for d, kind, number in product(range(len(DOMAINS)), range(len(SHAPES)), range(EACH)):
        files.append(ImageFile(f"{DOMAINS[d]}/{SHAPES[kind]}/{number}", kind, d, bytes, ""))
        pixels.append(drawing(d, kind, DOMAINS[d] != target, generator))
    return PreparedImages(ImageSet(DOMAINS, SHAPES, tuple(files)), torch.stack(pixels), Path())


def recipe(method: str, target: str, seed: int) -> Recipe:
    """The same for all, from random weights."""
    optimiser = Optimiser("adam", 3e-3, 0.0, 1e-4, head_factor=1.0)
    return Recipe(
        method=method,
        target=(target,),
        backbone="small_cnn",
        weights=None,
        seed=seed,
        per_domain=12,
        epoch=25,
        validation=0.1,
        flip=False,
        lean=0.0,
        resize=SIZE,
        precision="float32",
        head=HeadPhase(0),
        train=Phase(8, 2, optimiser=optimiser, schedule=Schedule("cosine")),
        exact_statistics=False,
    )


def line(method: str, target: str, seed: int) -> dict[str, object]:
    """One run: the last epoch's accuracy on the unseen domain and on held-out images."""
    prepared, settings = images(target, seed), recipe(method, target, seed)
    with tempfile.TemporaryDirectory() as folder:
        last = run(Inputs.of(settings, prepared.images), prepared, Path(folder) / "run").epochs[-1]
    held_out = list(last.validation.values())
    return {
        "method": method, "target": target, "seed": seed,
        "accuracy": last.target[target].accuracy,
        "held-out": 100 * sum(s.correct for s in held_out) / sum(s.images for s in held_out),
    }  # fmt: skip


def table(path: Path, methods: Sequence[str] = METHODS) -> str:
    """The records as a table: means over targets and seeds, and paired differences."""
    found: dict[str, dict[tuple[str, int], dict[str, float]]] = {name: {} for name in methods}
    for text in path.read_text().splitlines():
        one = json.loads(text)
        found[one["method"]][one["target"], one["seed"]] = one
    rows = ["| method | unseen domain | above `deepall` | held-out images |"]
    rows.append("| --- | ---: | ---: | ---: |")
    base = found["deepall"]
    for name, runs in found.items():
        gains = [one["accuracy"] - base[which]["accuracy"] for which, one in runs.items()]
        error = stdev(gains) / len(gains) ** 0.5
        gain = "" if name == "deepall" else f"{signed(fmean(gains), 1)} ± {error:.1f}"
        mean = fmean(one["accuracy"] for one in runs.values())
        held_out = fmean(one["held-out"] for one in runs.values())
        rows.append(f"| `{name}` | {mean:.1f} | {gain} | {held_out:.1f} |")
    return "\n".join(rows)


def carry_out(
    out: Path,
    runs: Iterable[tuple[int, str, str]],
    line: Callable[[str, str, int], dict[str, object]],
) -> None:
    """Adds the lines of runs, (seed, target, method), that are not in the file yet."""
    known = set()
    if out.is_file():
        lines = map(json.loads, out.read_text().splitlines())
        known = {(one["seed"], one["target"], one["method"]) for one in lines}
    for seed, target, method in runs:
        if (seed, target, method) not in known:
            text = json.dumps(line(method, target, seed))
            with out.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    carry_out(options.out, product(range(options.seeds), DOMAINS, options.methods), line)
    print(table(options.out))


if __name__ == "__main__":
    main()
