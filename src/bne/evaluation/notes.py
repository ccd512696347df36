"""What a reader must know of a table's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bne.methods.registry import find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bne.engine.recipe_files import Experiment
    from bne.evaluation.reference import PaperTable
    from bne.evaluation.tables import Found

LATENT = {
    "closest-domain-accuracy": "Avg. weighs targets by their images.",
    "domain-accuracy": "How often training images lie nearest to their own domain, mean over the "
    "source domains, in percent; Avg. Class is the accuracy on the target.",
    "similarity": "Mean 1 / distance of a row's training images to each domain, in percent of the "
    "row: its scale is arbitrary.",
}


def notes(experiment: Experiment, found: Found, paper: PaperTable | None) -> list[str]:
    """Sentences on what was trained and from what, and what is compared with what.

    Args:
        experiment: that the table is of.
        found: its runs, with their records.
        paper: the table of the paper beside it.
    """
    recipes = [item.recipe for item, _ in found]
    backbones = _named(recipe.backbone for recipe in recipes)
    weights = _named(item.settings["weights"] or "none: random" for item, _ in found)
    epochs = _named(f"{recipe.head.epochs} + {recipe.train.epochs}" for recipe in recipes)
    sentences = [
        f"{experiment.title}.",
        f"Backbone: {backbones}. Initial weights: {weights}. Epochs, head + all: {epochs}.",
    ]
    if paper and paper.backbone not in backbones:
        sentences.append(f"The paper's figures are of {paper.backbone}, not of {backbones}.")
    adapted = dict.fromkeys(i.row for i, _ in found if find(i.recipe.method).method.uses_target)
    if adapted:
        sentences.append(f"Trained with unlabelled images of the target: {', '.join(adapted)}.")
    if experiment.analysis:
        sentences.append(LATENT[experiment.analysis])
    else:
        sentences.append("Accuracy on the target, in percent.")
    return sentences


def _named(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
