"""Trains on the demo's digits and scores every run at every share, by mixture and by one pass.

python results/digits.py --seeds 3 --out results/beyond/digits.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch

from bne.core.ensemble import DomainEnsemble
from bne.data.decoding import usable_cores
from bne.demo.digits import load
from bne.demo.experiment import Settings, fit, score

METHODS = ("DeepAll", "BNE", "Points", "Points, learned", "Points without domains")


def lines(target: str, seed: int, name: str) -> list[dict[str, object]]:
    """One run, in each of its modes."""
    torch.set_num_threads(1)
    prepared = load(seed=1)
    method, transform = fit(prepared, target, seed, name, Settings())
    net, found = method.eval().net, []
    mixes = isinstance(net, DomainEnsemble) and len(net.domains) > 1
    for mode in ("logits", "centre") if mixes else ("plain",):
        if isinstance(net, DomainEnsemble) and mixes:
            net.mix = mode  # type: ignore[assignment]
        scored = score(method, transform, prepared, target)
        about = {"method": name, "target": [target], "seed": seed, "mode": mode}
        learned = method.learned_lean
        found.append({**about, "learned": learned, "leaning": [asdict(one) for one in scored]})
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()
    domains = load(seed=1).images.domains
    runs = list(itertools.product(domains, range(options.seeds), METHODS))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), mp_context=spawn) as workers:
        for found in workers.map(lines, *zip(*runs, strict=True)):
            with options.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
