"""What hundreds of domains cost, and what they gain: digits under up to 1,000 random styles.

    PYTHONPATH=src python benchmarks/domains.py cost        time and memory, relative to 8 domains
    PYTHONPATH=src python benchmarks/domains.py accuracy    on styles that were never seen
    PYTHONPATH=src python benchmarks/domains.py figure      docs/figures/many-domains.svg

A style has colors, contrast, grain and smudges of its own, drawn from the style's number. Every
step has images of 8 styles, whatever their number K. BNE mixes probabilities: styles differ so
much that after a short warm-up mixed logits make training collapse. The first two commands write
records into `results/many-domains.jsonl`; the third draws them.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import torch.nn.functional as F
from timing import peak_bytes
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bne
from bne.data.batches import seed_of
from bne.demo.digits import SIZE, Draws, handwriting, strokes
from bne.models import build

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "many-domains.jsonl"
FIGURE = ROOT / "docs" / "figures" / "many-domains.svg"

DOMAINS = (8, 32, 128, 1000)
PER_STEP = 8  # domains of a step, images of each, and branches of an image where cost is measured
NEAREST = 4  # branches of an image where accuracy is measured, to save time
IMAGES = 8000  # for training, whatever the number of domains
UNSEEN = 200  # styles
TEST_DIGITS = 500
CROP = 32
SMALL = ("small_cnn", 64, CROP)  # network, images at a time and their size where use is measured
LARGE = ("resnet18", 8, 224)
SHRINKAGES = (0, 8)
METHODS = ("DeepAll", "BNE (a)", "BNE", "Points", "Points without domains")
LEANING = 0.2  # of points, the most that is chosen without being asked for


def render(digits: Tensor, style: int, apart: float, seed: int = 0) -> Tensor:
    """Draws (N, 8, 8) in a style, each digit with a tilt of its own, as (N, 3, 32, 32).

    Styles are so far `apart`: at 0 all are light digits on dark ground, at 1 whatever was drawn.
    """
    own = torch.Generator().manual_seed(seed_of("style", style))
    look = Draws(own, 1)
    ground, pen = look.between(0, 1, channels=3), look.between(0, 1, channels=3)
    while (ground - pen).abs().mean() < 0.3:  # too faint to be read
        pen = look.between(0, 1, channels=3)
    outline, strength, grain, smudge = (
        float(look.between(*bounds)) for bounds in ((0, 1), (0.6, 1), (0, 0.15), (0, 0.3))
    )
    ground, pen = (
        torch.lerp(torch.tensor(c), own, apart) for c, own in ((0.2, ground), (0.8, pen))
    )
    outline, strength, grain, smudge = (
        common + apart * (own - common)
        for common, own in ((0.0, outline), (0.8, strength), (0.075, grain), (0.15, smudge))
    )
    draws = Draws(torch.Generator().manual_seed(seed_of("digits", style, seed)), len(digits))
    stroke = strokes(digits, draws)
    stroke = torch.lerp(stroke, 4 * stroke * (1 - stroke), outline)
    images = torch.lerp(ground + draws.patches(-smudge, smudge, cells=5), pen, stroke * strength)
    images = images + draws.between(-grain, grain, channels=3, size=SIZE)
    edge = (SIZE - CROP) // 2
    return (images[..., edge : edge + CROP, edge : edge + CROP].clamp(0, 1) - 0.5) / 0.25


def training_images(domains: int, seed: int, apart: float) -> TensorDataset:
    """Images, labels and domains: as many of every style, of digits that are never tested on."""
    digits, labels = handwriting()
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[TEST_DIGITS:]
    each = IMAGES // domains
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        chosen[torch.randint(len(chosen), (each,), generator=generator)] for _ in range(domains)
    ]
    images = torch.cat([render(digits[own], style, apart, seed) for style, own in enumerate(drawn)])
    ids = torch.arange(domains).repeat_interleave(each)
    return TensorDataset(images, labels[torch.cat(drawn)], ids)


def unseen_images(apart: float) -> tuple[Tensor, Tensor]:
    """The digits to test on, each twice, in styles that no training has."""
    digits, labels = handwriting()
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:TEST_DIGITS]
    chosen = chosen.repeat(2)
    parts = chosen.tensor_split(UNSEEN)
    images = [render(digits[part], max(DOMAINS) + style, apart) for style, part in enumerate(parts)]
    return torch.cat(images), labels[chosen]


def converted(domains: int, backbone: str = SMALL[0], **options: Any) -> bne.DomainEnsemble:
    """A network with the same weights for any number of domains."""
    torch.manual_seed(0)
    names = [f"style {number}" for number in range(domains)]
    network = build(backbone, num_classes=10)
    return bne.convert(network, names, domains_per_step=PER_STEP, nearest=PER_STEP, **options)


def step_of(domains: int) -> tuple[nn.Module, Callable[[], object]]:
    """A step of distance training on images of 8 of the domains."""
    net = converted(domains).train()
    ids = torch.arange(0, domains, domains // PER_STEP)[:PER_STEP].repeat_interleave(PER_STEP)
    images, labels = torch.randn(len(ids), 3, CROP, CROP), torch.randint(10, ids.shape)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images, ids), labels).backward()
        optimizer.step()

    return net, step


def use_of(
    domains: int, mix: bne.core.options.Mix, setting: tuple[str, int, int]
) -> tuple[nn.Module, Callable[[], object]]:
    """Answers for some images by the 8 nearest branches, or in one pass between all."""
    backbone, count, size = setting
    net = converted(domains, backbone, mix=mix).eval()
    images = torch.randn(count, 3, size, size)
    for layer in bne.core.norm.domain_layers(net):
        layer.running_mean.normal_(0, 0.1)
    return net, torch.no_grad()(lambda: net(images))


def plain_of(domains: int) -> tuple[nn.Module, Callable[[], object]]:
    """Answers by the plain network of the centre, which keeps no domain's statistics."""
    plain, images = converted(domains).eval().to_plain(), torch.randn(SMALL[1], 3, CROP, CROP)
    return plain, torch.no_grad()(lambda: plain(images))


CASES: dict[str, Callable[[int], tuple[nn.Module, Callable[[], object]]]] = {
    "training step": step_of,
    "image, nearest branches": lambda domains: use_of(domains, "logits", SMALL),
    "image, mixed statistics": lambda domains: use_of(domains, "statistics", SMALL),
    "image, centre": lambda domains: use_of(domains, "centre", SMALL),
    "image, centre, plain network": plain_of,
    "image, mixed statistics, ResNet-18": lambda domains: use_of(domains, "statistics", LARGE),
}


def working_bytes(call: Callable[[], object]) -> int:
    """The most memory that a call takes at a time; the network's own tensors do not count."""
    call()
    return peak_bytes(call)


def own_bytes(net: nn.Module) -> int:
    """What a network's tensors take, every domain's statistics among them."""
    return sum(tensor.nbytes for tensor in [*net.parameters(), *net.buffers()])


def cost(repeats: int, cases: Sequence[str]) -> list[dict[str, Any]]:
    """Time and memory of each case at every number of domains, which take turns.

    The time is the CPU's, of one thread: other programs do not count.
    """
    records = []
    for name in cases:
        make = CASES[name]
        made = {domains: make(domains) for domains in DOMAINS}
        times: dict[int, list[float]] = {domains: [] for domains in DOMAINS}
        for turn in range(repeats + 2):
            for domains, (_, call) in made.items():
                start = time.process_time()
                for _ in range(3):
                    call()
                if turn > 1:
                    times[domains].append((time.process_time() - start) / 3)
        peaks = {domains: working_bytes(call) for domains, (_, call) in made.items()}
        for domains in DOMAINS:
            ratios = [
                own / base for own, base in zip(times[domains], times[DOMAINS[0]], strict=True)
            ]
            records.append(
                {
                    "kind": "cost",
                    "case": name,
                    "domains": domains,
                    "ms": 1000 * median(times[domains]),
                    "time_ratio": median(ratios),
                    "working_mib": peaks[domains] / 2**20,
                    "working_ratio": peaks[domains] / peaks[DOMAINS[0]],
                    "network_mib": own_bytes(made[domains][0]) / 2**20,
                }
            )
            print(json.dumps(records[-1]))
    return records


def trained(
    data: TensorDataset, domains: int, method: str, steps: int, seed: int
) -> bne.DomainEnsemble:
    """A network after so many steps, a third of them warm-up, with measured statistics."""
    sampler = bne.DomainBatchSampler(
        data.tensors[2], PER_STEP, seed=seed, epoch=steps, domains_per_step=PER_STEP
    )
    torch.manual_seed(seed)
    network = build("small_cnn", num_classes=10)
    if method in ("DeepAll", "Points without domains"):
        net = bne.convert(network)
    else:
        names = [f"style {number}" for number in range(domains)]
        options: dict[str, Any] = {"mix": "probabilities", "nearest": NEAREST}
        net = bne.convert(network, names, domains_per_step=PER_STEP, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    net.train()
    for step, (images, labels, ids) in enumerate(DataLoader(data, batch_sampler=sampler)):
        own = ids % len(net.domains)
        warming = method in ("DeepAll", "BNE (a)") or step < steps / 3
        if method.startswith("Points") and not warming:
            loss = F.cross_entropy(net(images, own, max_lean=0.5), labels.repeat(2))
        else:
            loss = F.cross_entropy(net(images, own, own_branch=warming), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return net


def accuracy(
    steps: int, seeds: Sequence[int], counts: Sequence[int], methods: Sequence[str], apart: float
) -> list[dict[str, Any]]:
    """Percent of unseen images that are right, as the number of styles in training grows."""
    records = []
    images, labels = unseen_images(apart)

    @torch.no_grad()
    def score(net: nn.Module) -> float:
        answers = torch.cat([net(part).argmax(1) for part in images.split(250)])
        return 100 * float((answers == labels).double().mean())

    for seed, domains, method in product(seeds, counts, methods):
        data = training_images(domains, seed, apart)
        known = {"domains": domains, "seed": seed, "steps": steps, "apart": apart}

        def note(case: str, net: nn.Module, known: dict[str, float] = known) -> None:
            records.append({"kind": "accuracy", "case": case, **known, "accuracy": score(net)})
            print(json.dumps(records[-1]), flush=True)

        net = trained(data, domains, method, steps, seed).eval()
        sampler = bne.DomainBatchSampler(
            data.tensors[2], PER_STEP, seed=seed, domains_per_step=PER_STEP
        )
        if len(net.domains) == 1:
            everyone = TensorDataset(data.tensors[0], torch.zeros_like(data.tensors[2]))
            bne.recompute_statistics(net, DataLoader(everyone, 64, shuffle=True))
            note(method, net)
        for shrinkage in SHRINKAGES if method.startswith("BNE") else ():
            loader = DataLoader(data, batch_sampler=sampler)
            bne.recompute_statistics(net, loader, shrinkage=shrinkage)
            for net.mix in ("probabilities", "statistics", "centre"):
                note(f"{method}, {net.mix}, shrinkage {shrinkage}", net)
        if method == "Points":
            bne.recompute_statistics(net, DataLoader(data, batch_sampler=sampler))
            net.mix = "centre"
            note(method, net)
        if method.startswith("Points"):
            net.lean = LEANING
            note(f"{method}, leaning", net)
    return records


def figure(records: list[dict[str, Any]]) -> None:
    """Draws time and memory, and accuracy, over the number of domains."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"svg.hashsalt": "bne", "svg.fonttype": "none"})
    _, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for case in CASES:
        own = [r for r in records if r["kind"] == "cost" and r["case"] == case]
        left.plot([r["domains"] for r in own], [r["time_ratio"] for r in own], "o-", label=case)
    left.axhline(1.3, color="gray", linewidth=0.8, linestyle=":")
    left.set(xscale="log", xlabel="domains, K", ylabel="time, relative to K = 8", ylim=(0, None))
    for case, label in {
        "DeepAll": "DeepAll",
        "BNE (a), probabilities, shrinkage 0": "BNE (a), 4 nearest branches",
        "BNE, probabilities, shrinkage 0": "BNE, 4 nearest branches",
        "BNE (a), statistics, shrinkage 0": "BNE (a), mixed statistics",
    }.items():
        by_count: dict[int, list[float]] = {}
        for record in records:
            kind = record["kind"], record["case"], record.get("apart", 1)
            if kind == ("accuracy", case, 1):
                by_count.setdefault(record["domains"], []).append(record["accuracy"])
        if by_count:
            counts = sorted(by_count)
            right.plot(counts, [fmean(by_count[count]) for count in counts], "o-", label=label)
    right.set(xscale="log", xlabel="domains, K", ylabel="unseen styles, % right")
    for axes in (left, right):
        axes.set_xticks(DOMAINS, [str(k) for k in DOMAINS])
        axes.minorticks_off()
        axes.legend(fontsize=7)
    FIGURE.parent.mkdir(exist_ok=True)
    plt.savefig(FIGURE, metadata={"Date": None})


def _place(record: dict[str, Any]) -> tuple[Any, ...]:
    known = {"apart": 1.0, **record}
    return tuple(known.get(key) for key in ("kind", "case", "domains", "seed", "steps", "apart"))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["cost", "accuracy", "figure"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--domains", type=int, nargs="+", default=DOMAINS)
    parser.add_argument("--apart", type=float, default=1.0, help="how far styles are, 0 to 1")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = (
        [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []
    )
    if given.what == "figure":
        figure(known)
        return
    if given.what == "cost":
        new = cost(given.repeats, given.cases)
    else:
        new = accuracy(given.steps, given.seeds, given.domains, given.methods, given.apart)
    machine = {"torch": torch.__version__, "machine": platform.machine(), "threads": 1}
    again = {_place(record) for record in new}
    kept = [record for record in known if _place(record) not in again]
    lines = [json.dumps(record) for record in [*kept, *({**r, **machine} for r in new)]]
    RECORDS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
