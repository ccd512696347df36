"""What the page of a run says first: how well unseen domains are classified, and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bne.inspection.intervals import wilson
from bne.report.charts import mean_percent, percent
from bne.training.scores import RULES, pooled
from bne.words import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.inspection.analysis import Analysis
    from bne.report.look import Look
    from bne.training.folder import Training

MIXED_UP = 3  # pairs of classes named
SURE = 0.9  # confidence from which a wrong answer is a sure one


@dataclass(frozen=True)
class DomainAccuracy:
    """Accuracy on a domain, in percent, with its 95 % interval."""

    name: str  # with what its images are
    accuracy: float
    low: float
    high: float
    images: int
    look: Look


@dataclass(frozen=True)
class Lead:
    """The answer in a sentence, and what its chart shows."""

    sentence: str
    basis: str  # which images, by which network
    chance: float | None  # in percent
    domains: Sequence[DomainAccuracy]  # unseen ones first


def find_lead(
    analysis: Analysis | None, training: Training | None, looks: Mapping[str, Look]
) -> Lead | None:
    """From what the run recorded of the network it keeps or, without that, from the analysis.

    Args:
        analysis: of the trained network, if there is one.
        training: of it, as far as it is known.
        looks: of the domains, by name.
    """
    unlabeled = joined(training)
    if training and (last := training.kept()):
        new = {name: (s.correct, s.images) for name, s in last.target.items()}
        known = {name: (s.correct, s.images) for name, s in last.validation.items()}
        balanced = pooled(last.target.values()) if new else None
        basis, note, what = f"recorded with {RULES['last']}", "held out", "held-out images"
        if last.share:
            basis += ", leaning on each image"
    elif analysis:
        scores = analysis.numbers["accuracy"]["prediction"]
        pairs = {name: (s["correct"], s["images"]) for name, s in scores.items()}
        new = {name: pair for name, pair in pairs.items() if name not in analysis.info.domains}
        known = {name: pair for name, pair in pairs.items() if name not in new}
        balanced, basis, note, what = None, "analyzed here", "seen", "images"
    else:
        return None
    if not new and not known:
        return None
    classes = len(analysis.info.classes) if analysis else None
    chance = 100 / classes if classes else None
    asked = new or known
    correct, images = (sum(pair[place] for pair in asked.values()) for place in (0, 1))
    low, high = wilson(correct / images, images)
    which = "whose labels training never saw" if unlabeled else "which training never saw"
    start = (
        f"On {listed(new)}, {which}," if new else f"On {what} of {listed(known)}, known domains,"
    )
    more = "" if chance is None else f"; chance is {chance:.1f} %"
    sentence = (
        f"{start} {100 * correct / images:.1f} % of {counted(images, 'image')} are classified "
        f"rightly (95 % interval {low:.1f} to {high:.1f}{more})."
    )
    if balanced and balanced.unbalanced and balanced.balanced is not None:
        sentence += f" Its classes are unbalanced: balanced accuracy is {balanced.balanced:.1f} %."
    if analysis and new:
        sentence += _nearest(analysis, list(new))
    domains = [_accuracy(name, unseen(training), pair, looks) for name, pair in new.items()]
    domains += [_accuracy(name, note, pair, looks) for name, pair in known.items()]
    return Lead(sentence, basis, chance, domains)


def joined(training: Training | None) -> bool:
    """Whether the target's images joined training without their labels."""
    return bool(training and training.result and training.result.target_images == "unlabelled")


def unseen(training: Training | None) -> str:
    """What a target is called on the page."""
    return "without labels" if joined(training) else "unseen"


def _accuracy(
    name: str, note: str, pair: tuple[int, int], looks: Mapping[str, Look]
) -> DomainAccuracy:
    correct, images = pair
    ends = wilson(correct / images, images)
    return DomainAccuracy(f"{name} ({note})", 100 * correct / images, *ends, images, looks[name])


def _nearest(analysis: Analysis, domains: Sequence[str]) -> str:
    """The known domain that weighs most in the answers, of each unseen one."""
    weights = analysis.numbers.get("weights", {})
    told = []
    for domain in (one for one in domains if one in weights):
        name, weight = max(weights[domain].items(), key=lambda one: one[1])
        to = f" to {domain}" if len(domains) > 1 else ""
        told.append(f"{name}{to}, with {100 * weight:.0f} % of the weight")
    return f" Nearest known domain: {listed(told)}." if told else ""


def findings(analysis: Analysis) -> list[str]:
    """What stands out in an analysis, in sentences; of unseen domains if there are any."""
    numbers = analysis.numbers
    scores = numbers["accuracy"]["prediction"]
    new = [name for name in scores if name not in analysis.info.domains]
    found = []
    for domain in new or scores:
        found += _lost(analysis, domain)
    if "layers" in numbers:
        found.append(_layers(numbers["layers"], len(analysis.observed.branches)))
    if ranks := numbers["accuracy"].get("by_rank"):
        asked = new or list(scores)
        mixed, near = (mean_percent({d: s[d] for d in asked}) for s in (scores, ranks[0]))
        verb = "gains" if mixed > near else "loses" if mixed < near else "changes nothing:"
        points = "" if mixed == near else f" {abs(mixed - near):.1f} points"
        found.append(
            f"Mixing the branches {verb}{points} on {listed(asked)} against the nearest branch "
            f"alone ({mixed:.1f} % and {near:.1f} %)."
        )
    found += [
        f"{listed(group['domains'])} cannot be told apart: consider making them one domain."
        for group in numbers.get("alike", ())
    ]
    return found


def _lost(analysis: Analysis, domain: str) -> list[str]:
    """Which classes are taken for which, and how many images are surely wrong."""
    observed, classes = analysis.observed, analysis.observed.classes
    score = analysis.numbers["accuracy"]["prediction"][domain]
    lost = score["images"] - score["correct"]
    if not lost:
        return [f"No image of {domain} is lost: all {score['images']} are classified rightly."]
    counts = analysis.numbers["confusion"][domain]
    pairs = [
        (count, true, taken)
        for true, row in enumerate(counts)
        for taken, count in enumerate(row)
        if true != taken and count
    ]
    pairs.sort(key=lambda one: -one[0])
    told = [
        f"{classes[true]} for {classes[taken]} ({count} of {sum(counts[true])})"
        for count, true, taken in pairs[:MIXED_UP]
    ]
    rows = observed.rows([domain])[domain]
    wrong = observed.answers[rows] != observed.truth[rows]
    sure = int((wrong & (observed.confidence[rows] >= SURE)).sum())
    return [
        f"Of {domain}, {lost} of {score['images']} images are lost ({100 - percent(score):.1f} %), "
        f"{sure} of them with a confidence of at least {100 * SURE:.0f} %. Most often taken: "
        f"{listed(told)}."
    ]


def _layers(layers: Mapping[str, Mapping[str, Any]], branches: int) -> str:
    """Which layer carries the distance, and which tells domains apart best."""
    most = max(layers, key=lambda name: layers[name]["share"])
    alone = {name: mean_percent(layer["domain_accuracy"]) for name, layer in layers.items()}
    best = max(alone, key=alone.__getitem__)
    text = f"Layer {most} carries most of the distance, {100 * layers[most]['share']:.0f} %"
    if branches > 1:
        text += (
            f"; layer {best} alone tells known domains apart best, in {alone[best]:.1f} % of "
            f"their images (chance {100 / branches:.1f} %)"
        )
    return f"{text}."
