"""The section on settings: the table of the search, and what follows from it."""

from __future__ import annotations

from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from bne.evaluation.cells import NONE, signed
from page.campaign import target
from page.search import (
    best,
    best_for_all,
    chosen,
    exact_changes,
    exact_is_better,
    settings_tried,
    shared,
)
from page.words import listed, plural, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bne.evaluation.records import Record
    from page.search import Setting, Tuning


def settings_section(records: Sequence[Record]) -> str:
    """The whole section; `records` are those of the search."""
    if not records:
        return "No search is recorded."
    tried = settings_tried(records)
    targets = list(dict.fromkeys(target(record) for record in records))
    parts = [_budget(tried, records, targets), _table(tried, targets)]
    pick, top = chosen(tried), best(tried, "bne")
    if pick is None or top is None:
        return "\n\n".join([*parts, "No setting was tried with every method on every target."])
    others = [s for s in tried if s.tuning == pick.tuning and s is not pick]
    parts += [_rule(tried, pick, top)]
    parts += [_fairness(tried, pick, top, other, targets) for other in others]
    return "\n\n".join([*parts, _options(tried), _statistics(tried, pick.tuning)])


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
    pick = chosen(tried)
    rows = []
    for setting in tried:
        tuning = setting.tuning
        marks = [
            "chosen" if pick and tuning == pick.tuning else "",
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


def _rule(tried: Sequence[Setting], pick: Setting, top: Setting) -> str:
    second = best_for_all(tried)
    return (
        "**Rule**, put into words after the search. All rows share one setting: of those tried "
        "with every method, that of BNE's highest held-out accuracy with running statistics. It is "
        f"**{pick.tuning}**, "
        f"{pick.held_out('running')}, {'the' if pick is top else 'not the'} highest of all that "
        "BNE was tried with. The highest mean over the methods picks "
        f"{'the same' if second == pick.tuning else f'another, {second}'}."
    )


def _fairness(
    tried: Sequence[Setting], pick: Setting, top: Setting, other: Setting, targets: Sequence[str]
) -> str:
    """What the choice costs another method."""
    own = best(tried, other.method)
    here, there = other.held_out("running"), own.held_out("running") if own else None
    if own is None or here is None or there is None or own is other:
        return f"It is also the highest of {other.method}."
    error = sqrt(here.error**2 + there.error**2)
    lost = there.mean - here.mean
    known = any(s.tuning == own.tuning and s.method == "bne" for s in tried)
    return (
        f"**It is not {other.method}'s own highest**, which is {own.tuning}: {there}, against "
        f"{here} under the common setting. The difference, {lost:.2f}, is "
        f"{'within' if lost < error else 'more than'} one standard error ({error:.2f}, as if the "
        f"two were tested on different images). That setting was {'' if known else 'not '}tried "
        "with BNE. On the targets of this search, which were not used, BNE's gap over "
        f"{other.method} was {_gap(pick, other, targets)} points under the common setting and "
        f"{_gap(top, own, targets)} with each method's own highest (running statistics, mean of "
        f"{listed(targets)}); hence the table of {other.method} with its own setting, below or "
        "among what is missing."
    )


def _gap(one: Setting, other: Setting, targets: Sequence[str]) -> str:
    pairs = [(one.on_target(t, "running"), other.on_target(t, "running")) for t in targets]
    return signed(fmean(a - b for a, b in pairs if a is not None and b is not None), 1)


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
