r"""What each change to a recipe gives, from the outcome of `bne tune --every-target`.

    bne tune --data pacs --every-target --recipe results/trials/pacs-recipe.yaml \
        --space results/trials/pacs.yaml --weights resnet18_imagenet.safetensors \
        --lengths 1 --finalists 23 --seeds 3 --out runs/trials --records trials.jsonl
    python results/trials.py runs/trials/tune.json

A figure is the mean over targets, for each the mean over the domains left out beside it, at the
share to lean by that is best there. Targets share runs, two by two, so the standard error of a
gain, which is over targets, is a little too small.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bne.benchmark.tables import signed
from bne.tuning.objective import changes_text


def table(found: list[dict[str, Any]]) -> str:
    """Settings with their gain over the recipe, the best first, in Markdown."""
    best: dict[str, dict[str, dict[str, Any]]] = {}
    for target in found:
        for one in target["settings"]:
            known = best.setdefault(one["digest"], {})
            (name,) = target["target"]
            if name not in known or one["mean"] > known[name]["mean"]:
                known[name] = one
    whole = {digest: own for digest, own in best.items() if len(own) == len(found)}
    (recipe,) = [own for own in whole.values() if not next(iter(own.values()))["changes"]]
    names = list(recipe)
    lines = [f"| settings | mean | over the recipe | {' | '.join(names)} | seeds |"]
    lines.append("| --- |" + " ---: |" * (len(names) + 3))
    for own in sorted(whole.values(), key=lambda own: -fmean(o["mean"] for o in own.values())):
        gains = [own[name]["mean"] - recipe[name]["mean"] for name in names]
        error = stdev(gains) / len(gains) ** 0.5
        gain = "" if own is recipe else f"{signed(fmean(gains), 1)} ± {error:.1f}"
        figures = " | ".join(f"{own[name]['mean']:.1f}" for name in names)
        seeds = min(own[name]["seeds"] for name in names)
        mean = fmean(own[name]["mean"] for name in names)
        text = changes_text(own[names[0]]["changes"])
        lines.append(f"| `{text}` | {mean:.1f} | {gain} | {figures} | {seeds} |")
    return "\n".join(lines)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="tune.json of a search for every target")
    print(table(json.loads(parser.parse_args().file.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
