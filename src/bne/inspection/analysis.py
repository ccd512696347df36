"""A trained model on images: figures for records, and all that a page about it shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from bne.core.ensemble import DomainEnsemble
from bne.data.feed import Feed
from bne.inspection import numbers as figures
from bne.inspection.maps import NEIGHBORS, Map, choose_layers, make_maps
from bne.inspection.observe import branches, observe, sample, silent
from bne.training.runtime import autocast, effective

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet
    from bne.data.transform import EvalTransform
    from bne.inspection.numbers import Numbers
    from bne.inspection.observe import Observed, Tell
    from bne.methods import Method
    from bne.training.model_folder import ModelInfo, Trained

EACH = 4  # examples of a kind and a domain
POINTS = 20_000  # on a map: more take long to lay out, and their pictures fill the page
NUMBERS = 800_000  # of points on maps, which fill the page too: as many points as that allows
NO_BRANCHES = "This method weighs no branches: there are no weights, similarities or maps."
NO_POINTS = "This method compares no statistics: there are no similarities, layers or maps."
HELD_OUT = "All images drawn of {} were held out from training: draw more (--images) to place it."
NONE_SEEN = (
    "No image is of a domain that has a branch: how well domains are told apart is not known."
)
FEW_POINTS = "There are too few images for a map."
SAME_WEIGHTS = "All images have the same weights: none is more confident or mixed than another."


def analyse(trained: Trained) -> dict[str, Any]:
    """Figures for the record of a run, ready for JSON, of all images of targets and sources.

    They are of a network that leans as the record's accuracies are, which is not at all but for
    methods that are trained so.

    `target` has, by target domain, `accuracy`, `calibration_error`, `confusion` and, if branches
    are weighed, mean `weights`. `sources`, if branches are weighed, has by source domain mean
    `weights` and `similarity` of training images, `domain_accuracy` of training and of held-out
    images, and `layers`; see `bne.inspection.numbers`.

    Raises:
        DataError: An answer is not finite.
    """
    device, splits, images = trained.device, trained.splits, trained.prepared.images
    targets = trained.recipe.target
    members = {domain: images.indices_of([domain]) for domain in targets}
    held_out = {number for split in splits.values() for number in split.validation}
    if branches(trained.method):
        members |= {domain: [*split.train, *split.validation] for domain, split in splits.items()}
    share, trained.method.lean = trained.method.lean, trained.method.scored_lean
    with autocast(effective(trained.recipe.precision, device), device):
        observed = observe(
            trained.method,
            trained.transform,
            images.classes,
            trained.prepared,
            trained.feed,
            members,
            held_out=held_out,
        )
    trained.method.lean = share
    rows = observed.rows(targets)
    target = figures.answers(observed, rows)
    del target["reliability"]
    if not observed.branches:
        return {"target": target}
    target["weights"] = figures.means(observed, observed.weights, rows)
    train, validation = (observed.rows(splits, held_out=which) for which in (False, True))
    sources = {
        "weights": figures.means(observed, observed.weights, train),
        "domain_accuracy": {
            "train": figures.domain_accuracy(observed, train),
            "validation": figures.domain_accuracy(observed, validation),
        },
    }
    if observed.known is not None:
        sources["similarity"] = figures.similarity(observed, train)
        sources["layers"] = figures.layers(observed, train)
    return {"branches": list(observed.branches), "target": target, "sources": sources}


@dataclass(frozen=True)
class Example:
    """One image and what the model says of it.

    Attributes:
        number: number of the prepared image.
        name: name of the image.
        domain: its domain.
        truth: its class.
        answer: the predicted class.
        weights: weights of the branches, by domain.
        confidence: probability of the predicted class.
    """

    number: int
    name: str
    domain: str
    truth: str
    answer: str
    weights: Mapping[str, float]
    confidence: float


def remarkable(observed: Observed, images: ImageSet) -> dict[str, list[Example]]:
    """The images, at most as many of each domain, by what they are; kinds without any are absent.

    `surely wrong` have the highest confidence of the wrong answers. `most confident` weights have
    a small entropy, `most mixed` ones a large one: none where all weights are the same, or there
    are none.
    """
    weights = observed.weights
    wrong = observed.answers != observed.truth
    kinds = {"surely wrong": (-observed.confidence, wrong)}
    if observed.branches and bool((weights - weights[0]).abs().max() >= 1e-6):
        entropy, every = torch.special.entr(weights.double()).sum(1), torch.ones_like(wrong)
        kinds |= {"most confident": (entropy, every), "most mixed": (-entropy, every)}
    found = {
        kind: [
            describe(observed, images, row)
            for rows in observed.rows().values()
            for row in _first(rows[among[rows]], key)
        ]
        for kind, (key, among) in kinds.items()
    }
    return {kind: own for kind, own in found.items() if own}


def _first(rows: Tensor, key: Tensor) -> list[int]:
    """The rows of the smallest keys."""
    found: list[int] = rows[key[rows].argsort(stable=True)][:EACH].tolist()
    return found


def describe(observed: Observed, images: ImageSet, row: int) -> Example:
    """One of the observed images."""
    number = int(observed.numbers[row])
    return Example(
        number,
        images.files[number].name,
        observed.domains[int(observed.domain[row])],
        observed.classes[int(observed.truth[row])],
        observed.classes[int(observed.answers[row])],
        dict(zip(observed.branches, observed.weights[row].tolist(), strict=True)),
        float(observed.confidence[row]),
    )


@dataclass(frozen=True, eq=False)
class Analysis:
    """A trained model on some images, as a page shows it.

    Attributes:
        info: facts about the model.
        prepared: the images.
        observed: what the model says of those drawn.
        numbers: figures, see `page_numbers`.
        maps: maps of all layers together, then of single ones; none where there is no such space.
        points: the images on the maps, in their order.
        examples: images worth a look, by what they are.
        seed: seed of the draw and of the maps.
        data: name of the data.
        network: which of a run's networks the model is, in a sentence.
    """

    info: ModelInfo
    prepared: PreparedImages
    observed: Observed
    numbers: Numbers
    maps: Sequence[Map]
    points: Sequence[Example]
    examples: Mapping[str, Sequence[Example]]
    seed: int
    data: str = ""
    network: str = ""

    @property
    def seen(self) -> tuple[str, ...]:
        """The domains of the images that the model was trained on."""
        return tuple(name for name in self.observed.domains if name in self.info.domains)

    @property
    def images(self) -> dict[str, dict[str, int]]:
        """By domain: how many were used, how many of these held out, and how many there are."""
        return {
            domain: {
                "used": len(rows),
                "held_out": int(self.observed.held_out[rows].sum()),
                "there": len(self.prepared.images.indices_of([domain])),
            }
            for domain, rows in self.observed.rows().items()
        }

    @property
    def chosen(self) -> int:
        """The image whose distances are drawn first, a row of the maps: a typical unseen one.

        Its weights are nearest to the mean of its domain, the first unseen one if there is any.
        """
        weights = self.observed.weights[self.observed.mapped]
        unseen = [point.domain for point in self.points if point.domain not in self.seen]
        first = [*unseen, self.points[0].domain][0]
        rows = torch.tensor([i for i, p in enumerate(self.points) if p.domain == first])
        off = (weights[rows] - weights[rows].mean(0)).abs().sum(1)
        return int(rows[off.argmin()])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, for JSON."""
        return {
            "model": {
                "method": self.info.method,
                "backbone": self.info.backbone,
                "trained_on": list(self.info.domains),
                "classes": list(self.info.classes),
                "bne": self.info.bne,
            },
            "images": self.images,
            "seed": self.seed,
            "branches": list(self.observed.branches),
            **self.numbers,
            "examples": {
                kind: [asdict(one) for one in found] for kind, found in self.examples.items()
            },
            "map_images": [point.name for point in self.points],
            "maps": {
                one.name: {"images": one.images.tolist(), "domains": one.domains.tolist()}
                for one in self.maps
            },
        }


def analyse_images(
    method: Method,
    transform: EvalTransform,
    info: ModelInfo,
    prepared: PreparedImages,
    domains: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    images: int = 500,
    held_out: Collection[int] = (),
    seed: int = 0,
    device: str | torch.device = "cpu",
    after_images: Tell = silent,
    after_map: Tell = silent,
) -> Analysis:
    """Shows images to a trained model, in float32, and studies what it says of them.

    Args:
        method: the model, on the device, in evaluation mode.
        transform: the step from prepared images to its input.
        info: facts about the model.
        prepared: the images.
        domains: names of domains to study, seen or not.
        layers: layers to map; by default the first, the middle and the last.
        images: the most images of each domain, drawn at random.
        held_out: numbers of images of source domains that were held out from training.
        seed: seed of the draw and of the maps.
        device: device to compute on.
        after_images: is called with how many more images were shown.
        after_map: is called after each map.

    Raises:
        DataError: A domain, class or layer is unknown, or an answer is not finite.
    """
    maps = 1
    if isinstance(method.net, DomainEnsemble):
        maps += len(choose_layers(method.net.domain_embeddings().layers, layers))
    members = sample(prepared.images, domains, images, seed)
    most = NUMBERS // maps // (2 + len(info.domains) + NEIGHBORS)  # its place, distances, neighbors
    each = max(1, min(POINTS, most) // len(members))
    observed = observe(
        method,
        transform,
        info.classes,
        prepared,
        Feed(prepared, device),
        members,
        held_out=held_out,
        points=each,
        tell=after_images,
    )
    numbers = page_numbers(observed)
    examples = remarkable(observed, prepared.images)
    drawn = make_maps(observed, layers, seed, after_map)
    mapped = observed.mapped.tolist() if drawn else []
    shown = [describe(observed, prepared.images, row) for row in mapped]
    if observed.known is not None and not drawn:
        numbers["left_out"].append(FEW_POINTS)
    if observed.branches and "most mixed" not in examples:
        numbers["left_out"].append(SAME_WEIGHTS)
    return Analysis(info, prepared, observed, numbers, drawn, shown, examples, seed)


def page_numbers(observed: Observed) -> Numbers:
    """Figures for a page, ready for JSON, all of them by domain; see `bne.inspection.numbers`.

    `accuracy`, `calibration_error`, `reliability` and `confusion` are of all images. `weights`,
    `similarity`, `similarity_share` (the same with rows that add up to 1), `domain_accuracy` and
    `layers` (of seen domains) are of images that were not held out from training; `alike` is of
    those that were, or of all if none was. What does not
    apply is absent, and `left_out` says why, in sentences.
    """
    numbers = figures.answers(observed, observed.rows())
    if not observed.branches:
        return {**numbers, "left_out": [NO_BRANCHES]}
    rows = observed.rows(held_out=False)
    numbers["weights"] = figures.means(observed, observed.weights, rows)
    numbers["domain_accuracy"] = figures.domain_accuracy(observed, rows)
    seen = {name: rows[name] for name in numbers["domain_accuracy"]}
    if observed.known is not None and rows:
        numbers["similarity"] = figures.similarity(observed, rows)
        numbers["similarity_share"] = {
            domain: {name: value / sum(row.values()) for name, value in row.items()}
            for domain, row in numbers["similarity"].items()
        }
        if seen:
            numbers["layers"] = figures.layers(observed, seen)
            numbers["alike"] = figures.alike(observed, observed.rows(held_out=True) or rows)
    missing = ", ".join(name for name in observed.domains if name not in rows)
    reasons = {
        HELD_OUT.format(missing): missing,
        NONE_SEEN: not seen,
        NO_POINTS: observed.known is None,
    }
    return {**numbers, "left_out": [sentence for sentence, holds in reasons.items() if holds]}
