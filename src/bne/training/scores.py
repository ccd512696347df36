"""Which images a network classifies correctly; rules that choose an epoch and a share by them."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

from bne.errors import TrainingError
from bne.training.events import ACCURACY, BALANCED, Leaning, Score

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import torch
    from torch import Tensor

    from bne.core.options import Lean
    from bne.methods import Method
    from bne.training.events import Epoch, Measure, Scores, Share
    from bne.training.runtime import Runtime

Rule = Literal["last", "validation", "oracle"]
RULES: dict[Rule, str] = {
    "last": "the last epoch",
    "validation": "the epoch best on held-out source images",
    "oracle": "the epoch best on the target itself, no fair choice but an upper bound",
}
"""The epoch that each rule chooses: the project's only wording, for tables, pages and commands."""
LABELS: dict[Rule, str] = {rule: rule for rule in RULES} | {"oracle": "oracle (on the target)"}
"""Short names of the rules; none shows the oracle without saying what it is chosen on."""


UNTESTED = (
    "No unseen domain was tested. What to expect at a new one comes from leaving each domain out "
    "in turn (bne benchmark)."
)
"""The project's only wording of what is not known of a network trained without a target."""


def sentence(rule: Rule) -> str:
    """What a rule chooses, as `Last: the last epoch.` says it."""
    return f"{rule.capitalize()}: {RULES[rule]}."


def last(epochs: Sequence[Epoch]) -> Epoch:
    """The last epoch of training."""
    return _training(epochs)[-1]


def best_on_validation(epochs: Sequence[Epoch]) -> Epoch | None:
    """The epoch of the highest mean accuracy on the source domains' held-out images.

    Ties go to the later. None if no images are held out.
    """
    rated = [epoch for epoch in _training(epochs) if epoch.validation]
    return max(reversed(rated), key=lambda epoch: mean_accuracy(epoch.validation), default=None)


def oracle(epochs: Sequence[Epoch]) -> Epoch:
    """The epoch of the highest accuracy on the target itself: no fair choice, an upper bound.

    All targets' images count alike; ties go to the later.
    """
    return max(
        reversed(_training(epochs)), key=lambda epoch: pooled(epoch.target.values()).accuracy
    )


def choose(epochs: Sequence[Epoch]) -> dict[Rule, Epoch]:
    """The epoch under every rule that applies; of no rule before the first epoch of training.

    "validation" is absent if no images are held out, "oracle" if there is no target.
    """
    if not _training(epochs):
        return {}
    found: dict[Rule, Epoch] = {"last": last(epochs)}
    if best := best_on_validation(epochs):
        found["validation"] = best
    if found["last"].target:
        found["oracle"] = oracle(epochs)
    return found


def select(epochs: Sequence[Epoch]) -> dict[str, Scores]:
    """The target's scores under every rule, see `choose`; of no domain if there is no target."""
    return {rule: epoch.target for rule, epoch in choose(epochs).items()}


def stale(epochs: Sequence[Epoch]) -> int:
    """How many epochs of training went by since source validation was last better than ever."""
    means = [mean_accuracy(epoch.validation) for epoch in _training(epochs)]
    return len(means) - 1 - means.index(max(means)) if means else 0


def undone(epochs: Sequence[Epoch], classes: int) -> str:
    """What one should know if training undid what the network knew; else nothing.

    There are two signs, and an epoch must show both: its loss is above that of guessing, and
    held-out images come out worse than with the last layer trained alone. Many do not recover.
    """
    known, guess = [epoch for epoch in epochs if epoch.validation], math.log(classes)
    head = [epoch for epoch in known if epoch.phase == "head"]
    if not head:
        return ""
    before = mean_accuracy(head[-1].validation)
    for epoch in _training(known):
        after = mean_accuracy(epoch.validation)
        if epoch.loss > guess and after < before:
            return (
                f"Training undid much of what the network knew: in epoch {epoch.epoch} the loss is "
                f"{epoch.loss:.2f}, that of guessing {guess:.2f}, and of held-out images "
                f"{after:.1f} % come out right, {before:.1f} % with the last layer trained alone. "
                f"{CALMER}"
            )
    return ""


CALMER = (
    "Lower train.optimiser.learning_rate or its head_factor, or clip gradients "
    "(train.optimiser.clip=1)."
)


def mean_accuracy(scores: Scores) -> float:
    """In percent; every domain counts alike, however many images it has."""
    return sum(score.accuracy for score in scores.values()) / len(scores)


def pooled(scores: Iterable[Score]) -> Score:
    """The score of all images together; balanced accuracy is the mean over their domains."""
    scores = list(scores)
    correct, images = (sum(getattr(s, key) for s in scores) for key in ("correct", "images"))
    known = [score.balanced for score in scores if score.balanced is not None]
    if len(known) < len(scores):
        return Score(correct, images)
    mean = sum(known) / len(known)
    return Score(correct, images, mean, any(score.unbalanced for score in scores))


def leading(scores: Iterable[Score]) -> Measure:
    """The measure to go by: balanced accuracy if classes of some domain are unbalanced."""
    one = pooled(scores)
    return BALANCED if one.unbalanced else ACCURACY


def _training(epochs: Sequence[Epoch]) -> list[Epoch]:
    return [epoch for epoch in epochs if epoch.phase == "train"]


SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Shares that a trained network is scored at, leaning on its images' own statistics."""

SHARE_RULE = (
    "the largest share up to 0.1, or 0.2 if trained to lean, that costs held-out source images no "
    "more than a standard error"
)
"""The project's only wording of how a share is chosen, if none is learned."""


def choose_share(leanings: Sequence[Leaning], most: float) -> float:
    """The largest share that costs held-out images no more than a standard error; 0 without any.

    The cost is the paired difference of accuracy to share 0, over all held-out images. Few of them
    would allow any share, so there is a limit.

    Args:
        leanings: the same network at several shares; learned ones do not count.
        most: the limit, see `bne.methods.Method.most_lean`.
    """
    shares = (
        one.share
        for one in leanings
        if one.share != "learned" and one.share <= most and _is_free(one)
    )
    return max(shares, default=0.0)


def choose_leaning(leanings: Sequence[Leaning], most: float) -> Leaning:
    """The network at its learned shares or, if it has none, at the one of `choose_share`."""
    learned = any(one.share == "learned" for one in leanings)
    share = "learned" if learned else choose_share(leanings, most)
    return next(one for one in leanings if one.share == share)


def shares_of(method: Method) -> dict[Share, Lean]:
    """What a method is scored at: `SHARES` and, if it has any, its learned shares."""
    shares: dict[Share, Lean] = {share: share for share in SHARES}
    learned = method.learned_lean
    if learned is not None:
        shares["learned"] = learned
    return shares


def _is_free(found: Leaning) -> bool:
    count = sum(score.images for score in found.validation.values())
    if not count:
        return found.share == 0
    cost = (found.lost - found.gained) / count
    variance = (found.lost + found.gained) / count - cost**2
    return cost <= math.sqrt(variance / count)


BATCH = 256  # images at a time where nothing is learned
USUAL = 224  # pixels of them


def scores(runtime: Runtime, method: Method) -> tuple[Scores, Scores]:
    """Of the held-out images of the sources, and of all images of the targets.

    One process finds them for all; the method is left in the mode it was in.

    Raises:
        TrainingError: An answer is no number.
    """
    import torch

    members = {**runtime.inputs.validation, **runtime.inputs.target}
    classes = len(runtime.inputs.images.classes)
    found = torch.zeros(2, len(members), classes, dtype=torch.long, device=runtime.device)
    if runtime.processes.first:
        found += _count(runtime, method, members.values())
    correct, wild = runtime.processes.sum(found).tolist()
    if names := [domain for domain, images in zip(members, wild, strict=True) if any(images)]:
        raise TrainingError(
            f"The network's answers to images of {', '.join(names)} are not finite; train anew, in "
            "another folder, with a lower learning rate or with clipped gradients "
            "(train.optimiser.clip)."
        )
    return _scored(runtime, correct)


def _scored(runtime: Runtime, correct: Iterable[Sequence[int]]) -> tuple[Scores, Scores]:
    """From how many images of each class are right, domain by domain, the targets last."""
    images, counts = runtime.inputs.images, iter(correct)

    def score(numbers: Sequence[int]) -> Score:
        sizes = Counter(images.files[number].label for number in numbers)
        return Score.of(next(counts), [sizes[label] for label in range(len(images.classes))])

    validation, target = (
        {domain: score(numbers) for domain, numbers in group.items()}
        for group in (runtime.inputs.validation, runtime.inputs.target)
    )
    return validation, target


def leanings(
    runtime: Runtime, method: Method, after_batch: Callable[[], None] = lambda: None
) -> list[Leaning]:
    """The scores of a method in evaluation mode at all `shares_of` it, from the same weights.

    One process finds them for all; the method is left with the share it had. None if it does not
    lean, or has no batch norm to lean at. `after_batch` is called after each batch, and may raise
    to stop.
    """
    import torch

    if not (method.can_lean and method.has_batch_norm):
        return []
    validation = runtime.inputs.validation
    groups = [*validation.values(), *runtime.inputs.target.values()]
    # For every share, domain and class: correct answers, and those gained and lost by leaning.
    shares, classes = shares_of(method), len(runtime.inputs.images.classes)
    shape = (len(shares), len(groups), 3, classes)
    found = torch.zeros(shape, dtype=torch.long, device=runtime.device)
    if runtime.processes.first:
        for place, numbers in enumerate(groups):
            counts = _leaning_counts(runtime, method, shares.values(), numbers, after_batch)
            found[:, place] = counts
    kept = []
    for share, counts in zip(shares, runtime.processes.sum(found).tolist(), strict=True):
        own, unseen = _scored(runtime, (count for count, _, _ in counts))
        held_out = counts[: len(validation)]
        gained, lost = (sum(sum(count[k]) for count in held_out) for k in (1, 2))
        kept.append(Leaning(share, own, unseen, gained, lost))
    return kept


def _leaning_counts(
    runtime: Runtime,
    method: Method,
    shares: Collection[Lean],
    numbers: Sequence[int],
    after_batch: Callable[[], None],
) -> Tensor:
    """(shares, 3, classes) for the images of one domain, each read once."""
    import torch

    before, parts, truth = method.lean, [], []
    with torch.inference_mode(), runtime.autocast():
        for images, labels in runtime.feed.gather(_batches(runtime, numbers)):
            images = runtime.transform(images)
            rows = []
            for method.lean in shares:
                rows.append(method.predict(images).argmax(1) == labels)
            parts.append(torch.stack(rows))
            truth.append(labels)
            after_batch()
    method.lean = before
    right = torch.cat(parts, 1)  # (shares, N)
    counts = torch.stack([right, right & ~right[0], right[0] & ~right], 1)
    return _by_class(runtime, counts, torch.cat(truth))


def _by_class(runtime: Runtime, counts: Tensor, labels: Tensor) -> Tensor:
    """Sums counts of images, (..., N), to those of classes, (..., C)."""
    shape = (*counts.shape[:-1], len(runtime.inputs.images.classes))
    return counts.new_zeros(shape, dtype=labels.dtype).index_add_(-1, labels, counts.long())


def _count(runtime: Runtime, method: Method, domains: Iterable[Sequence[int]]) -> Tensor:
    """(2, D, C), how many images of each domain and class get the right answer, how many none.

    No batch mixes domains, and the device is not waited for.
    """
    import torch

    training = method.training
    method.eval()
    counts = []
    with torch.inference_mode(), runtime.autocast():
        for numbers in domains:
            parts = []
            for images, labels in runtime.feed.gather(_batches(runtime, numbers)):
                logits = method.predict(runtime.transform(images))
                found = torch.stack([logits.argmax(1) == labels, ~logits.isfinite().all(1)])
                parts.append(_by_class(runtime, found, labels))
            counts.append(torch.stack(parts).sum(0))
    method.train(training)
    return torch.stack(counts, 1)


def _batches(runtime: Runtime, numbers: Sequence[int]) -> list[Tensor]:
    import torch

    size = runtime.transform.preprocessing.size
    return batches(torch.as_tensor(numbers), at_once(size, runtime.device))


def at_once(size: int, device: torch.device) -> int:
    """How many images are run at a time: small ones, each with less work, more on a GPU.

    A GPU takes as long to start on few images as on many, and a CPU's cache holds few.
    """
    return max(BATCH, BATCH * USUAL**2 // size**2) if device.type == "cuda" else BATCH


def batches(numbers: Tensor, most: int | None = None) -> list[Tensor]:
    """Cuts a domain's images into batches spread evenly over it, whatever they are sorted by."""
    count = -(-len(numbers) // (most or BATCH))
    return [numbers[start::count] for start in range(count)]
