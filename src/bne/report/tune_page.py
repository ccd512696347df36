"""The page of a search: settings with standard errors, what matters, and how sure the choice is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.tables import NONE, signed
from bne.report.page import render, value_text
from bne.training.scores import SHARE_RULE
from bne.tuning.objective import changes_text
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.tuning.objective import Candidate
    from bne.tuning.tuning import Tuned


@dataclass(frozen=True)
class Section:
    """What is found for one target."""

    name: str
    tuned: Tuned
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    chosen: Mapping[str, str]  # settings of the choice, by key
    best: Mapping[str, str]  # of the highest mean, if that is another
    dots: Sequence[Mapping[str, Any]]  # for `tune.js`, one per setting


@dataclass(frozen=True)
class TunePage:
    """What the template shows."""

    title: str
    found: Sequence[Section]
    share_rule: str


def tune_page(found: Sequence[Tuned]) -> str:
    """One page that needs nothing else."""
    names = [one.question.name for one in found]
    sections = [_section(one) for one in found]
    return render("tune", TunePage(f"Settings for {listed(names)}", sections, SHARE_RULE))


def grid(tuned: Tuned) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table of settings, the best first."""
    rows, whole = tuned.rows, bool(tuned.start.space.whole)
    keys = [] if whole else list(dict.fromkeys(key for one in rows for key in one.changes))
    domains = [fold.domain for fold in tuned.question.folds]
    outer = any(one.outer for one in rows)
    target = ["target"] if outer else []
    settings = ["settings"] if whole else [_short(key) for key in keys]
    head = ["", "mean", "± error", "behind", "seeds", *target, *domains, *settings, "lean"]
    return head, [
        [
            ", ".join([str(number), *_marks(tuned, one)]),
            f"{one.mean:.1f}",
            f"{one.error:.1f}",
            _behind(tuned, one),
            str(one.seeds),
            *([f"{fmean(one.outer.values()):.1f}" if one.outer else NONE] if outer else []),
            *(f"{one.by_domain[domain]:.1f}" for domain in domains),
            *(_text(one.changes[key]) if key in one.changes else NONE for key in keys),
            *([changes_text(one.changes)] if whole else []),
            value_text(one.share),
        ]
        for number, one in enumerate(rows, 1)
    ]


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)


def _short(key: str) -> str:
    return key.removeprefix("train.").removeprefix("optimiser.").removeprefix("options.")


def _behind(tuned: Tuned, one: Candidate) -> str:
    if tuned.choice is None or one is tuned.choice.best:
        return NONE
    lead, error = tuned.choice.best.lead(one)
    return f"{signed(-lead, 1)} ± {error:.1f}"


def _marks(tuned: Tuned, one: Candidate) -> list[str]:
    choice, recipe = tuned.choice, tuned.recipe_itself
    same = recipe is not None and one.digest == recipe.digest
    marks = {
        "chosen": choice is not None and one is choice.chosen,
        "highest mean": choice is not None and one is choice.best is not choice.chosen,
        "recipe": same and one.distance == 0,
        "recipe at another share": same and one.distance > 0,
    }
    return [name for name, true in marks.items() if true]


def _section(tuned: Tuned) -> Section:
    head, rows = grid(tuned)
    dots = [
        {"mean": one.mean, "error": one.error, "marks": _marks(tuned, one)} for one in tuned.rows
    ]
    choice = tuned.choice
    best = {} if choice is None or choice.best is choice.chosen else _settings(choice.best)
    chosen = _settings(choice.chosen) if choice else {}
    return Section(tuned.question.name, tuned, head, rows, chosen, best, dots)


def _settings(one: Candidate) -> dict[str, str]:
    return {key: value_text(own) for key, own in {**one.changes, "lean": one.share}.items()}
