"""Two models on the same images, image by image: may one replace the other?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bne.data.feed import Feed
from bne.errors import DataError
from bne.inspection.intervals import DRAWS, image_draws, interval, numbered, ratio_interval
from bne.inspection.observe import observe, silent
from bne.training.events import ACCURACY, BALANCED, unbalanced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from bne.data.cache import PreparedImages
    from bne.data.splits import Groups
    from bne.data.transform import EvalTransform
    from bne.inspection.observe import Observed, Tell
    from bne.methods import Method
    from bne.training.events import Measure

ALL = "all images"
BALANCED_DRAWS = 2000


@dataclass(frozen=True)
class Balanced:
    """Balanced accuracies of two models on the same images, in percent.

    Attributes:
        model: mean over the classes there are of the model's accuracy on each.
        against: the same of the other one.
        low: lower end of the 95 % bootstrap interval of `difference`.
        high: upper end of it.
    """

    model: float
    against: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """In points; above 0 the model is better than the other."""
        return self.model - self.against

    @classmethod
    def of(
        cls,
        ours: NDArray[np.bool_],
        theirs: NDArray[np.bool_],
        truth: NDArray[np.int64],
        groups: NDArray[np.int64] | None = None,
        seed: int = 0,
    ) -> Balanced:
        """From which of N images each model classifies correctly, and their classes, (N,) each.

        Draws are those of `bne.inspection.intervals.image_draws`, within each class.
        """
        labels = np.eye(truth.max() + 1)[truth]
        labels = labels[:, labels.any(0)]

        def mean(weights: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
            of_class = weights @ labels
            shares = np.full(of_class.shape, np.nan)
            np.divide(weights @ (labels * right[:, None]), of_class, shares, where=of_class > 0)
            found: NDArray[np.float64] = 100 * np.nanmean(shares, 1)
            return found

        drawn = image_draws(truth, groups, BALANCED_DRAWS, seed, by_class=True)
        pairs = np.concatenate([np.stack([mean(w, ours), mean(w, theirs)]) for w in drawn], 1)
        gaps = pairs[0] - pairs[1]
        return cls(float(pairs[0, 0]), float(pairs[1, 0]), *interval(gaps[1:]))


@dataclass(frozen=True)
class Difference:
    """Correct answers of two models to the same images.

    Attributes:
        images: number of images.
        correct: number that the model classifies correctly.
        against: number that the other one classifies correctly.
        gained: images that only the model classifies correctly.
        lost: images that only the other one classifies correctly.
        low: lower end of the 95 % bootstrap interval of `difference`, of images drawn with
            replacement or, where they are known, of groups.
        high: upper end of it.
        p: two-sided p-value of McNemar's exact test that both are equally often right. It takes
            images for independent, which those of one group are not.
        balanced: the same by balanced accuracy; None for images of one class.
    """

    images: int
    correct: int
    against: int
    gained: int
    lost: int
    low: float
    high: float
    p: float
    balanced: Balanced | None = None

    @property
    def difference(self) -> float:
        """Of the accuracies, in points; above 0 the model is better than the other."""
        return 100 * (self.gained - self.lost) / self.images

    @classmethod
    def of(
        cls,
        ours: NDArray[np.bool_],
        theirs: NDArray[np.bool_],
        groups: NDArray[np.int64] | None = None,
        truth: NDArray[np.int64] | None = None,
        seed: int = 0,
    ) -> Difference:
        """From which of N images each model classifies correctly, (N,) each.

        Images are drawn with replacement, with both models' answers to them. How many of a draw
        are gained and lost is a multinomial number, and is drawn as such.

        Args:
            ours: of the model.
            theirs: of the other.
            groups: numbers of the images' groups, which then are drawn instead.
            truth: the images' classes, for balanced accuracy.
            seed: of the draws.
        """
        count = len(ours)
        gained, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
        if groups is not None:
            gaps = ours.astype(float) - theirs
            low, high = ratio_interval(gaps, np.ones(count), groups, DRAWS, seed)
        else:
            shares = np.array([gained, lost, count - gained - lost]) / count
            draws = np.random.default_rng(seed).multinomial(count, shares, DRAWS)
            low, high = interval(100 * (draws[:, 0] - draws[:, 1]) / count)
        several = truth is not None and len(np.unique(truth)) > 1
        return cls(
            images=count,
            correct=int(ours.sum()),
            against=int(theirs.sum()),
            gained=gained,
            lost=lost,
            low=low,
            high=high,
            p=mcnemar(gained, lost),
            balanced=Balanced.of(ours, theirs, truth, groups, seed) if several else None,  # type: ignore[arg-type]
        )


def mcnemar(gained: int, lost: int) -> float:
    """Two-sided p-value of McNemar's exact test: among images on which two models differ."""
    from scipy.special import bdtr  # type: ignore[import-untyped]

    return min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))


class Candidate(NamedTuple):
    """A model to compare, and the images as it takes them.

    Attributes:
        method: the trained model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        classes: names that it knows, in order.
        prepared: the images, resized to what the transform expects.
        device: to compute on.
    """

    method: Method
    transform: EvalTransform
    classes: Sequence[str]
    prepared: PreparedImages
    device: torch.device | str = "cpu"


@dataclass(frozen=True)
class Comparison:
    """One model against another.

    Attributes:
        total: on all images.
        domains: on those of each domain.
        classes: on those of each class.
        unbalanced: domains whose classes are unbalanced.
        groups: number of groups that intervals draw; None if they draw images.
    """

    total: Difference
    domains: Mapping[str, Difference]
    classes: Mapping[str, Difference]
    unbalanced: tuple[str, ...] = ()
    groups: int | None = None

    @property
    def leading(self) -> Measure:
        """The measure to go by: balanced accuracy if a domain is unbalanced, else accuracy."""
        return BALANCED if self.unbalanced else ACCURACY

    @property
    def lowest(self) -> float:
        """Lower end of the interval of all images' difference, by the leading measure."""
        own = self.total.balanced
        return own.low if own and self.leading == BALANCED else self.total.low


def compare(
    ours: Candidate,
    theirs: Candidate,
    domains: Iterable[str],
    groups: Groups = (),
    tell: Tell = silent,
) -> Comparison:
    """Shows all images of some domains to two models, in float32.

    Args:
        ours: the model that may replace the other.
        theirs: the other, on the same images.
        domains: names of the domains to test on.
        groups: the group of every prepared image of ours, if images have any.
        tell: is called with how many more images were shown, to either.

    Raises:
        DataError: A class or domain is unknown to one of them, or a domain has no images.
    """
    names = list(domains)
    seen, right = _right(ours, names, tell)
    seen_there, right_there = _right(theirs, names, tell)
    if _files(ours, seen) != _files(theirs, seen_there):
        raise DataError("The two models were shown different images; prepare the data again.")
    truth, domain = seen.truth.numpy(), seen.domain.numpy()
    drawn = numbered([groups[n] for n in seen.numbers.tolist()]) if groups else None

    def of(rows: NDArray[np.bool_]) -> Difference:
        own = None if drawn is None else drawn[rows]
        return Difference.of(right[rows], right_there[rows], own, truth[rows])

    places = {name: domain == place for place, name in enumerate(names)}
    return Comparison(
        total=of(np.ones(len(truth), bool)),
        domains={name: of(rows) for name, rows in places.items()},
        classes={ours.classes[k]: of(truth == k) for k in dict.fromkeys(truth.tolist())},
        unbalanced=tuple(n for n in names if unbalanced(np.bincount(truth[places[n]]).tolist())),
        groups=None if drawn is None else len(np.unique(drawn)),
    )


def _files(model: Candidate, seen: Observed) -> list[str]:
    return [model.prepared.images.files[number].name for number in seen.numbers.tolist()]


def _right(
    model: Candidate, domains: Sequence[str], tell: Tell
) -> tuple[Observed, NDArray[np.bool_]]:
    """What a model says of all images, and whether each is classified correctly."""
    members = {name: model.prepared.images.indices_of([name]) for name in domains}
    seen = observe(
        model.method,
        model.transform,
        model.classes,
        model.prepared,
        Feed(model.prepared, model.device),
        members,
        weightings=["uniform"],
        tell=tell,
    )
    return seen, (seen.answers == seen.truth).numpy()
