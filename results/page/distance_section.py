"""Which form of the distance the paper's tables of similarity and domain accuracy speak for."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from bne.benchmark.reference import find_table
from page.campaign import target
from page.kinds import kind
from page.words import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.records import Record

    Matrix = Mapping[str, Mapping[str, float]]

UNSEEN = ("photo", "sketch")
DOMAIN_ACCURACY = find_table("domain-accuracy-pacs-resnet18")


def distance_section(forms: Sequence[Mapping[str, Any]], records: Sequence[Record]) -> str:
    """The paper's tables beside what six forms of the distance give.

    Args:
        forms: the records of distances.py.
        records: of trained networks, of which row (a) is compared.
    """
    papers = {unseen: _papers_similarity(unseen) for unseen in UNSEEN}
    rows = []
    for form in forms:
        differences = [_difference(form["similarity"][u], papers[u]) for u in UNSEEN]
        accuracies = [form["domain_accuracy"][name] for name in DOMAIN_ACCURACY.targets]
        figures = [*differences, *accuracies, fmean(accuracies)]
        name = f"(μ, {form['spread']}), {form['form']}"
        rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    trained = [_trained(records, unseen) for unseen in UNSEEN]
    if all(trained):
        differences = [
            fmean(_difference(matrix, papers[unseen]) for matrix in own)
            for unseen, own in zip(UNSEEN, trained, strict=True)
        ]
        empty = [""] * (len(DOMAIN_ACCURACY.targets) + 1)
        rows.append(["ours, BNE (a) trained", *(f"{d:.1f}" for d in differences), *empty])
    own = DOMAIN_ACCURACY.row("BNE (no-domain-xe)")
    assert own is not None
    accuracies = list(own.cells.values())
    shown = (f"{figure:.1f}" for figure in (*accuracies, fmean(accuracies)))
    rows.append(["the paper", "0", "0", *shown])
    images = forms[0]["images"]
    text = (
        "Squared or not? The paper's equation squares the distance of a layer, yet its text asks "
        "for one that satisfies the triangle inequality, which squares do not. Its tables of the "
        "latent space can be asked which it was. They were made again for six forms of the "
        f"distance from the initial weights, without training, with {images} images of each domain "
        "(`python results/distances.py`). First by how many points the shares of the similarity "
        "matrices differ from the paper's, on average, photo and sketch unseen; then how often an "
        "image lies nearest to its own domain, in percent, by unseen domain, which the paper gives "
        "for BNE (c). The first form is the equation's, and ours."
    )
    head = ["distance", *(f"similarity, {u} unseen" for u in UNSEEN), *DOMAIN_ACCURACY.targets]
    return f"{text}\n\n{table([*head, 'mean'], rows)}"


def _papers_similarity(unseen: str) -> Matrix:
    rows = find_table(f"similarity-pacs-resnet18-{unseen}-unseen").rows
    return {row.method: row.cells for row in rows}


def _trained(records: Sequence[Record], unseen: str) -> list[Matrix]:
    return [
        record.analysis["sources"]["similarity"]
        for record in records
        if kind(record) == "bne-a" and target(record) == unseen and record.analysis
    ]


def _difference(ours: Matrix, papers: Matrix) -> float:
    """The mean distance of shares, in points; the scale of similarities is arbitrary."""
    return fmean(
        abs(100 * ours[row][column] / sum(ours[row].values()) - 100 * value / sum(own.values()))
        for row, own in papers.items()
        for column, value in own.items()
    )
