"""Trains on the demo's digits and scores every run at every share, by mixture and by one pass.

python results/digits.py --seeds 3 --out results/beyond/digits.jsonl \
    --changes results/beyond/modes-digits.jsonl
python results/digits.py --seeds 3 --unseen 2 --out results/beyond/digits-pairs.jsonl

With `--unseen 2` every pair of domains is left out in turn: what either says of the share to lean
by counts for the other, which saw nothing of it. With `--changes` held-out images of the known
domains are scored in another light too, as `leaning.py` does for kept models. Lines without `steps`
are of 300, as in the demo; by pairs of domains left out, 1000 are better.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from leaning import CHANGES, counts, modes, right_answers

from bne.core.ensemble import DomainEnsemble
from bne.data.decoding import usable_cores
from bne.demo.digits import load
from bne.demo.experiment import Settings, fit, held_out_of, score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.methods import Method

METHODS = ("DeepAll", "BNE", "Points", "Points without domains", "Points, learned")


def lines(
    unseen: tuple[str, ...], seed: int, name: str, steps: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One run: in each of its modes, and in its own mode on changed images."""
    torch.set_num_threads(1)
    prepared = load(seed=1)
    demo = Settings()
    warm_up = steps * demo.warm_up_steps // demo.steps
    settings = replace(demo, warm_up_steps=warm_up, distance_steps=steps - warm_up)
    method, transform = fit(prepared, unseen, seed, name, settings)
    net, found = method.eval().net, []
    about = {"method": name, "target": unseen, "seed": seed, "steps": steps}
    light = [{**about, **line} for line in in_another_light(method, transform, prepared, unseen)]
    mixes = isinstance(net, DomainEnsemble) and len(net.domains) > 1
    for mode in ("logits", "centre") if mixes else ("plain",):
        if isinstance(net, DomainEnsemble) and mixes:
            net.mix = mode  # type: ignore[assignment]
        scored = [asdict(one) for one in score(method, transform, prepared, unseen)]
        learned = method.learned_lean
        found.append({**about, "mode": mode, "learned": learned, "leaning": scored})
    return found, light


def in_another_light(
    method: Method, transform: EvalTransform, prepared: PreparedImages, unseen: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """What a method says of held-out images of the domains it knows, under every change."""
    known = [domain for domain in prepared.images.domains if domain not in unseen]
    numbers = torch.tensor([n for domain in known for n in held_out_of(prepared, domain)])
    pixels, labels = prepared.pixels[numbers].permute(0, 3, 1, 2), prepared.labels[numbers]
    mode = next(modes(method))
    for name, change in CHANGES.items():
        right = right_answers(method, transform, change(pixels), labels)
        yield {"mode": mode, "images": "held-out", "change": name, **counts(right)}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--unseen", type=int, default=1, help="domains left out of a run")
    parser.add_argument("--steps", type=int, default=1000, help="of training, in all")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    parser.add_argument("--changes", type=Path, help="one for held-out images in another light")
    options = parser.parse_args()
    domains = load(seed=1).images.domains
    unseen = itertools.combinations(domains, options.unseen)
    runs = list(itertools.product(unseen, range(options.seeds), METHODS, [options.steps]))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), mp_context=spawn) as workers:
        for found in workers.map(lines, *zip(*runs, strict=True)):
            for path, own in zip((options.out, options.changes), found, strict=True):
                if path:
                    with path.open("a", encoding="utf-8") as file:
                        file.writelines(json.dumps(line) + "\n" for line in own)


if __name__ == "__main__":
    main()
