"""Tells how often windows of known and of unseen domains alarm, beside other tests of drift.

    bne benchmark --recipe beyond-pacs-resnet18 --row BNE --data pacs --keep-models --out runs …
    python results/drift.py runs --data pacs --out results/drift.jsonl

The held-out source images are parted in two halves, several times. One half says what is usual.
Windows of one source domain, drawn from the other, should not alarm; windows of the unseen target
should. In the same windows, the tests that users would take from a drift library: maximum mean
discrepancy (MMD) and Kolmogorov–Smirnov (KS) on the network's last features, against each domain's
half as ours. Windows that mix two known domains by halves should not alarm under `--mixed`.
alibi-detect's are used beside where it is installed (`pip install alibi-detect`), of
the first division and on a tenth as many windows, since its KS takes a second. Every line of the
file is one model, one division, one size of windows and one test; domains whose half has fewer
images are left out.
`detected_equal` is at the limit that as many windows of known domains pass as ours at its own, or
one in a hundred if that is more.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from kept import runs_of
from scipy import stats
from torch import nn

from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.sources import open_images
from bne.data.splits import official_split
from bne.deploy.engine import Engine
from bne.deploy.monitor import known_domains, mixture_p_value
from bne.deploy.reference import Reference
from bne.training.folder import held_out_images, read_training
from bne.training.model_folder import load_model
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bne.data.transform import EvalTransform

    Rows = NDArray[np.int64]
    Test = Callable[[Rows], float]
    """Takes the rows of a window, returns the p-value of the domain that explains it best."""

SIZES = (16, 64, 128)
ALARM = 0.01
VERSION = 4  # of our test: 3 drew large windows from few images
OURS, MIXED = "bne monitor", "bne monitor --mixed"


class Looks:
    """What a model sees in held-out and target images.

    Attributes:
        points: (N, D), in the space of domains.
        features: (N, F), of the last layer but one, at the domains' centre.
        domain: (N,), numbers of `names`; the last is the target.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.points = found["points"]
        self.features, self.domain = found["features"], found["domain"]
        self.names: list[str] = found["names"].tolist()

    def rows(self, name: str) -> Rows:
        """Of a domain's images."""
        return np.flatnonzero(self.domain == self.names.index(name))


@torch.inference_mode()
def look(
    method: Any, transform: EvalTransform, feed: Feed, members: Mapping[str, Sequence[int]]
) -> Looks:
    """Shows a network images of some domains, the last of which is the target."""
    method.lean = 0  # which no distance depends on, and a plain network cannot
    net = method.net
    plain = net.to_plain()
    last = [module for module in plain.modules() if isinstance(module, nn.Linear)][-1]
    kept: list[Any] = []
    last.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0].float().cpu().numpy()))
    net.mix = "centre"  # one pass beside that which places the images
    engine = Engine(method, transform, next(method.parameters()).device)
    parts = []
    for numbers in members.values():
        for pixels, _ in feed.gather(batches(torch.as_tensor(numbers))):
            parts.append(engine._look(pixels)[1].cpu().numpy())
            plain(transform(pixels))
    return Looks(
        {
            "points": np.concatenate(parts).astype(np.float32),
            "features": np.concatenate(kept),
            "domain": np.repeat(np.arange(len(members)), [*map(len, members.values())]),
            "names": np.array([*members]),
        }
    )


def networks(
    options: argparse.Namespace,
) -> Iterator[tuple[dict[str, Any], str, Callable[[], Looks]]]:
    """Of kept networks of BNE: what is told of each, its target, and what it sees."""
    images, split_file = open_images(options.data), official_split(options.data)
    device = torch.device(options.device)

    def seen(
        method: Any, transform: EvalTransform, held_out: Collection[int], target: str
    ) -> Looks:
        feed = Feed(prepare(images, options.cache, transform.resize), device)
        known = [domain for domain in images.domains if domain != target]
        members = {d: [n for n in images.indices_of([d]) if n in held_out] for d in known}
        members[target] = images.indices_of([target])
        return look(method.eval().to(device), transform, feed, members)

    for run in runs_of(options.runs, "bne"):
        training = read_training(run)
        method, transform, info = load_model(run)
        assert training is not None
        held_out, problem = held_out_images(training, info.domains, images, split_file)
        if problem:
            raise SystemExit(f"{run}: {problem}")
        about = {key: training.settings[key] for key in ("method", "seed")}
        about["pixels"] = transform.preprocessing.size
        (target,) = training.target
        yield about, target, partial(seen, method, transform, held_out, target)


def ours(looks: Looks, halves: Mapping[str, Rows]) -> dict[str, Test]:
    """The tests of `bne monitor`, without mixtures of domains and with them."""
    made = Reference.of({name: looks.points[own] for name, own in halves.items()}, {})
    known = known_domains({name: np.asarray(own) for name, own in made.vectors.items()})
    vectors = made.place(looks.points)

    def alone(window: Rows) -> float:
        return max(own.window_p_value(vectors[window]) for own in known.values())

    def mixed(window: Rows) -> float:
        return max(alone(window), mixture_p_value(known, vectors[window])[0])

    return {OURS: alone, MIXED: mixed}


def mmd(looks: Looks, halves: Mapping[str, Rows], permutations: int = 100) -> Test:
    """MMD with a Gaussian kernel of the median width, by permutation, as alibi-detect's."""
    draw = np.random.default_rng(0)

    def squares(a: Any, b: Any) -> Any:
        return np.maximum(0, (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T)

    def one(window: Any, known: Any) -> float:
        both = np.concatenate([known, window])
        apart = squares(both, both)
        kernel = np.exp(-apart / np.median(apart[np.triu_indices(len(both), 1)]))
        np.fill_diagonal(kernel, 0)
        n, m = len(known), len(window)

        def statistic(order: Any) -> Any:
            """Of several divisions at once, (P, n + m)."""
            first = np.zeros_like(order, dtype=np.float64)
            np.put_along_axis(first, order[:, :n], 1.0, 1)
            own = np.einsum("pi,pi->p", first @ kernel, first)
            across = first @ kernel.sum(1) - own
            other = kernel.sum() - own - 2 * across
            return own / n / (n - 1) + other / m / (m - 1) - 2 * across / n / m

        orders = np.stack([draw.permutation(n + m) for _ in range(permutations)])
        actual = statistic(np.arange(n + m)[None])[0]
        # Beyond what permutations can tell, ordered by the statistic.
        share = float(np.mean(statistic(orders) >= actual))
        return share if share else -float(actual)

    return lambda window: max(
        one(looks.features[window], looks.features[own]) for own in halves.values()
    )


def ks(looks: Looks, halves: Mapping[str, Rows]) -> Test:
    """KS of each feature, the least p-value times their number (Bonferroni)."""

    def one(window: Any, known: Any) -> float:
        # As scipy's ks_2samp(known, window, axis=0, method="asymp"), for all features at once.
        n, m = len(window), len(known)
        both = np.concatenate([window, known])
        order = np.argsort(both, axis=0)
        ordered = np.take_along_axis(both, order, 0)
        last = np.diff(ordered, axis=0, append=np.inf) > 0  # of those that are equal
        above = np.where(order < n, 1 / n, -1 / m).cumsum(0) * last
        least = stats.kstwo.sf(np.abs(above).max(), np.round(n * m / (n + m)))
        return float(least * window.shape[1])

    return lambda window: max(
        one(looks.features[window], looks.features[own]) for own in halves.values()
    )


def alibi(looks: Looks, halves: Mapping[str, Rows]) -> dict[str, Test]:
    """alibi-detect's own, with its defaults."""
    try:
        from alibi_detect.cd import KSDrift, MMDDrift
    except ImportError:
        return {}
    kept = [looks.features[own].astype(np.float32) for own in halves.values()]
    mmds = [MMDDrift(own, backend="pytorch", p_val=ALARM) for own in kept]
    kss = [KSDrift(own, p_val=ALARM) for own in kept]

    def by_mmd(window: Rows) -> float:
        own = looks.features[window].astype(np.float32)
        told = [one.predict(own)["data"] for one in mmds]
        best = max(told, key=lambda data: (data["p_val"], -data["distance"]))
        return float(best["p_val"]) if best["p_val"] else -float(best["distance"])

    def by_ks(window: Rows) -> float:
        own = looks.features[window].astype(np.float32)
        least = [one.predict(own)["data"]["p_val"].min() for one in kss]
        return float(max(least) * looks.features.shape[1])

    return {"MMD, alibi-detect": by_mmd, "KS, alibi-detect": by_ks}


def compare(
    looks: Looks, division: int, sizes: tuple[int, ...], windows: int, fewer: int
) -> list[dict[str, Any]]:
    """All lines of one division into halves."""
    draw = np.random.default_rng(division)
    halves, others = {}, {}
    for name in looks.names[:-1]:
        order = draw.permutation(looks.rows(name))
        halves[name], others[name] = np.array_split(order, 2)
    tests = {name: (test, windows) for name, test in ours(looks, halves).items()}
    tests |= {"MMD": (mmd(looks, halves), fewer), "KS": (ks(looks, halves), fewer)}
    if not division:
        few = max(1, fewer // 10)
        tests |= {name: (test, few) for name, test in alibi(looks, halves).items()}
    target = looks.rows(looks.names[-1])
    lines = []
    for size in sizes:

        def drawn(rows: Rows, count: int, size: int = size) -> list[Rows]:
            return [draw.choice(rows, size, replace=False) for _ in range(count)]

        shown = {name: drawn(rows, windows) for name, rows in others.items() if len(rows) >= size}
        if not shown:
            continue
        unseen, share = drawn(target, windows), ALARM
        mixed = []
        for pair in combinations(shown, 2):
            parts = (drawn(others[name], windows, size // 2) for name in pair)
            mixed.append([np.concatenate(both) for both in zip(*parts, strict=True)])
        for name, (test, count) in tests.items():
            begin = time.perf_counter()
            known = {d: np.array([test(w) for w in own[:count]]) for d, own in shown.items()}
            found = np.array([test(w) for w in unseen[:count]])
            seconds = (time.perf_counter() - begin) / (count * (1 + len(known)))
            two = [test(w) for own in mixed for w in own[:count]]
            every = np.concatenate([*known.values()])
            if name == OURS:
                share = max(ALARM, float((every < ALARM).mean()))
            limit = np.quantile(every, share, method="lower")
            lines.append(
                {
                    "target": looks.names[-1],
                    "division": division,
                    "test": name,
                    "size": size,
                    "windows": count,
                    "halves": {d: len(own) for d, own in others.items()},
                    "false_alarms": {d: int((own < ALARM).sum()) for d, own in known.items()},
                    "interval": {d: _interval(own) for d, own in known.items()},
                    "mixed": len(two),
                    "mixed_alarms": int(np.sum(np.array(two) < ALARM)),
                    "detected": int((found < ALARM).sum()),
                    "detected_equal": int((found < limit).sum()),
                    "seconds": seconds,
                    "version": VERSION,
                }
            )
    return lines


def _interval(p_values: Any) -> list[float]:
    """Clopper and Pearson's, of the share of false alarms, 95 %."""
    found = stats.binomtest(int((p_values < ALARM).sum()), len(p_values)).proportion_ci()
    return [round(found.low, 5), round(found.high, 5)]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, help="the folder of a benchmark's kept runs")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file to add to")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for what networks saw, read again")
    parser.add_argument("--divisions", type=int, default=5)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--fewer", type=int, default=200, help="windows for MMD and KS")
    options = parser.parse_args()
    for about, target, see in networks(options):
        name = f"{about['method']}-{about['seed']}-{target}.npz"
        kept = options.keep / name if options.keep else None
        if kept and kept.exists():
            looks = Looks(np.load(kept))
        else:
            looks = see()
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                np.savez_compressed(kept, **{k: np.asarray(v) for k, v in vars(looks).items()})
        for division in range(options.divisions):
            lines = compare(looks, division, SIZES, options.windows, options.fewer)
            with options.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({**about, **line}) + "\n" for line in lines)
        print(*about.values(), target, flush=True)


if __name__ == "__main__":
    main()
