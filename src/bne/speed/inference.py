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
    graph, count, domains = settings.on_gpu, settings.batch, settings.domains
    looks = [Case("inference", count * more, graph) for more in inference_multiples(settings)]

    def passes(what: str, number: int, goal: float | None, *options: tuple[str, object]) -> Entry:
        return Entry(
            what,
            Case("inference", count, graph, domains, options),
            reference=lambda t: count * number * best(t, looks),
            reference_is=f"{number} plain passes, at best",
            goal=goal,
        )

    def statistics(number: int) -> Entry:
        return Entry(
            "mixed statistics",
            Case("inference", count, graph, number, (("mix", "statistics"),)),
            reference=lambda t: middle(t, looks[0]),
            reference_is="plain",
            goal=settings.gpu_goal(2.2),
        )

    found = [Entry("plain network", case) for case in looks]
    found += [
        passes("mixture", domains + 1, 1.1 if graph else 1.15),
        passes("mixture, nearest=1", 2, settings.gpu_goal(1.15), ("nearest", 1)),
        statistics(domains),
        statistics(MANY),
    ]
    for one_graph in sorted({False, graph}):
        found += one_image(settings, one_graph)
    return found


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
