"""The cost of the method in time and memory, as ratios to the plain network within one run.

    PYTHONPATH=src python benchmarks/speed.py --out results/speed.jsonl
    PYTHONPATH=src python benchmarks/speed.py --only inference --device cpu --backbone small_cnn

Distance training (DT) and the mixture take every image through the network K + 1 times, K branches
and the instance pass. So they are compared with K + 1 plain passes. Images are noise and weights
random, which hardly matters to the time. docs/speed.md explains the parts, README.md the results.
"""

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from speed_tables import Record, markdown
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import bne
from bne.methods import create, entries
from bne.models import build
from bne.training.environment import describe

CLASSES = 7
MANY = 64  # domains, whose mixed statistics should cost no more than a few domains' do
GROWTH = (3, 8, 32, 64)  # domains, at the same number of images a step
AT_ONCE = 8  # branches, where there are more; all of them would make tensors of over 2³¹ values
LONG_ENOUGH = {"cuda": 0.2, "cpu": 0.02}  # seconds, that one reading of the clock should span
WARM_UP = 4  # calls before anything is recorded or timed on a GPU

Work = Callable[[], object]


@dataclass(frozen=True)
class Settings:
    """What all cases share."""

    backbone: str
    device: torch.device
    precision: str  # "bf16" or "float32", of convolutions and matrix products
    domains: int  # K
    per_domain: int  # images of each domain in a training step
    batch: int  # images in inference
    size: int  # height and width of images
    repeat: int  # readings of the clock; the median counts

    @property
    def on_gpu(self) -> bool:
        """Whether there are CUDA graphs and the goals for a GPU."""
        return self.device.type == "cuda"

    @property
    def images(self) -> int:
        """Images in a training step."""
        return self.domains * self.per_domain

    def goal(self, on_gpu: float, on_cpu: float | None = None) -> float | None:
        """The most that a ratio should be on this device, if there is a goal."""
        return on_gpu if self.on_gpu else on_cpu

    def autocast(self) -> AbstractContextManager[object]:
        """The precision; weights are cast at each pass, so that gradients add up in float32."""
        low = self.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low, cache_enabled=False)


@dataclass(frozen=True)
class Case:
    """Something to time."""

    work: str  # "training", "warm-up", "points", "inference"; "distance" is between the passes;
    # a method's name is a step of that method
    images: int  # at once
    graph: bool  # whether it runs as a CUDA graph, otherwise call by call
    domains: int = 0  # K; 0 is the plain network
    options: tuple[tuple[str, object], ...] = ()  # of `bne.convert`, or of the method
    compiled: bool = False  # whether the network goes through `torch.compile`, in inference only

    @property
    def plain(self) -> "Case":
        """The plain network doing the same with as many images."""
        same = self.work in ("inference", "distance")
        return replace(self, work=self.work if same else "training", domains=0, options=())


class Reference(NamedTuple):
    """What a line is compared with: passes of its images, each at the best of some cases."""

    words: str
    passes: tuple[tuple[int, tuple[Case, ...]], ...]  # summed


class Line(NamedTuple):
    """A figure: a case and what it is compared with."""

    what: str  # figures of different runs are compared by this name
    case: Case
    against: Reference | None = None
    goal: float | None = None  # the most that the ratio should be
    unit: str = "ms"  # a call, or "MiB" at its peak


def times(number: int, case: Case) -> Reference:
    """Some times what a plain case takes."""
    return Reference("plain" if number == 1 else f"{number} times plain", ((number, (case,)),))


def train(settings: Settings) -> list[Line]:
    """Steps of the plain network, of distance training, and of the warm-up."""
    gpu, count, domains = settings.on_gpu, settings.images, settings.domains
    # On a GPU the plain network's best time for one image takes many images.
    steps = tuple(Case("training", count * more, gpu) for more in ((1, 4, 16) if gpu else (1, 4)))
    looks = tuple(inference_cases(settings, graph=gpu))
    ours, calls = replace(steps[0], domains=domains), replace(steps[0], graph=False)
    detached = replace(ours, options=(("weight_gradient", False),))
    bound = Reference(f"{domains + 1} plain passes, at best", ((domains + 1, steps),))
    # Where the weights are detached, one of the passes has no backward pass.
    partly = Reference(f"{domains} of them, 1 of inference", ((domains, steps), (1, looks)))
    goal = settings.goal(1.15)
    lines = [
        *(Line("plain step", case) for case in steps),
        *(Line("plain inference", case) for case in looks),
        Line("DT step", ours, bound, goal),
        Line("DT step", replace(ours, images=4 * count), bound, goal),
        Line("DT step, weights detached", detached, partly, goal),
        Line("warm-up step", replace(ours, work="warm-up"), times(1, steps[0]), goal),
    ]
    if gpu:
        lines.append(Line("plain step", calls))
        lines.append(Line("DT step", replace(ours, graph=False), times(domains + 1, calls)))
    return lines


def inference_cases(settings: Settings, graph: bool, compiled: bool = False) -> Iterator[Case]:
    """The plain network's inference, whose best time for one image is the bound of a pass."""
    for more in (1, 4) if settings.on_gpu else (1,):
        yield Case("inference", settings.batch * more, graph, compiled=compiled)


def inference(settings: Settings) -> list[Line]:
    """Mixtures of many images, by every way to run them, then of one image at a time."""
    gpu, lines = settings.on_gpu, []
    for compiled in (False, True) if gpu and find_spec("triton") else (False,):
        lines += many_images(settings, compiled)
    one, goal = Case("inference", 1, graph=False), settings.goal(1.3)
    cases = [(one, goal)]
    if gpu:
        many = replace(one, images=settings.batch)
        cases = [(many, None), (one, goal), (replace(one, graph=True), goal)]
    for plain, goal in cases:
        ours = replace(plain, domains=settings.domains)
        lines.append(Line("plain network", plain))
        lines.append(Line("mixture", ours, times(settings.domains + 1, plain), goal))
    return lines


def many_images(settings: Settings, compiled: bool) -> list[Line]:
    """All kinds of mixtures, compared with the plain network run the same way."""
    domains = settings.domains
    looks = tuple(inference_cases(settings, settings.on_gpu, compiled))

    def bound(passes: int) -> Reference:
        return Reference(f"{passes} plain passes, at best", ((passes, looks),))

    ours = replace(looks[0], domains=domains)
    nearest = replace(ours, options=(("nearest", 1),))
    statistics = replace(ours, options=(("mix", "statistics"),))
    many = replace(statistics, domains=MANY)
    return [
        *(Line("plain network", look) for look in looks),
        Line("mixture", ours, bound(domains + 1), settings.goal(1.1, on_cpu=1.15)),
        Line("mixture, nearest=1", nearest, bound(2), settings.goal(1.15)),
        Line("mixed statistics", statistics, times(1, looks[0]), settings.goal(2.2)),
        Line("mixed statistics", many, times(1, looks[0]), settings.goal(2.2)),
    ]


def memory(settings: Settings) -> list[Line]:
    """Peak memory of a step, all branches at once and one at a time; the time of the latter."""
    plain = Case("training", settings.images, settings.on_gpu)
    ours = replace(plain, domains=settings.domains)
    single = replace(ours, options=(("max_branches", 1),))
    name, step = "DT step, max_branches=1", Reference("the DT step", ((1, (ours,)),))
    bound = times(settings.domains + 1, plain)
    return [
        Line("plain step", plain, unit="MiB"),
        Line("DT step", ours, bound, settings.goal(1.1), "MiB"),
        Line(name, single, times(1, plain), settings.goal(2.2), "MiB"),
        Line(name, single, step),
    ]


def growth(settings: Settings) -> list[Line]:
    """More domains at the same number of images a step: the nearest four branches, then all."""
    plain = Case("training", 4 * settings.images, settings.on_gpu)
    near = {k: replace(plain, domains=k, options=(("nearest", 4),)) for k in GROWTH}
    eight, name = Reference("K = 8", ((1, (near[8],)),)), "DT step, nearest=4"
    lines = [Line("plain step", plain), Line(name, near[3])]
    lines += [Line(name, near[k], eight, settings.goal(1.3)) for k in GROWTH if k >= 8]
    for k in GROWTH:
        name, case = "DT step, all branches", replace(plain, domains=k)
        if k > AT_ONCE:
            name += f", {AT_ONCE} at once"
            case = replace(case, options=(("max_branches", AT_ONCE),))
        if k <= AT_ONCE or settings.on_gpu:  # a CPU would take minutes
            lines.append(Line(name, case, Reference(f"{k + 1} plain passes", ((k + 1, (plain,)),))))
    step = Reference("the step, nearest=4", ((1, (near[MANY],)),))
    alone = replace(near[MANY], work="distance")
    return [*lines, Line("embedding and distance alone", alone, step, settings.goal(0.03))]


def leaning(settings: Settings) -> list[Line]:
    """Images that lean on their own statistics: one branch, one pass at the centre, and points."""
    gpu, count = settings.on_gpu, settings.images
    lines = []
    for compiled in (False, True) if gpu and find_spec("triton") else (False,):
        plain = Case("inference", settings.batch, gpu, compiled=compiled)
        branch = replace(plain, domains=1)
        centre = replace(plain, domains=settings.domains, options=(("mix", "centre"),))
        alone = Reference("the same without", ((1, (branch,)),))
        lines += [
            Line("plain network", plain),
            Line("branch", branch, times(1, plain)),
            Line("branch, leaning", _leaning(branch), alone, settings.goal(1.15)),
            Line("centre", centre, times(1, plain), settings.goal(1.2)),
            Line("centre, leaning", _leaning(centre), times(1, plain), settings.goal(1.2)),
        ]
    steps = tuple(Case("training", count * more, gpu) for more in ((1, 2, 4, 16) if gpu else (1,)))
    twice = Reference("2 plain passes, at best", ((2, steps),))
    lines += [Line("plain step", step) for step in steps]
    for domains in (2, settings.domains):
        distance = replace(steps[0], domains=domains)
        step = Reference("the DT step", ((1, (distance,)),))
        points = replace(distance, work="points")
        lines += [
            Line("DT step", distance),
            Line("points step", points, twice, settings.goal(1.1)),
            Line("points step", points, step, settings.goal(1.0)),
        ]
    return lines


def modes(settings: Settings) -> list[Line]:
    """Every way to predict, without leaning and leaning, against the plain network."""
    plain = Case("inference", settings.batch, settings.on_gpu)
    lines = [Line("plain network", plain)]
    for name, options in MODES.items():
        case = replace(plain, domains=settings.domains, options=options)
        lines += [
            Line(name, case, times(1, plain)),
            Line(f"{name}, leaning", _leaning(case), times(1, plain)),
        ]
    return lines


MODES: dict[str, tuple[tuple[str, object], ...]] = {
    "mixture": (),
    "mixture, nearest=2": (("nearest", 2),),
    "mixture, nearest=1": (("nearest", 1),),
    "mixture, layers=5": (("layers", 5),),
    "mixed statistics": (("mix", "statistics"),),
    "centre": (("mix", "centre"),),
}


def methods(settings: Settings) -> list[Line]:
    """A step of every method, after its warm-up, and its peak memory, against DeepAll's."""
    deepall = Case("deepall", settings.images, settings.on_gpu, settings.domains)
    base = Reference("DeepAll", ((1, (deepall,)),))
    cases = {
        one.name: replace(deepall, work=one.name) for one in entries() if one.name != "deepall"
    }
    return [
        line
        for name, case in {"deepall": deepall, **cases}.items()
        for line in (Line(name, case, base), Line(name, case, base, unit="MiB"))
    ]


def _leaning(case: Case) -> Case:
    return replace(case, options=(*case.options, ("lean", 0.1)))


PARTS = {
    "train": train,
    "inference": inference,
    "memory": memory,
    "growth": growth,
    "leaning": leaning,
    "modes": modes,
    "methods": methods,
}
METHODS = {one.name for one in entries()}


def make_work(case: Case, settings: Settings) -> Work:
    """The function that the clock calls again and again."""
    with torch.random.fork_rng([settings.device] if settings.on_gpu else []):
        torch.manual_seed(0)
        network = make_network(case, settings)
        images, labels = make_batch(case.images, settings)
    if case.work in METHODS:
        return method_step(network, images, labels, case, settings)
    if case.work == "distance":
        return distance_work(network.eval(), images, settings)
    if case.work == "points":
        labels = labels.repeat(2)
    if case.work != "inference":
        return training_step(network.train(), forward(network, images, case), labels, settings)
    network.eval()
    if case.compiled:
        torch.compiler.reset()  # it would take another case's number of images for variable
        network = torch.compile(network)

    def infer() -> Tensor:
        with torch.inference_mode(), settings.autocast():
            return network(images)

    return infer


def forward(network: nn.Module, images: Tensor, case: Case) -> Callable[[], Tensor]:
    """The forward pass of a training step."""
    if not case.domains:
        return partial(network, images)
    domains = torch.arange(len(images), device=images.device) * case.domains // len(images)
    if case.work == "points":
        return partial(network, images, domains, max_lean=0.5)
    return partial(network, images, domains, own_branch=case.work == "warm-up")


def make_network(case: Case, settings: Settings) -> nn.Module:
    """The plain network, or a converted one whose domains differ, on the device."""
    network = build(settings.backbone, CLASSES)
    if case.domains and case.work not in METHODS:
        options: dict[str, Any] = dict(case.options)
        if "layers" in options:  # of which a small network may have fewer
            known = sum(isinstance(one, nn.BatchNorm2d) for one in network.modules())
            options["layers"] = min(options["layers"], known)
        network = bne.convert(network, map(str, range(case.domains)), **options)
        for layer in network.modules():
            if isinstance(layer, bne.DomainBatchNorm) and layer.running_mean is not None:
                layer.running_mean.add_(torch.randn_like(layer.running_mean), alpha=0.1)
                layer.running_var.mul_(torch.rand_like(layer.running_var) + 0.5)
    return network.to(settings.device, memory_format=torch.channels_last)


def make_batch(count: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """Noise, (count, 3, size, size), as a feed lays it out, and labels, (count,): all in turn."""
    images = torch.randn(count, 3, settings.size, settings.size, device=settings.device)
    labels = torch.arange(count, device=settings.device) % CLASSES
    return images.contiguous(memory_format=torch.channels_last), labels


def training_step(
    network: nn.Module, logits: Callable[[], Tensor], labels: Tensor, settings: Settings
) -> Work:
    """Forward, backward and update, by the same optimiser for all."""
    return update(network, lambda: F.cross_entropy(logits(), labels), settings)


def method_step(
    network: nn.Module, images: Tensor, labels: Tensor, case: Case, settings: Settings
) -> Work:
    """The same of a method, once its warm-up is over; unlabeled images are of one more domain."""
    method = create(case.work, network, [str(one) for one in range(case.domains)])
    method.to(settings.device, memory_format=torch.channels_last).train()
    method.begin_epoch(1, warm_up=1)
    domains = torch.arange(len(images), device=images.device) * case.domains // len(images)
    if method.uses_target:
        labels = labels.masked_fill(domains == case.domains - 1, -100)
    return update(method, lambda: method(images, labels, domains), settings)


def update(network: nn.Module, loss: Callable[[], Tensor], settings: Settings) -> Work:
    """A step down a loss."""
    optimiser = torch.optim.SGD(network.parameters(), 1e-4, momentum=0.9, fused=settings.on_gpu)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with settings.autocast():
            value = loss()
        value.backward()
        optimiser.step()

    return step


def distance_work(network: Any, images: Tensor, settings: Settings) -> Work:
    """What a DT step does between its passes: stack statistics, choose domains, weigh them."""
    with torch.no_grad(), settings.autocast():
        points = network.embed(images)
    means, variances = (
        [part.clone().requires_grad_() for part in whole.split(points.channels, dim=1)]
        for whole in (points.mean, points.var)
    )

    def weigh() -> tuple[Tensor, ...]:
        with settings.autocast():
            stacked = replace(points, mean=torch.cat(means, 1), var=torch.cat(variances, 1))
            with torch.no_grad():
                far = network.distance(stacked, network.domain_embeddings())
                chosen = far.topk(network.nearest, largest=False).indices
            distances = network.distance(stacked, network.domain_embeddings())
            weights = bne.core.distances.inverse_weights(distances.gather(1, chosen))
        return torch.autograd.grad(weights, [*means, *variances], torch.ones_like(weights))

    return weigh


class Timing(NamedTuple):
    """The time of a case, in milliseconds a call, and its peak memory in MiB, if counted."""

    readings: list[float]
    peak: float | None = None


def time_all(works: Mapping[Case, Callable[[], Work]], settings: Settings) -> dict[Case, Timing]:
    """Times every case; one that does not fit into the memory is left out.

    On a GPU one case after another, so that each has all the memory. On the CPU in turns, once in
    each repeat, so that whatever else the machine does hits all alike.
    """
    torch.backends.cudnn.benchmark = True  # cuDNN chooses its algorithms by trying them
    timings, made = {}, {}
    for number, (case, make) in enumerate(works.items(), 1):
        print(f"{number} of {len(works)}: {case}", file=sys.stderr, flush=True)
        if settings.on_gpu:
            with suppress(torch.OutOfMemoryError):
                timings[case] = time_on_gpu(make(), case.graph, settings.repeat)
            gc.collect()
            torch.cuda.empty_cache()
        else:
            made[case], peak = counted(make)
            timings[case] = Timing([], peak)
    for _ in range(settings.repeat):
        for case, work in made.items():
            timings[case].readings.append(reading(work, "cpu"))
    return timings


def counted(make: Callable[[], Work]) -> tuple[Work, float]:
    """What is made, called twice, and the most memory of the CPU that all of it took, in MiB."""
    works = []

    def make_and_call() -> None:
        works.append(make())
        for _ in range(2):  # gradients and what the optimizer remembers are there in the second
            works[0]()

    peak = peak_bytes(make_and_call)
    return works[0], peak / 2**20


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory of the CPU that a call takes, beside what is there before it."""
    gc.collect()  # what it would free meanwhile is none of the call's
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        call()
    assert found.profiler is not None
    events = [e for e in found.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def time_on_gpu(work: Work, as_graph: bool, repeat: int) -> Timing:
    """The readings of a call, or of its CUDA graph; the peak memory is always that of a call."""
    peak = warm_up(work)
    if not as_graph:
        return Timing([reading(work, "cuda") for _ in range(repeat)], peak)
    graph = recorded(work)
    return Timing([reading(graph.replay, "cuda") for _ in range(repeat)], peak)


def warm_up(work: Work) -> float:
    """Calls it on a stream of its own, as recording demands; returns the last call's peak, MiB."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 2**20


def recorded(work: Work) -> torch.cuda.CUDAGraph:
    """A call, warmed up, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def reading(work: Work, device: str) -> float:
    """Milliseconds a call, over as many calls as make a reading long enough."""
    calls = math.ceil(LONG_ENOUGH[device] / seconds(work, device))
    return seconds(work, device, calls) / calls * 1e3


def seconds(work: Work, device: str, calls: int = 1) -> float:
    """The time of some calls, with all that they asked of the device."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return time.perf_counter() - start


def circumstances(settings: Settings) -> Record:
    """What all records of a run share; `when` tells the run from others in a file."""
    own = asdict(settings)
    own["source_domains"] = own.pop("domains")  # a line's `domains` are its network's
    machine = describe(own.pop("device"), None)
    del machine["weights"]
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"when": when, **own, "threads": torch.get_num_threads(), **machine}


def record(part: str, line: Line, timings: Mapping[Case, Timing], shared: Record) -> Record:
    """A line with its figures, once all cases of its part are timed."""
    case, in_ms, timing = line.case, line.unit == "ms", timings.get(line.case)
    value, plain = (amount(one, timings, line.unit) for one in (case, case.plain))
    values = timing.readings if timing and in_ms else [value]
    plain, other = plain if case.domains else None, reference(line, timings)
    ratio = value / other if value and other else None
    return {
        "part": part,
        "what": line.what,
        "domains": case.domains,
        "images": case.images,
        "graph": case.graph and in_ms,
        "unit": line.unit,
        "value": value,
        "low": value and min(values),
        "high": value and max(values),
        "plain": plain,
        "reference": other,
        "reference_is": line.against.words if line.against else "",
        "goal": line.goal,
        "note": "" if value else "does not fit",
        "compiled": case.compiled,
        "images_per_s": case.images / value * 1e3 if value and in_ms else None,
        "to_plain": value / plain if value and plain else None,
        "ratio": ratio,
        "met": ratio <= line.goal if ratio and line.goal else None,
        **shared,
    }


def amount(case: Case, timings: Mapping[Case, Timing], unit: str) -> float | None:
    """The median time or the peak memory of a case, if known."""
    timing = timings.get(case)
    return timing and (median(timing.readings) if unit == "ms" else timing.peak)


def reference(line: Line, timings: Mapping[Case, Timing]) -> float | None:
    """What the line's value is compared with, if anything that was timed."""
    total = 0.0
    for passes, cases in line.against.passes if line.against else ():
        found = [(case.images, amount(case, timings, line.unit)) for case in cases]
        if not any(value for _, value in found):
            return None
        total += passes * min(value / images for images, value in found if value)
    return total * line.case.images or None


def publish(records: Sequence[Record], out: Path | None) -> None:
    """Prints the tables of records, and adds these to a file of lines of JSON."""
    print(markdown(records), flush=True)
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in records)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, here = parser.add_argument, "cuda" if torch.cuda.is_available() else "cpu"
    add("--only", default=",".join(PARTS), help="parts, joined by commas")
    add("--backbone", default="resnet18", help="as in a recipe: small_cnn, timm/…")
    add("--device", default=here, type=torch.device)
    add("--precision", default="bf16", choices=["bf16", "float32"], help="on a GPU")
    add("--domains", default=3, type=int, help="K, the number of source domains")
    add("--per-domain", type=int, help="images of a domain in a step: 16, on a CPU 2")
    add("--batch", type=int, help="images in inference: 256, on a CPU 16")
    add("--size", default=224, type=int, help="height and width of the images")
    add("--repeat", default=5, type=int, help="readings; the median counts")
    add("--out", type=Path, help="a .jsonl file, to which records are added")
    options = vars(parser.parse_args(arguments))
    parts = options.pop("only").split(",")
    out = options.pop("out")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only {unknown.pop()}: there is no such part; choose of {', '.join(PARTS)}")
    on_gpu = options["device"].type == "cuda"
    options["precision"] = options["precision"] if on_gpu else "float32"  # bf16 saves nothing there
    options["per_domain"] = options["per_domain"] or (16 if on_gpu else 2)
    options["batch"] = options["batch"] or (256 if on_gpu else 16)
    settings = Settings(**options)
    shared = circumstances(settings)
    for part in parts:
        lines = PARTS[part](settings)
        works = {line.case: partial(make_work, line.case, settings) for line in lines}
        timings = time_all(works, settings)
        publish([record(part, line, timings, shared) for line in lines], out)


if __name__ == "__main__":
    main()
