"""The section on settings: the table of the search, and what follows from it."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from bne.benchmark.tables import NONE, signed
from page.campaign import target
from page.final import final_section, winner
from page.search import (
    best,
    exact_changes,
    exact_is_better,
    finalists,
    settings_tried,
    shared,
)
from page.words import listed, plural, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.benchmark.records import Record
    from page.search import Setting, Tuning


def settings_section(search: Sequence[Record], records: Sequence[Record]) -> str:
    """The whole section; `search` are the records of the search, `records` those of the tables."""
    if not search:
        return "No search is recorded."
    tried = settings_tried(search)
    targets = list(dict.fromkeys(target(record) for record in search))
    parts = [_budget(tried, search, targets), _table(tried, targets)]
    if not finalists(tried):
        return "\n\n".join([*parts, "No setting was tried with every method on every target."])
    pick = winner(search, records)
    used = [s.tuning for s in tried if pick and s.tuning.is_like(pick)]
    parts += [final_section(search, records), _options(tried)]
    return "\n\n".join([*parts, *([_statistics(tried, used[0])] if used else [])])


def _budget(tried: Sequence[Setting], records: Sequence[Record], targets: Sequence[str]) -> str:
    counts = {s.method: sum(o.method == s.method for o in tried) for s in tried}
    numbers = listed(f"{plural(count, 'setting')} for {name}" for name, count in counts.items())
    seeds = listed(str(record.settings["seed"]) for record in records)
    common = {setting.tuning for setting in shared(tried)}
    return (
        f"What the paper does not say was chosen in a small search: {numbers}, each on the targets "
        f"{listed(targets)}, seed {seeds}. Of them, {len(common)} were tried with every method; "
        "the others are optimisers for one method, or options that only one method has. The "
        "figures that count are accuracies on the held-out images of the source domains (the "
        "official split), after the last epoch, mean over source domains and then over runs, in "
        "percent. Each was measured with the running statistics that training kept, and with exact "
        "ones, recomputed over the source images. ± is the standard error that the number of "
        "images alone gives, as if no two runs shared images; it says nothing of how seeds differ. "
        "A domain held out in one run is a source in the other, so its held-out images have a say "
        "in a setting that is also used where it is the target; but no choice looks at the "
        "accuracy on a target, which the last columns show."
    )


def _table(tried: Sequence[Setting], targets: Sequence[str]) -> str:
    final = finalists(tried)
    rows = []
    for setting in tried:
        tuning = setting.tuning
        marks = [
            "in the final" if tuning in final else "",
            "its highest" if setting is best(tried, setting.method) else "",
        ]
        rows.append(
            [
                setting.method,
                tuning.optimiser,
                tuning.schedule,
                tuning.otherwise or NONE,
                ", ".join(filter(None, marks)) or NONE,
                f"{tuning.epochs} ({tuning.warm_up})",
                str(setting.held_out("running") or NONE),
                str(setting.held_out("exact") or NONE),
                *(_on_target(setting, domain) for domain in targets),
            ]
        )
    head = ["method", "optimiser", "schedule", "otherwise", "", "epochs (warm-up)"]
    head += ["held out, running", "held out, exact"]
    head += [f"*not used for the choice:* {domain}, running / exact" for domain in targets]
    return table(head, rows, texts=5)


def _on_target(setting: Setting, domain: str) -> str:
    values = [setting.on_target(domain, "running"), setting.on_target(domain, "exact")]
    return " / ".join(NONE if value is None else f"{value:.1f}" for value in values)


def _options(tried: Sequence[Setting]) -> str:
    """What a method's own options and the warm-up changed, beside the same optimiser without."""
    common = shared(tried)
    changes = []
    for setting in tried:
        like = [s for s in common if s.method == setting.method and _same_optimiser(s, setting)]
        own, usual = setting.held_out("running"), like[0].held_out("running") if like else None
        if setting not in common and own and usual:
            what = setting.tuning.otherwise or f"warm-up {setting.tuning.warm_up}"
            error = sqrt(own.error**2 + usual.error**2)
            change = f"{signed(own.mean - usual.mean, 2)} ± {error:.2f}"
            changes.append(f"{what} changed {setting.method} by {change} ({like[0].tuning})")
    return (
        f"**Options.** Beside the same optimiser without it, {'; '.join(changes) or 'none tried'}. "
        "The defaults are kept. The warm-up of the standard run, which is longer, was not searched."
    )


def _same_optimiser(one: Setting, other: Setting) -> bool:
    a, b = one.tuning, other.tuning
    return (a.optimiser, a.schedule, a.epochs) == (b.optimiser, b.schedule, b.epochs)


def _statistics(tried: Sequence[Setting], tuning: Tuning) -> str:
    changes = exact_changes(tried)
    lower, higher = (sum(sign * c > 0 for c in changes.values()) for sign in (-1, 1))
    here = [f"{s.method} {signed(c, 2)}" for s, c in changes.items() if s.tuning == tuning]
    used = "exact" if exact_is_better(tried, tuning) else "running"
    return (
        f"**Statistics.** Exact ones lowered the held-out accuracy in {lower} of {len(changes)} "
        f"settings and raised it in {higher}; under the chosen one they changed it by "
        f"{listed(here)}. So {used} statistics are used."
    )
