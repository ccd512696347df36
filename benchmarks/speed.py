"""The cost of the method in time and memory, as ratios to the plain network within one run.

    PYTHONPATH=src python benchmarks/speed.py --out results/speed.jsonl
    PYTHONPATH=src python benchmarks/speed.py --only inference --device cpu --backbone small_cnn

Distance training (DT) and the mixture take every image through the network K + 1 times, K branches
and the instance pass. So they are compared with K + 1 plain passes. Images are noise and weights
random, which hardly matters to the time. docs/speed.md explains the parts, README.md the results.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from timing import (
    Case,
    Line,
    Reference,
    Settings,
    circumstances,
    make_work,
    publish,
    record,
    time_all,
)

from bne.methods import entries

MANY = 64  # domains, whose mixed statistics should cost no more than a few domains' do
GROWTH = (3, 8, 32, 64)  # domains, at the same number of images a step
AT_ONCE = 8  # branches, where there are more; all of them would make tensors of over 2³¹ values


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
    names = settings.methods or [one.name for one in entries()]
    cases = {name: replace(deepall, work=name) for name in names if name != "deepall"}
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


def names(text: str) -> list[str]:
    """Names of methods, joined by commas."""
    found, known = text.split(","), {one.name for one in entries()}
    if unknown := set(found) - known:
        raise argparse.ArgumentTypeError(f"there is no method {unknown.pop()}")
    return found


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
    add("--methods", type=names, help="of the part methods, joined by commas: all")
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
