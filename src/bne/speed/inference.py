"""Inference against the plain network's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.speed.measurement import Entry, best, middle
from bne.speed.settings import Case
from bne.speed.training import inference_multiples

if TYPE_CHECKING:
    from bne.speed.settings import Settings

MANY = 64  # domains, whose mixed statistics should cost no more than a few domains' do


def entries(settings: Settings) -> list[Entry]:
    """Mixtures of many images at once, then of one at a time."""
    found = many_images(settings, compiled=False)
    if settings.compiles:
        found += many_images(settings, compiled=True)
    for graph in sorted({False, settings.on_gpu}):
        found += one_image(settings, graph)
    return found


def many_images(settings: Settings, compiled: bool) -> list[Entry]:
    """Mixtures of many images at once; compiled networks are compared with compiled ones."""
    count, domains = settings.batch, settings.domains

    def case(images: int, number: int, *options: tuple[str, object]) -> Case:
        return Case("inference", images, settings.on_gpu, number, options, compiled)

    looks = [case(count * more, 0) for more in inference_multiples(settings)]

    def passes(what: str, number: int, goal: float | None, *options: tuple[str, object]) -> Entry:
        return Entry(
            what,
            case(count, domains, *options),
            reference=lambda t: count * number * best(t, looks),
            reference_is=f"{number} plain passes, at best",
            goal=goal,
        )

    def statistics(number: int) -> Entry:
        return Entry(
            "mixed statistics",
            case(count, number, ("mix", "statistics")),
            reference=lambda t: middle(t, looks[0]),
            reference_is="plain",
            goal=settings.gpu_goal(2.2),
        )

    return [
        *(Entry("plain network", look) for look in looks),
        passes("mixture", domains + 1, 1.1 if settings.on_gpu else 1.15),
        passes("mixture, nearest=1", 2, settings.gpu_goal(1.15), ("nearest", 1)),
        statistics(domains),
        statistics(MANY),
    ]


def one_image(settings: Settings, graph: bool) -> list[Entry]:
    """One image at a time, by calls or CUDA graphs."""
    plain = Case("inference", 1, graph)
    return [
        Entry("plain network", plain),
        Entry(
            "mixture",
            Case("inference", 1, graph, settings.domains),
            reference=lambda t: (settings.domains + 1) * middle(t, plain),
            reference_is=f"{settings.domains + 1} times plain",
            goal=settings.gpu_goal(1.3),
        ),
    ]
