"""Trains on the demo's digits and scores every run at every share, by mixture and by one pass.

python results/digits.py --seeds 3 --out results/beyond/digits.jsonl
python results/digits.py --seeds 3 --unseen 2 --out results/beyond/digits-pairs.jsonl

With `--unseen 2` every pair of domains is left out in turn: what either says of the share to lean
by counts for the other, which saw nothing of it.
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


def lines(unseen: tuple[str, ...], seed: int, name: str) -> list[dict[str, object]]:
    """One run, in each of its modes."""
    torch.set_num_threads(1)
    prepared = load(seed=1)
    method, transform = fit(prepared, unseen, seed, name, Settings())
    net, found = method.eval().net, []
    mixes = isinstance(net, DomainEnsemble) and len(net.domains) > 1
    for mode in ("logits", "centre") if mixes else ("plain",):
        if isinstance(net, DomainEnsemble) and mixes:
            net.mix = mode  # type: ignore[assignment]
        scored = score(method, transform, prepared, unseen)
        about = {"method": name, "target": unseen, "seed": seed, "mode": mode}
        learned = method.learned_lean
        found.append({**about, "learned": learned, "leaning": [asdict(one) for one in scored]})
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--unseen", type=int, default=1, help="domains left out of a run")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    options = parser.parse_args()
    domains = load(seed=1).images.domains
    unseen = itertools.combinations(domains, options.unseen)
    runs = list(itertools.product(unseen, range(options.seeds), METHODS))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), mp_context=spawn) as workers:
        for found in workers.map(lines, *zip(*runs, strict=True)):
            with options.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)


if __name__ == "__main__":
    main()
