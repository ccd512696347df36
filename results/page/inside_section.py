"""The section on what trained networks do inside, from the analyses in their records."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from bne.benchmark.tables import NONE, Cell, average, signed
from page import analyses
from page.campaign import target
from page.kinds import by_kind
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.records import Record
    from page.analyses import Value

    Kinds = Mapping[str, list[Record]]

RANKS = ("nearest", "second", "third")
DISTANCES = ("wasserstein", "bhattacharyya", "uniform")


def inside_section(records: Sequence[Record]) -> str:
    """Branches, weights and distances of every kind of network with branches, on all targets."""
    every = {target(record) for record in records}
    found = by_kind([record for record in records if record.analysis.get("branches")])
    kinds = {kind: own for kind, own in found.items() if {target(r) for r in own} == every}
    if not kinds:
        return "No network with branches is recorded on every target."
    parts = [_branches(kinds), *(_on_branches(*one) for one in kinds.items())]
    parts += [_weights(kinds), _domains(kinds)]
    located = {kind: own for kind, own in kinds.items() if analyses.layers(own[0])}
    if located:
        parts += [_shares(located), *(_on_layers(*one) for one in located.items())]
    return "\n\n".join(parts)


def _branches(kinds: Kinds) -> str:
    records = [record for own in kinds.values() for record in own]
    values: dict[str, Value] = {"prediction": analyses.prediction}
    values |= {f"{rank} branch": analyses.of_rank(place) for place, rank in enumerate(RANKS)}
    values |= {f"tested with {name}": analyses.of_weighting(name) for name in DISTANCES}
    values = {head: v for head, v in values.items() if analyses.mean(records, v) is not None}
    text = (
        "Every kind of network with branches that was run on all targets. Accuracy on the target "
        "after the last epoch, in percent: of the network's prediction, of "
        "its nearest, second and third branch alone, and of the same network when another distance "
        "than its own weighs the branches in the test only."
    )
    return f"{text}\n\n{_by_network(kinds, values)}"


def _on_branches(kind: str, records: Sequence[Record]) -> str:
    ordered = sum(r == sorted(r, reverse=True) for r in map(analyses.ranks, records))
    sentences = [f"{kind}: nearest ≥ second ≥ third branch in {ordered} of {len(records)} runs."]
    for name in DISTANCES:
        other = analyses.of_weighting(name)
        pairs = [(other(record), analyses.prediction(record)) for record in records]
        changes = [theirs - own for theirs, own in pairs if theirs is not None]
        if changes:
            mean, low, high = (signed(f(changes), 1) for f in (fmean, min, max))
            sentences.append(f"Tested with {name}: {mean} points on average, {low} to {high}.")
    return " ".join(sentences)


def _weights(kinds: Kinds) -> str:
    names = sorted({n for own in kinds.values() for r in own for n in r.analysis["branches"]})
    rows = []
    for kind, own in kinds.items():
        for held_out, records in _by_target(own).items():
            means = [analyses.mean(records, analyses.mean_weight(name)) for name in names]
            rows.append([kind, held_out, *(NONE if m is None else f"{m:.2f}" for m in means)])
    text = "Mean weight of each branch for the images of the target."
    return f"{text}\n\n{table(['network', 'target', *names], rows, texts=2)}"


def _domains(kinds: Kinds) -> str:
    parts = {"training images": "train", "held-out images": "validation"}
    values = {head: analyses.domain_accuracy(part) for head, part in parts.items()}
    text = (
        "How often images of the source domains lie nearest to their own domain, mean over the "
        "source domains, in percent."
    )
    return f"{text}\n\n{_by_network(kinds, values)}"


def _shares(kinds: Kinds) -> str:
    blocks = list(
        dict.fromkeys(analyses.block(n) for own in kinds.values() for n in analyses.layers(own[0]))
    )
    text = "Share of each block of layers in the distances of training images, in percent."
    return f"{text}\n\n{_by_network(kinds, {block: analyses.share(block) for block in blocks})}"


def _on_layers(kind: str, records: Sequence[Record]) -> str:
    """Which single layer the distance mostly is, and what it knows of the domains."""

    def mean(value: Value) -> float:
        return analyses.mean(records, value) or 0.0

    names = analyses.layers(records[0])
    top = max(names, key=lambda name: mean(analyses.share(name)))
    knows = max(names, key=lambda name: mean(analyses.layer_accuracy(name)))
    shares = [analyses.share(top)(record) or 0.0 for record in records]
    return (
        f"{kind}: of {len(names)} layers one, {top}, makes up {min(shares):.0f} to "
        f"{max(shares):.0f} % of the distance. Alone it finds the own domain of "
        f"{mean(analyses.layer_accuracy(top)):.1f} % of training images, all layers together of "
        f"{mean(analyses.domain_accuracy('train')):.1f} %; of single layers {knows} finds most, "
        f"{mean(analyses.layer_accuracy(knows)):.1f} %."
    )


def _by_network(kinds: Kinds, values: Mapping[str, Value]) -> str:
    """A row a target of each kind of network, then their average; a column a value."""
    rows = []
    for kind, own in kinds.items():
        targets = _by_target(own)
        cells = {
            t: [_cell(records, value) for value in values.values()]
            for t, records in targets.items()
        }
        cells["average"] = [average(column) for column in zip(*cells.values(), strict=True)]
        rows += [[kind, name, *map(str, columns)] for name, columns in cells.items()]
    return table(["network", "target", *values], rows, texts=2)


def _by_target(records: Sequence[Record]) -> dict[str, list[Record]]:
    return {
        held_out: [record for record in records if target(record) == held_out]
        for held_out in sorted({target(record) for record in records})
    }


def _cell(records: Sequence[Record], value: Value) -> Cell:
    values = {record.settings["seed"]: value(record) for record in records}
    given = {seed: figure for seed, figure in values.items() if figure is not None}
    return Cell(given, len(given))
