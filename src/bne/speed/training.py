"""Training steps against the plain network's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.speed.measurement import Entry, Timings, best, middle
from bne.speed.settings import Case

if TYPE_CHECKING:
    from bne.speed.settings import Settings


def entries(settings: Settings) -> list[Entry]:
    """The plain step, distance training (DT), and the warm-up.

    A DT step takes every image through the network K + 1 times (K branches and the instance pass),
    but for the first convolution. So it is compared with K + 1 times the plain network's best time
    for one image, which many images at once find on a GPU. Where the weights are detached, one of
    these passes has no backward pass.
    """
    graph, count, domains = settings.on_gpu, settings.images, settings.domains
    steps = [Case("training", count * more, graph) for more in plain_multiples(settings)]
    looks = [
        Case("inference", settings.batch * more, graph) for more in inference_multiples(settings)
    ]
    detached = (("weight_gradient", False),)

    def passes(images: int) -> Entry:
        return Entry(
            "DT step",
            Case("training", images, graph, domains),
            reference=lambda t: images * (domains + 1) * best(t, steps),
            reference_is=f"{domains + 1} plain passes, at best",
            goal=settings.gpu_goal(1.15),
        )

    def detached_passes(t: Timings) -> float:
        return count * (domains * best(t, steps) + best(t, looks))

    found = [Entry("plain step", case) for case in steps]
    found += [Entry("plain inference", case) for case in looks]
    found += [
        passes(count),
        passes(4 * count),
        Entry(
            "DT step, weights detached",
            Case("training", count, graph, domains, detached),
            reference=detached_passes,
            reference_is=f"{domains} of them, 1 of inference",
            goal=settings.gpu_goal(1.15),
        ),
        Entry(
            "warm-up step",
            Case("warm-up", count, graph, domains),
            reference=lambda t: middle(t, steps[0]),
            reference_is="plain",
            goal=settings.gpu_goal(1.15),
        ),
    ]
    if graph:
        found += [
            Entry("plain step", Case("training", count, graph=False)),
            Entry("DT step", Case("training", count, graph=False, domains=domains)),
        ]
    return found


def plain_multiples(settings: Settings) -> tuple[int, ...]:
    """How many times the images of a step the plain network is also given; a CPU has no peak."""
    return (1, 4, 16) if settings.on_gpu else (1, 4)


def inference_multiples(settings: Settings) -> tuple[int, ...]:
    """The same for inference."""
    return (1, 4) if settings.on_gpu else (1,)
