"""Which tables are wanted, and how the runs in the records relate to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property
from shlex import quote
from typing import TYPE_CHECKING, Any

from bne.benchmark.plan import choose, plan
from bne.benchmark.records import settings as settings_of
from bne.benchmark.tables import find_records
from bne.recipes.files import load
from page.words import listed, value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.benchmark.records import Record
    from bne.benchmark.tables import Found
    from bne.recipes.files import Experiment

WEIGHTS = "resnet18_imagenet.safetensors"
WEIGHTS_NAME = "resnet18_imagenet (reconstructed torchvision V1)"
RECIPE = "pacs-resnet18-standard"
PAPERS = "pacs-resnet18"  # the paper's own settings
STRONG = "pacs-resnet18-strong"
ABLATION = "ablation-pacs-resnet18"
NORMALISATION = "normalization-pacs-resnet18"
DEEPALL, BNE = "DeepAll", "BNE (dt,warmup)"
ROW_A, ROW_B = "BNE (no-dt,no-warmup)", "BNE (dt,no-warmup)"
FREEZE, CLIP = "FreezeBatchNorm", {"train.optimiser.clip": 10}
# What tells runs of one kind apart, and where the weights lie, which is named above every table.
_NOT_A_KIND = ("method", "target", "sources", "seed", "weights")


@dataclass(frozen=True)
class Wanted:
    """A table that the campaign is to fill.

    Attributes:
        title: above it.
        table: of the paper.
        rows: of it, if not all.
        seeds: of every row and target.
        recipe: whose settings are used.
        overrides: of its settings, by dotted key.
    """

    title: str
    table: str
    rows: tuple[str, ...] = ()
    seeds: int = 3
    recipe: str = RECIPE
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> Experiment:
        """Its rows and targets."""
        return choose(table=self.table, recipe=self.recipe, rows=self.rows)

    @cached_property
    def items(self) -> list[Item]:
        """All its runs."""
        return plan(self.experiment, self.seeds, self.overrides, weights=WEIGHTS)

    @cached_property
    def targets(self) -> list[str]:
        """Of its runs, each once."""
        return list(dict.fromkeys(item.target for item in self.items))

    def found(self, records: Sequence[Record]) -> Found:
        """All its runs, each with its record if there is one."""
        return find_records(self.items, records)

    def command(self, records: str) -> str:
        """What fills it; `records` is the file that finished runs are added to."""
        parts = [f"bne benchmark --data data/pacs --table {self.table}"]
        parts += [f"--row {quote(row)}" for row in self.rows]
        parts += [f"--recipe {self.recipe} --weights {WEIGHTS}"]
        parts += [f"--set {key}={value_text(value)}" for key, value in self.overrides.items()]
        return " ".join([*parts, f"--seeds {self.seeds} --records {records} --parallel 4"])


# What may be the cause of a smaller gap than the paper's.
CHANGED_FOR_BOTH: dict[str, dict[str, Any]] = {
    "Our settings at the paper's 60 epochs": {"train.epochs": 60, "train.warm_up": 20},
    "64 images a domain": {"per_domain": 64},
}
CHANGED: dict[str, dict[str, Any]] = {
    "The distance not squared": {"options.distance": "root-wasserstein"},
    "A shorter warm-up": {"train.warm_up": 2},
    "A longer warm-up": {"train.warm_up": 12},
    "Branches normalised by running statistics": {"options.branch_statistics": "population"},
    "Probabilities mixed": {"options.mix": "probabilities"},
}

WANTED = (
    Wanted("Variants of the method", ABLATION),
    Wanted("Comparison with other methods", "sota-pacs-resnet18"),
    Wanted("Normalisation", NORMALISATION),
    Wanted("Distances, the paper's with AlexNet", "distance-pacs-alexnet"),
    Wanted("Accuracy by distance", "closest-domain-accuracy-pacs-resnet18"),
    Wanted("Telling domains apart", "domain-accuracy-pacs-resnet18"),
    Wanted("Similarity, photo unseen", "similarity-pacs-resnet18-photo-unseen"),
    Wanted("Similarity, sketch unseen", "similarity-pacs-resnet18-sketch-unseen"),
    Wanted(
        "The paper's own settings, 60 epochs",
        ABLATION,
        rows=(DEEPALL, BNE),
        seeds=1,
        recipe=PAPERS,
        overrides={"epoch": 220},
    ),
    *(
        Wanted(title, ABLATION, rows=(DEEPALL, BNE), seeds=1, overrides=overrides)
        for title, overrides in CHANGED_FOR_BOTH.items()
    ),
    *(
        Wanted(title, ABLATION, rows=(BNE,), seeds=1, overrides=overrides)
        for title, overrides in CHANGED.items()
    ),
    Wanted("Strong augmentation", ABLATION, rows=(DEEPALL, BNE), recipe=STRONG),
    Wanted(
        "FreezeBatchNorm, gradients clipped to a norm of 10",
        NORMALISATION,
        rows=(FREEZE,),
        overrides=CLIP,
    ),
    Wanted(
        "FreezeBatchNorm, gradients clipped to a norm of 1",
        NORMALISATION,
        rows=(FREEZE,),
        seeds=1,
        overrides={"train.optimiser.clip": 1},
    ),
)


def paper_table(name: str) -> Wanted:
    """The wanted table that shows one of the paper's under the standard settings."""
    return next(one for one in WANTED if one.table == name and not one.rows)


def standing_for(table: str, row: str) -> Wanted:
    """The wanted table whose runs stand for a row of the paper's.

    FreezeBatchNorm diverges on one target unless gradients are clipped.
    """
    if row == FREEZE:
        return next(one for one in WANTED if one.overrides == CLIP)
    return paper_table(table)


def papers_settings() -> Wanted:
    """The wanted table that has the paper's own settings."""
    return next(one for one in WANTED if one.recipe == PAPERS)


def strong() -> Wanted:
    """The wanted table of the strong augmentation."""
    return next(one for one in WANTED if one.recipe == STRONG)


def weights_of(records: Sequence[Record]) -> str:
    """What the runs started from."""
    names = listed(record.settings["weights"] or "none: random" for record in records)
    return f"Initial weights: `{names.replace(WEIGHTS, WEIGHTS_NAME)}`."


def difference(record: Record, recipe: str = RECIPE) -> dict[str, Any]:
    """By dotted key, the settings in which a run differs from a recipe's of its method."""
    standard = _flat(_standard(recipe, str(record.settings["method"])))
    own = _flat(record.settings)
    return {
        key: value
        for key, value in own.items()
        if key.split(".")[0] not in _NOT_A_KIND and value != standard.get(key)
    }


def target(record: Record) -> str:
    """The domains held out, joined by a +."""
    return "+".join(record.settings["target"])


@cache
def _standard(recipe: str, method: str) -> dict[str, Any]:
    return settings_of(load(recipe, {"method": method, "target": ["sketch"]}))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in settings.items():
        key = prefix + name
        flat.update(_flat(value, f"{key}.") if isinstance(value, dict) else {key: value})
    return flat
