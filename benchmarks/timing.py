"""How cases are run and timed: in milliseconds a call, and in memory at its peak.

`speed.py` and `speed_peers.py` say what is compared with what.
"""

import gc
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
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
LONG_ENOUGH = {"cuda": 0.2, "cpu": 0.02}  # seconds, that one reading of the clock should span
WARM_UP = 4  # calls before anything is recorded or timed on a GPU
METHODS = {one.name for one in entries()}

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
    methods: Sequence[str] | None = None  # whose steps are measured; all if None

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
    del own["methods"]  # the lines name them
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
