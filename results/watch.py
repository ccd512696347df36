"""Writes the tables of docs/watch.md from drift.jsonl and enroll.jsonl.

    python results/watch.py

Only what lies between a table's marks is written.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from scipy.stats import t

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "watch.md"
TARGETS = {"art_painting": "art", "cartoon": "cartoon", "photo": "photo", "sketch": "sketch"}
OURS, VERSION = "bne monitor", 4
FULL, SMALL = 224, 96  # pixels of images: networks trained in full, and on a CPU
WAYS = {
    "before": "as it was trained",
    "enrolled": "enrolled",
    "one domain": "`--one-domain`",
    "AdaBN": "AdaBN",
}


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """docs/watch.md with its tables."""
    text = filled(filled(text, "drift", drift()), "mixtures", mixtures())
    return filled(text, "enrolled", enrolled())


def filled(text: str, name: str, rows: Iterable[str]) -> str:
    """A page with what belongs between the marks of that name."""
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    return "".join((before, begin, *(f"{row}\n" for row in rows), end, after))


def lines(name: str) -> list[dict[str, Any]]:
    """The records of a file."""
    text = (HERE / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def windows(pixels: int) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Lines of drift on networks of such images, by size of windows and test, ours first."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines("drift"):
        if (line.get("version"), line.get("pixels")) == (VERSION, pixels):
            found[line["size"], line["test"]].append(line)
    for size, test in sorted(found, key=lambda one: (one[0], not one[1].startswith(OURS))):
        yield size, test, found[size, test]


def drift() -> Iterable[str]:
    """By test and size of windows: false alarms, what is detected, and time.

    The interval of the false alarms is that over models, divisions and known domains, but ends no
    lower than one of so many windows would.
    """
    names = " | ".join(TARGETS.values())
    yield f"| test | images | false alarms | domains above 1 % | {names} | ms |"
    yield f"| --- | ---: | ---: | ---: |{' ---: |' * (len(TARGETS) + 1)}"
    for size, test, own in windows(FULL):
        alarms = _false_alarms(own)
        took = f"{1000 * fmean(line['seconds'] for line in own):.1f}"
        for key, label in (("detected", test), ("detected_equal", f"{test}, at 1 %")):
            detected = [_share(key, own, target) for target in TARGETS]
            yield f"| {' | '.join((label, str(size), *alarms, *detected, took))} |"
            alarms, took = ["1.0 %", ""], ""


def mixtures() -> Iterable[str]:
    """By test and size: false alarms on one known domain and on two, and what is detected."""
    names = " | ".join(TARGETS.values())
    yield f"| test | images | one domain | domains above 1 % | two domains | {names} |"
    yield f"| --- | ---: | ---: | ---: | ---: |{' ---: |' * len(TARGETS)}"
    for size, test, own in windows(SMALL):
        mixed = [line for line in own if line["mixed"]]
        two = [100 * line["mixed_alarms"] / line["mixed"] for line in mixed]
        shown = f"{fmean(two):.1f} %" if two else "–"
        detected = [_share("detected", own, target) for target in TARGETS]
        yield f"| {' | '.join((test, str(size), *_false_alarms(own), shown, *detected))} |"


def _false_alarms(found: Sequence[dict[str, Any]]) -> list[str]:
    """Of windows of one known domain: their share, and how many domains have more than 1 %."""
    shares = [n / line["windows"] for line in found for n in line["false_alarms"].values()]
    mean, count = fmean(shares), len(shares)
    half = t.ppf(0.975, count - 1) * stdev(shares) / count**0.5
    most = max(mean + half, fmean(end for line in found for _, end in line["interval"].values()))
    return [
        f"{100 * mean:.1f} % ({100 * max(0, mean - half):.1f}–{100 * most:.1f})",
        f"{sum(share > 0.01 for share in shares)} of {count}",
    ]


def _share(key: str, found: Iterable[dict[str, Any]], target: str) -> str:
    """Of windows of an unseen domain that alarm, in percent."""
    own = [line for line in found if line["target"] == target]
    count = sum(line["windows"] for line in own)
    return f"{100 * sum(line[key] for line in own) / count:.1f}" if own else "–"


def enrolled() -> Iterable[str]:
    """By way, number of unlabeled images and share to lean by: accuracy on the target."""
    scores: dict[tuple[str, str, float], dict[tuple[str, int], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for line in lines("enroll"):
        count = "all" if line["unlabeled"] == line["images"] else str(line["unlabeled"] or "none")
        own = scores[line["way"], count, line["lean"]]
        own[line["target"][0], line["seed"]].append(100 * line["correct"] / line["images"])
    yield f"| the model | images | {' | '.join(TARGETS.values())} | average | leaning by 0.1 |"
    yield f"| --- | ---: |{' ---: |' * (len(TARGETS) + 2)}"
    for way, label in WAYS.items():
        for count in ("none",) if way == "before" else ("16", "64", "256", "all"):
            cells = {lean: _cells(scores[way, count, lean]) for lean in (0.0, 0.1)}
            yield f"| {label} | {count} | {' | '.join((*cells[0.0], cells[0.1][-1]))} |"


def _cells(scores: dict[tuple[str, int], list[float]]) -> list[str]:
    """Of every target and of their average: the mean over seeds and its standard error."""
    mean = {run: fmean(draws) for run, draws in scores.items()}
    seeds = sorted({seed for _, seed in mean})
    rows = [[mean[target, seed] for seed in seeds] for target in TARGETS]
    rows.append([fmean(mean[target, seed] for target in TARGETS) for seed in seeds])
    return [
        f"{fmean(own):.1f}" + (f" ± {stdev(own) / len(own) ** 0.5:.1f}" if len(own) > 1 else "")
        for own in rows
    ]


if __name__ == "__main__":
    main()
