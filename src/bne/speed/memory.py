"""Peak memory of training steps against the plain network's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.speed.measurement import Entry, middle, peak
from bne.speed.settings import Case

if TYPE_CHECKING:
    from bne.speed.settings import Settings


def entries(settings: Settings) -> list[Entry]:
    """All branches at once and one at a time, and what the latter costs in time."""
    graph, count, domains = settings.on_gpu, settings.images, settings.domains
    plain = Case("training", count, graph)
    whole = Case("training", count, graph, domains)
    chunked = Case("training", count, graph, domains, (("max_branches", 1),))
    return [
        Entry("plain step", plain, "MiB"),
        Entry(
            "DT step",
            whole,
            "MiB",
            reference=lambda t: (domains + 1) * peak(t, plain),
            reference_is=f"{domains + 1} times plain",
            goal=settings.gpu_goal(1.1),
        ),
        Entry(
            "DT step, max_branches=1",
            chunked,
            "MiB",
            reference=lambda t: peak(t, plain),
            reference_is="plain",
            goal=settings.gpu_goal(2.2),
        ),
        Entry(
            "DT step, max_branches=1",
            chunked,
            reference=lambda t: middle(t, whole),
            reference_is="the DT step",
        ),
    ]
