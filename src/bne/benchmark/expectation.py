"""What to expect at a new domain, from leaving each known one out in turn."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.plan import Item, kind
from bne.benchmark.reference import SUMMARIES
from bne.benchmark.tables import LEANING, accuracy_table, images_of, signed, uneven_targets
from bne.inspection.intervals import margin
from bne.recipes.schema import Recipe
from bne.training.events import ACCURACY, BALANCED
from bne.words import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bne.benchmark.records import Record
    from bne.benchmark.tables import Cell, Found
    from bne.training.events import Measure
    from bne.training.scores import Rule


@dataclass(frozen=True)
class Interval:
    """A mean over domains, with its 95 % t interval.

    Attributes:
        mean: mean of one figure per domain.
        low: lower end; None of a single domain, which says nothing of others.
        high: upper end.
    """

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of figures, one per domain."""
        mean, half = fmean(values), margin(values)
        return cls(mean, None, None) if half is None else cls(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Expectation:
    """What a method has on domains that it has never seen: the next one is another of these.

    Attributes:
        row: the method's row in the table.
        rule: rule that chose the tested epochs.
        accuracy: accuracy at a new domain, in percent; every domain counts alike.
        domains: accuracy on each domain when it was left out, mean over seeds.
        worst: the domain of the lowest.
        gain: points above DeepAll, domain by domain over the seeds that both have; None without
            DeepAll, or of DeepAll itself.
        seeds: the fewest seeds of any domain.
        images: number of images tested, of all domains together.
        measure: measure of all figures: balanced accuracy if classes of a domain are unbalanced.
    """

    row: str
    rule: Rule
    accuracy: Interval
    domains: Mapping[str, float]
    worst: str
    gain: Interval | None
    seeds: int
    images: int
    measure: Measure = ACCURACY

    def __str__(self) -> str:
        found, gain = self.accuracy, self.gain
        named = self.measure.replace("_", " ")
        text = f"{self.row}: expected {named} at a new domain {found.mean:.1f} %"
        if found.low is None or found.high is None:
            text += " (from one domain left out: how far others differ is not known)"
        else:
            ends = f"{max(0, found.low):.1f} to {min(100, found.high):.1f}"
            text += f" (95 % interval of the mean over {len(self.domains)} domains: {ends})"
        text += f"; the worst domain, {self.worst}, {self.domains[self.worst]:.1f} %"
        if gain is not None:
            text += f"; gain over DeepAll {signed(gain.mean, 1)} points"
            if gain.low is not None and gain.high is not None:
                text += f" ({signed(gain.low, 1)} to {signed(gain.high, 1)})"
        return f"{text}. {counted(self.seeds, 'seed')}, {self.images:,} images."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, for JSON, with the sentence."""
        return {**asdict(self), "sentence": str(self)}


def expectations(found: Found, rules: Sequence[Rule]) -> list[Expectation]:
    """One per method that has been tested on every target, in the table's order.

    Args:
        found: runs, with their records.
        rules: rules that choose the tested epoch; the first counts that is not the oracle, which
            nobody has at a new domain.
    """
    rule = next((one for one in rules if one != "oracle"), None)
    if rule is None:
        return []
    measure = BALANCED if uneven_targets(found) else ACCURACY
    table = accuracy_table("", found, None, rule, measure)
    targets = [column for column in table.columns if column not in SUMMARIES]
    images = images_of(found)
    cells = {row.name: [row.cells[target] for target in targets] for row in table.rows}
    base = next((item.row for item, _ in found if item.recipe.method == "deepall"), None)
    made = []
    for name, own in cells.items():
        means = {target: cell.mean for target, cell in zip(targets, own, strict=True)}
        domains = {target: mean for target, mean in means.items() if mean is not None}
        if not domains or len(domains) < len(targets):
            continue
        gain = _gain(own, cells[base]) if base is not None and name != base else None
        made.append(
            Expectation(
                row=name,
                rule=rule,
                accuracy=Interval.of(list(domains.values())),
                domains=domains,
                worst=min(domains, key=domains.__getitem__),
                gain=gain,
                seeds=min(len(cell.values) for cell in own),
                images=sum(images[target] for target in targets),
                measure=measure,
            )
        )
    return made


def expected_of(
    settings: Mapping[str, Any], domains: Collection[str], records: Iterable[Record], *, leans: bool
) -> list[Expectation]:
    """What to expect of a model, from records of the same settings with each domain left out.

    Accuracies on different images are never mixed: any of these may be the model's own.

    Args:
        settings: of the model's run, as `bne.training.identity.settings_of` gives them.
        domains: that the model was trained on.
        records: of any runs.
        leans: whether the model leans on each image's own statistics.

    Returns:
        One per set of images on which such runs left out each of the domains, alone.
    """
    base = {**settings, "method": "deepall", "options": {}}
    kinds = {kind(settings), kind(base)}
    by_images: dict[str | None, Found] = {}
    for one in records:
        method, target, seed = (one.settings[key] for key in ("method", "target", "seed"))
        others = {domain for domain in domains if [domain] != target}
        if set(one.settings.get("sources") or others) != others:
            continue  # a run on some of them
        if kind(one.settings) in kinds and len(target) == 1 and target[0] in domains:
            item = Item("", method, Recipe(method, tuple(target), seed=seed))
            by_images.setdefault(one.materials.get("images"), []).append((item, one))
    row = settings["method"] + (LEANING if leans else "")
    return [
        one
        for found in by_images.values()
        for one in expectations(found, ["last"])
        if one.row == row and set(one.domains) == set(domains)
    ]


def _gain(own: Sequence[Cell], base: Sequence[Cell]) -> Interval | None:
    """Paired over domains, each the mean over the seeds that both have."""
    gaps = []
    for ours, theirs in zip(own, base, strict=True):
        common = ours.values.keys() & theirs.values.keys()
        if not common:
            return None
        gaps.append(fmean(ours.values[seed] - theirs.values[seed] for seed in common))
    return Interval.of(gaps)
