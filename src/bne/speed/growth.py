"""What more domains cost, at the same number of images a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.speed.measurement import Entry, best, middle
from bne.speed.settings import Case

if TYPE_CHECKING:
    from bne.speed.settings import Settings

DOMAINS = (3, 8, 32, 64)
NEAREST = (("nearest", 4),)
FLAT_FROM = 8
AT_ONCE = 8  # branches; more would make tensors of over 2³¹ values


def entries(settings: Settings) -> list[Entry]:
    """Steps with the four nearest branches, steps with all, and the distances alone."""
    graph, count = settings.on_gpu, 4 * settings.images
    plain = Case("training", count, graph)

    def near(domains: int) -> Case:
        return Case("training", count, graph, domains, NEAREST)

    def flat(domains: int) -> Entry:
        if domains < FLAT_FROM:
            return Entry("DT step, nearest=4", near(domains))
        return Entry(
            "DT step, nearest=4",
            near(domains),
            reference=lambda t: middle(t, near(FLAT_FROM)),
            reference_is=f"K = {FLAT_FROM}",
            goal=settings.gpu_goal(1.3),
        )

    def linear(domains: int) -> Entry:
        whole = domains <= AT_ONCE
        return Entry(
            "DT step, all branches" if whole else f"DT step, all branches, {AT_ONCE} at once",
            Case("training", count, graph, domains, () if whole else (("max_branches", AT_ONCE),)),
            reference=lambda t: count * (domains + 1) * best(t, [plain]),
            reference_is=f"{domains + 1} plain passes",
        )

    most = DOMAINS[-1]
    return [
        Entry("plain step", plain),
        *map(flat, DOMAINS),
        # On a CPU the larger ones would take minutes.
        *(linear(domains) for domains in DOMAINS if graph or domains <= AT_ONCE),
        Entry(
            "embedding and distance alone",
            Case("distance", count, graph, most, NEAREST),
            reference=lambda t: middle(t, near(most)),
            reference_is="the step, nearest=4",
            goal=settings.gpu_goal(0.03),
        ),
    ]
