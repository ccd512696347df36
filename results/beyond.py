"""Writes docs/beyond.md from the records in beyond/, and the table of modes in docs/use.md.

The prose is in beyond.md.in, where Jinja2 puts the numbers. After adding records run

python results/beyond.py
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import jinja2
from make import minus, plain
from watch import filled

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import read
from bne.benchmark.reference import AVERAGE
from bne.benchmark.tables import Cell, average, find_records, signed
from bne.methods import Method, Points
from bne.training.events import Leaning, Score
from bne.training.scores import SHARE_RULE, choose_leaning, choose_share, mean_accuracy, pooled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bne.training.events import Share

    Run = tuple[str, str, int]
    """A row, a target and a seed."""

HERE = Path(__file__).resolve().parent
RECORDS, TEMPLATE = HERE / "beyond", HERE / "beyond.md.in"
PAGE, USE = (HERE.parent / "docs" / name for name in ("beyond.md", "use.md"))
SEEDS, WEIGHTS = 3, "resnet18_imagenet.safetensors"
STUDIES = {"pacs": "beyond-pacs-resnet18", "office_caltech": "beyond-officecaltech-resnet18"}
TARGETS = {"art_painting": "art"}
NAMES = {
    "deepall": "DeepAll",
    "bne": "BNE",
    "points": "Points",
    "deepall-points": "Points without domains",
}
CHOICES: dict[str, Callable[[Sequence[Leaning], float], Share]] = {
    "none": lambda *_: 0.0,
    "rule": lambda found, limit: choose_leaning(found, limit).share,
    "no limit": lambda found, _: choose_share(found, 1.0),
    "0.1": lambda *_: 0.1,
    "0.2": lambda *_: 0.2,
    "oracle": lambda found, _: (
        max(found, key=lambda one: pooled(one.target.values()).accuracy).share
    ),
}


def most(row: str) -> float:
    """The largest share that the rule may choose."""
    return (Points if row.startswith("Points") else Method).most_lean


SCORED = {"pacs": "modes", "office_caltech": "modes-office_caltech", "digits": "modes-digits"}
"""The files of what `leaning.py` has recorded."""
MODES = {
    "logits": ("the mixture of all K branches", "`--mix logits`", "K + 1"),
    "nearest 2": ("the two nearest branches", "`--nearest 2`", "3"),
    "nearest 1": ("the nearest branch", "`--nearest 1`", "2"),
    "layers 5": ("the mixture, placed by five layers", "`--layers 5`", "K and a part"),
    "statistics": ("mixed statistics", "`--mix statistics`", "2"),
    "centre": ("the domains' centre", "`--mix centre`", "1"),
}
"""What is said of each mode of inference, by its name in records."""


def main() -> None:
    """Writes the page, and the table into the other."""
    PAGE.write_text(page(), encoding="utf-8")
    USE.write_text(use_page(USE.read_text(encoding="utf-8")), encoding="utf-8")


def use_page(text: str) -> str:
    """docs/use.md with its table of modes: accuracy of BNE on PACS, and time on two cores."""
    accuracy, times = modes()["BNE"], mode_times()
    rows = [
        "| mode | option | passes | accuracy | leaning | time | leaning |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode, told in MODES.items():
        cells = accuracy.get(mode)
        scores = (plain(cells[choice]) if cells else "…" for choice in ("none", "rule"))
        own = (times.get(name) for name in (mode, f"{mode}, leaning"))
        ratios = ("…" if ratio is None else f"{ratio:.1f}" for ratio in own)
        rows.append(f"| {' | '.join((*told, *scores, *ratios))} |")
    return filled(text, "modes", rows)


TIMED = {
    "logits": "mixture",
    "nearest 2": "mixture, nearest=2",
    "nearest 1": "mixture, nearest=1",
    "layers 5": "mixture, layers=5",
    "statistics": "mixed statistics",
    "centre": "centre",
}
"""Modes by what `benchmarks/speed.py` calls them."""


def mode_times() -> dict[str, float]:
    """The last times of modes on two cores, relative to the plain network's."""
    file = HERE / "speed.jsonl"
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    own = {
        one["what"]: one["to_plain"]
        for one in found
        if "CUDA" not in one["device"]
        and (one["threads"], one["domains"], one["images"]) == (2, 3, 16)
    }
    ways = {f"{mode}{lean}": f"{name}{lean}" for mode, name in TIMED.items() for lean in LEANING}
    return {way: own[name] for way, name in ways.items() if name in own}


LEANING = ("", ", leaning")


def page() -> str:
    """The template with its numbers."""
    environment = jinja2.Environment(  # noqa: S701 (Markdown, not HTML)
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"plain": plain, "gain": partial(plain, sign=True), "mean": fmean}
    environment.filters |= {"signed": partial(signed, digits=1), "figure": "{:.1f}".format}
    studies = {name: study(runs(name), left_out(name)) for name in (*STUDIES, "digits")}
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        **studies,
        modes=modes(),
        changes={name: changes(file) for name, file in SCORED.items()},
        heads=heads(),
        small=small_maps(),
        speed=speed(),
        styles=styles(),
        cue=cue(),
        mixed=mixed_amplitudes(),
        longer=longer(),
        held_out_images=sorted(
            sum(score.images for score in found[0].validation.values())
            for found in runs("office_caltech").values()
        ),
        rule=SHARE_RULE,
        average=AVERAGE,
        minus=minus,
    )


@cache
def runs(name: str) -> dict[Run, Sequence[Leaning]]:
    """The scores of every recorded run at every share."""
    if name == "digits":
        return {
            (line["method"], *line["target"], line["seed"]): _leanings(line["leaning"])
            for line in digit_lines("digits")
            if line["mode"] in ("plain", OWN.get(line["method"]))
        }
    records = read(RECORDS / f"{name}.jsonl")
    items = plan(choose(recipe=STUDIES[name]), SEEDS, {}, weights=WEIGHTS)
    return {
        (item.row, item.target, item.recipe.seed): _leanings(record.leaning)
        for item, record in find_records(items, records)
        if record
    }


OWN = {"BNE": "logits", "Points": "centre", "Points, learned": "centre"}
"""The mode in which a method predicts."""


def _leanings(plain: Iterable[Mapping[str, Any]]) -> Sequence[Leaning]:
    return [Leaning.from_dict(one) for one in plain]


def pairs(name: str) -> Iterator[tuple[str, Sequence[str], int, Sequence[Leaning]]]:
    """Runs that leave two domains out: their row, these domains, the seed, and their scores."""
    if name == "digits":
        for line in digit_lines("digits-pairs"):
            if line["mode"] in ("plain", OWN.get(line["method"])):
                yield line["method"], line["target"], line["seed"], _leanings(line["leaning"])
        return
    for one in read(RECORDS / f"{name}-pairs.jsonl"):
        yield one.row, one.settings["target"], one.settings["seed"], _leanings(one.leaning)
    for (row, target, seed), leanings in runs(name).items():
        if len(domains := target.split("+")) == 2:
            yield row, domains, seed, leanings


def left_out(name: str) -> dict[Run, Share]:
    """The share by leaving sources out, by row, target and seed.

    Of the shares that every run is scored at, it is the one with the highest mean accuracy on the
    other domains, each in a run that saw neither it nor the target; the smallest if there are
    several. Seeds with which only some of them were left out tell no share.
    """
    accuracies: dict[Run, dict[Share, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, unseen, seed, leanings in pairs(name):
        for target, domain in permutations(unseen):
            own = accuracies[row, target, seed]
            for one in leanings:
                if one.share != "learned":
                    own[one.share].append(one.target[domain].accuracy)
    others = {run: len(shares[0.0]) for run, shares in accuracies.items()}
    return {
        run: max(shares, key=lambda share: round(fmean(shares[share]), 9))
        for run, shares in accuracies.items()
        if others[run] == max(others.values())
    }


def study(
    found: Mapping[Run, Sequence[Leaning]], left_out: Mapping[Run, Share] | None = None
) -> dict[str, Any]:
    """Cells by row, by how the share is chosen, and by target; the accuracy on held-out images.

    Where sources were left out with the first seed alone, the share holds for all seeds.
    """
    rows = dict.fromkeys(row for row, _, _ in found)
    targets = dict.fromkeys(target for _, target, _ in found)
    cells = {
        row: {
            choice: _cells(found, row, targets, partial(_on_target, row, choice))
            for choice in CHOICES
        }
        for row in rows
    }
    known = left_out or {}
    at_left_out = {
        run: [one for one in scores if one.share == share]
        for run, scores in found.items()
        if (share := known.get(run, known.get((*run[:2], 0)))) is not None
    }
    for row in rows:
        cells[row]["left out"] = _cells(at_left_out, row, targets, _only)
    held_out = {
        row: {
            choice: _cells(found, row, targets, partial(_held_out, row, choice))
            for choice in ("none", "rule")
        }
        for row in rows
    }
    shares = {
        row: [choose_share(one, most(row)) for run, one in found.items() if run[0] == row]
        for row in rows
    }
    seeds = {row: len({seed for own, _, seed in found if own == row}) for row in rows}
    return {
        "targets": {target: TARGETS.get(target, target.replace("+", " + ")) for target in targets},
        "cells": cells,
        "held_out": held_out,
        "shares": shares,
        "seeds": seeds,
    }


def _cells(
    found: Mapping[Run, Sequence[Leaning]],
    row: str,
    targets: Iterable[str],
    value: Callable[[Sequence[Leaning]], float],
) -> dict[str, Cell]:
    by_target = {}
    for target in targets:
        own = {s: value(one) for (r, t, s), one in found.items() if (r, t) == (row, target)}
        by_target[target] = Cell(own, len(own))
    return {**by_target, AVERAGE: average(list(by_target.values()))}


def _only(leanings: Sequence[Leaning]) -> float:
    (one,) = leanings
    return pooled(one.target.values()).accuracy


def _at(row: str, choice: str, leanings: Sequence[Leaning]) -> Leaning:
    share = CHOICES[choice](leanings, most(row))
    return next(one for one in leanings if one.share == share)


def _on_target(row: str, choice: str, leanings: Sequence[Leaning]) -> float:
    return pooled(_at(row, choice, leanings).target.values()).accuracy


def _held_out(row: str, choice: str, leanings: Sequence[Leaning]) -> float:
    return mean_accuracy(_at(row, choice, leanings).validation)


def lines(name: str) -> list[dict[str, Any]]:
    """What `leaning.py` or `digits.py` has recorded."""
    file = RECORDS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


STEPS = 1000
"""How long the digits' networks are trained; shorter runs are there to compare with."""


def digit_lines(name: str, steps: int = STEPS) -> list[dict[str, Any]]:
    """What `digits.py` has recorded of networks that were trained for so many steps."""
    return [line for line in lines(name) if line.get("steps", 300) == steps]


def longer() -> dict[str, dict[int, float]]:
    """The digits, by method and steps: accuracy on domains left out in pairs, without leaning."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for steps in (300, STEPS):
        right: dict[str, list[float]] = defaultdict(list)
        for line in digit_lines("digits-pairs", steps):
            if line["mode"] in ("plain", OWN.get(line["method"])):
                (zero,) = (one for one in _leanings(line["leaning"]) if one.share == 0)
                right[line["method"]] += [score.accuracy for score in zero.target.values()]
        for method, own in right.items():
            found[method][steps] = fmean(own)
    return found


def mode_lines(file: str) -> dict[Any, dict[str, Any]]:
    """What `leaning.py` has recorded in a file; of a network trained twice, the last."""
    return {_key(line): line for line in lines(file)}


def modes() -> dict[str, dict[str, dict[str, Cell]]]:
    """PACS by method, by what is mixed and by how the share is chosen: the average of targets."""
    found: dict[tuple[str, str], dict[Run, Sequence[Leaning]]] = defaultdict(dict)
    own = mode_lines(SCORED["pacs"])
    for (method, target, seed, mode, images, change), line in own.items():
        if images == "target":
            held_out = own[method, target, seed, mode, "held-out", change]
            run = (NAMES[method], target, seed)
            found[NAMES[method], mode][run] = _joined(line, held_out)
    told: dict[str, dict[str, dict[str, Cell]]] = defaultdict(dict)
    targets = {target for scores in found.values() for _, target, _ in scores}
    for (row, mode), every in found.items():
        of_seed = Counter(seed for _, _, seed in every)
        scores = {run: one for run, one in every.items() if of_seed[run[2]] == len(targets)}
        if not scores:
            continue
        cells = study(scores)["cells"][row]
        told[row][mode] = {choice: cells[choice][AVERAGE] for choice in ("none", "rule")}
    return dict(told)


def changes(file: str) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By change and method: accuracies on held-out source images, without and with leaning."""
    told: dict[str, dict[str, dict[str, list[float]]]] = {}
    chosen: dict[Run, float] = {}
    for line in mode_lines(file).values():
        if line["images"] != "held-out" or line["mode"] not in ("plain", OWN.get(_name(line))):
            continue
        if _name(line) not in NAMES.values():
            continue  # its share is learned, and not among these
        run = (_name(line), "+".join(line["target"]), line["seed"])
        if line["change"] == AS_THEY_ARE:
            chosen[run] = choose_share(_joined(line, line), most(_name(line)))
        correct = dict(zip(line["shares"], line["correct"], strict=True))
        own = told.setdefault(line["change"], {}).setdefault(_name(line), {"none": [], "rule": []})
        for choice, share in (("none", 0.0), ("rule", chosen[run])):
            own[choice].append(100 * correct[share] / line["count"])
    return told


def speed() -> dict[tuple[str, int, str], dict[str, float]]:
    """Ratios of each device's last measurement, by what was measured, domains and reference."""
    file = HERE / "speed.jsonl"
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    own = [line for line in found if line["part"] == "leaning" and line["ratio"]]
    last = {line["device"]: line["when"] for line in own}
    told: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    for line in own:
        if line["when"] == last[line["device"]]:
            run = "compiled" if line["compiled"] else "graph" if line["graph"] else "cpu"
            told[line["what"], line["domains"], line["reference_is"]][run] = line["ratio"]
    return dict(told)


def styles() -> list[tuple[int, float, float, float]]:
    """Digits under random styles: how many, how far apart, points and the same without domains.

    Both lean; ordered from near to far, and from few styles to many.
    """
    file = HERE / "many-domains.jsonl"
    found: dict[tuple[float, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        if line["kind"] == "accuracy":
            place = line.get("apart", 1.0), line["domains"]
            found[place][line["case"]].append(line["accuracy"])
    rows = ("Points, leaning", "Points without domains, leaning")
    return [
        (count, apart, *(fmean(own[row]) for row in rows))
        for (apart, count), own in sorted(found.items())
        if all(row in own for row in rows)
    ]


def mixed_amplitudes() -> dict[str | None, dict[str, Any]]:
    """The digits by whose amplitudes images mix: points and the same without domains."""
    found: dict[str | None, dict[Run, Sequence[Leaning]]] = defaultdict(dict)
    for one in read(HERE / "trials" / "digits-unseen.jsonl"):
        own = one.settings
        run = (NAMES[own["method"]], *own["target"], own["seed"])
        found[own["amplitudes"]["name"]][run] = _leanings(one.leaning)
    return {name: study(own)["cells"] for name, own in found.items()}


def cue() -> list[dict[str, float]]:
    """Accuracy on the unseen domain under a spurious cue, by method, of each target and seed."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for line in map(json.loads, (HERE / "spurious.jsonl").open(encoding="utf-8")):
        found[line["target"], line["seed"]][line["method"]] = line["accuracy"]
    return list(found.values())


def small_maps() -> dict[tuple[str, str], dict[int, dict[float, tuple[float, float]]]]:
    """By size and method, constant and share: mean accuracy on targets and held-out images.

    Of a size count the targets that both methods have; they are named if they are not all.
    """
    tried = {(line["size"], line["method"], line["target"]) for line in lines("small-maps")}
    methods, every = ({run[place] for run in tried} for place in (1, 2))
    found: dict[tuple[str, str], dict[int, dict[float, list[tuple[float, float]]]]] = {}
    for line in lines("small-maps"):
        size = line["size"]
        targets = sorted(t for t in every if all((size, m, t) in tried for m in methods))
        if line["target"] not in targets:
            continue
        names = ", ".join(TARGETS.get(target, target) for target in targets)
        label = f"{size}" if len(targets) == len(every) else f"{size} ({names})"
        own = found.setdefault((label, _name(line)), {}).setdefault(line["c"], {})
        own.setdefault(line["share"], []).append((line["target_accuracy"], line["held-out"]))
        zero = own.setdefault(0.0, [])
        if line["share"] == 0.1:
            zero.append((line["zero"], float("nan")))
    return {
        row: {
            c: {a: tuple(map(fmean, zip(*v, strict=True))) for a, v in by_share.items()}  # type: ignore[misc]
            for c, by_share in constants.items()
        }
        for row, constants in found.items()
    }


def heads() -> dict[str, dict[str, dict[float, float]]]:
    """By recipe: accuracy on targets by share, of a head fitted as it is and of one leaning."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for line in lines("heads"):
        shares = found.setdefault(line["recipe"], {"without": {}, "leaning": {}})
        accuracy = 100 * line["correct"] / line["count"]
        for kind, fitted in (("without", 0.0), ("leaning", line["share"])):
            if line["fitted"] == fitted:
                shares[kind].setdefault(line["share"], []).append(accuracy)
    return {
        recipe: {kind: {a: fmean(v) for a, v in own.items()} for kind, own in shares.items()}
        for recipe, shares in found.items()
    }


AS_THEY_ARE = "as they are"


def _name(line: Mapping[str, Any]) -> str:
    return NAMES.get(line["method"], line["method"])


def _key(line: Mapping[str, Any]) -> tuple[str, str, int, str, str, str]:
    target = "+".join(line["target"])
    return line["method"], target, line["seed"], line["mode"], line["images"], line["change"]


def _joined(target: Mapping[str, Any], held_out: Mapping[str, Any]) -> list[Leaning]:
    """The scores of one model in one mode."""
    return [
        Leaning(
            share,
            {"held-out": Score(held_out["correct"][place], held_out["count"])},
            {"target": Score(target["correct"][place], target["count"])},
            held_out["gained"][place],
            held_out["lost"][place],
        )
        for place, share in enumerate(target["shares"])
    ]


if __name__ == "__main__":
    main()
