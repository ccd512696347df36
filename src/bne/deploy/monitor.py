"""Whether images still come from a domain that a model knows: one by one, and window by window.

An image is a vector: its point in the space of domains, along the principal axes of held-out
images, and its distance from their mean (`bne.deploy.reference`). The vectors of held-out images of
each domain say what is usual there. A window of images is tested against every domain: could so far
a mean come from it? Only if no domain could have given it, the window alarms, so the p-value is the
largest of all domains. Where windows may mix domains, no mixture of them may have given it either.
Single images far out count no more than others: in units of the domain's spread, vectors end at
`LIMIT`.

The test is Hotelling's. How vectors vary around their domain's mean is learned half from its own
images and half from those of all domains: one alone seldom has enough of them, and domains do not
all vary alike. There is room for what a finite number of held-out images leaves unknown: the true
mean of the domain lies within a margin of theirs, with `CONFIDENCE`. The p-value is that of the
worst mean within it, by the noncentral F distribution. So with that confidence over the draw of
held-out images, windows of known images alarm no more often than stated.

This file needs NumPy and SciPy alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bne.deploy.reference import logarithms
from bne.errors import DataError, SettingsError
from bne.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from bne.deploy.answers import Answers
    from bne.deploy.manifest import Manifest
    from bne.deploy.reference import Floats, Reference

CONFIDENCE = 0.999
LIMIT = 3.0  # robust standard deviations
FEWEST = 24  # held-out images; by fewer, the spread of a domain is told too small too often
LEAST = 1e-3  # of a covariance that is left without an image
SMALLEST = 8  # images of a last window that is not full


class Known:
    """What is usual in one domain; `known_domains` makes it.

    Args:
        vectors: (n, P), of held-out images.
    """

    def __init__(self, vectors: Floats) -> None:
        self.images: int = vectors.shape[0]
        self.axes: int = vectors.shape[1]
        self._middle = np.median(vectors, 0)
        self._scale = 1.4826 * np.median(np.abs(vectors - self._middle), 0) + 1e-6
        self.vectors, self._own = vectors, self._scaled(vectors)
        self.mean = self.limited(vectors).mean(0)

    def learn(self, covariance: Floats, share: float, freedom: float) -> None:
        """Takes how vectors vary around the mean of their domain.

        Args:
            covariance: (P, P), of `limited` vectors.
            share: that the square of each of its own vectors has in it.
            freedom: how many independent vectors tell it as well.
        """
        # Here, since it takes a second: a server's first window would hold up all answers.
        from scipy.stats import f  # type: ignore[import-untyped]

        # An axis that hardly varies must not decide by rounding.
        ridge = 1e-4 * np.trace(covariance) / self.axes + 1e-8
        self.precision = np.linalg.inv(covariance + ridge * np.eye(self.axes))
        self._learned = freedom
        spread = self._hotelling(1) * f.ppf(CONFIDENCE, *self._freedom)
        self.margin = float(np.sqrt(spread / self.images))
        self.scores = np.sort(self._left_out(share))

    def _left_out(self, share: float) -> Floats:
        """(n,), the scores of its own images as if mean and covariance were learned without them.

        Both fit their own images better than new ones.
        """
        apart, far = (own - self.mean for own in (self.limited(self.vectors), self._own))
        inner, square = (np.einsum("nk,kl,nl->n", apart, self.precision, x) for x in (far, apart))
        more = self.images / (self.images - 1)
        rest = np.maximum(1 - share * more * square, LEAST)  # Sherman and Morrison's formula
        squares = self.from_mean(self._own) ** 2 + share * more * inner**2 / rest
        found: Floats = more * np.sqrt(squares)
        return found

    @property
    def _freedom(self) -> tuple[int, float]:
        return self.axes, self._learned - self.axes + 1

    def _hotelling(self, value: float) -> float:
        """T² from F."""
        first, second = self._freedom
        return value * first * self._learned / second

    def limited(self, vectors: Floats) -> Floats:
        """Vectors, (N, P), in units of the domain's spread, none of them far out."""
        return np.clip(self._scaled(vectors), -LIMIT, LIMIT)

    def _scaled(self, vectors: Floats) -> Floats:
        found: Floats = (vectors - self._middle) / self._scale
        return found

    def far(self, vectors: Floats) -> Floats:
        """(N,), how far single images lie off, without a limit."""
        return self.from_mean(self._scaled(vectors))

    def from_mean(self, vectors: Floats) -> Floats:
        """(N,), Mahalanobis distances of such vectors, (N, P), from the domain's mean."""
        apart = vectors - self.mean
        found: Floats = np.sqrt(np.einsum("nk,kl,nl->n", apart, self.precision, apart))
        return found

    def window_p_value(self, vectors: Floats) -> float:
        """How probable a window of images of the domain, (m, P), is whose mean lies as far away."""
        from scipy.stats import ncf

        mean = self.limited(vectors).mean(0, keepdims=True)
        statistic = len(vectors) * float(self.from_mean(mean)[0]) ** 2 / self._hotelling(1)
        found = ncf.sf(statistic, *self._freedom, len(vectors) * self.margin**2)
        return float(np.clip(np.nan_to_num(found), 0, 1))

    def image_p_values(self, vectors: Floats) -> Floats:
        """(N,), the share of held-out images that lie as far away, the image itself counted."""
        below = np.searchsorted(self.scores, self.far(vectors), side="left")
        found: Floats = (1 + self.images - below) / (1 + self.images)
        return found


def known_domains(vectors: Mapping[str, Floats]) -> dict[str, Known]:
    """What is usual in each domain that has enough held-out images.

    Args:
        vectors: (n, P) by domain, of its held-out images.

    Returns:
        None of them if all their images together are too few.
    """
    found = {name: Known(own) for name, own in vectors.items() if len(own) >= FEWEST}
    own = [one.limited(one.vectors) - one.mean for one in found.values()]
    images = sum(map(len, own))
    if not own or images - len(own) <= own[0].shape[1]:
        return {}
    squares = [apart.T @ apart for apart in own]
    every = images - len(own)
    for one, square in zip(found.values(), squares, strict=True):
        alone = one.images - 1
        share, others = (1 / alone + 1 / every) / 2, 1 / every / 2  # of each image
        covariance = share * square + others * (sum(squares) - square)
        freedom = 1 / (alone * share**2 + (every - alone) * others**2)  # by Satterthwaite
        one.learn(covariance, share, freedom)
    return found


def mixture_p_value(known: Mapping[str, Known], vectors: Floats) -> tuple[float, dict[str, int]]:
    """How probable a window is whose images may come from several domains.

    Each image counts for the domain that suits it best. Each domain's part is tested by itself, and
    Fisher's method puts their p-values together. Single images that stray to another domain are no
    part of it, so the domain that suits the fewest is left out, again and again, until one is left.
    The best explanation counts.

    Args:
        known: from `known_domains`.
        vectors: (m, P), of the window.

    Returns:
        The p-value, and how many images each domain's part has.
    """
    from scipy.stats import combine_pvalues

    far = {name: own.far(vectors) for name, own in known.items()}
    found: list[tuple[float, dict[str, int]]] = []
    while far:
        best = np.array([*far])[np.argmin([*far.values()], 0)]
        names, counts = np.unique(best, return_counts=True)
        p_values = [known[name].window_p_value(vectors[best == name]) for name in names]
        together = combine_pvalues(np.maximum(p_values, np.finfo(float).tiny)).pvalue
        found.append((float(together), dict(zip(names.tolist(), counts.tolist(), strict=True))))
        far = {name: far[name] for name in names if name != names[counts.argmin()]}
    return max(found, key=lambda one: one[0])


@dataclass(frozen=True)
class Window:
    """What was found of consecutive images.

    Attributes:
        first: number of images before it.
        images: how many it has.
        begin: time of its first image, if known.
        end: time of its last one.
        p_value: how probable such a window is in the known domain that explains it best, or in a
            mixture of them if windows may mix domains.
        alarm: whether that is below the limit.
        nearest: name of the known domain that its images lie nearest to.
        farther: how many times as far from that domain they lie as its held-out images do; None if
            none of these were kept.
        p_values: by known domain, how probable such a window is there.
        mixture: how probable it is in the mixture of known domains that explains it best.
        parts: how many of its images are of each domain in that mixture.
    """

    first: int
    images: int
    begin: datetime | None
    end: datetime | None
    p_value: float
    alarm: bool
    nearest: str
    farther: float | None
    p_values: dict[str, float]
    mixture: float
    parts: dict[str, int]


@dataclass(frozen=True)
class State:
    """Where a watch stands.

    Attributes:
        images: how many it has seen.
        windows: how many were tested.
        alarms: how many of them alarmed.
        window: the last one tested.
        since: the window with which the present alarms began; None if the last did not alarm.
        tested: windows that the latest images completed.
    """

    images: int = 0
    windows: int = 0
    alarms: int = 0
    window: Window | None = None
    since: Window | None = None
    tested: tuple[Window, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether the last window alarmed."""
        return self.since is not None


class Watch:
    """Watches images as they come, in constant memory; `Classifier.monitor` makes it.

    Args:
        model: what is known of the model.
        predict: its `Classifier.predict`, for `add`.
        window: images that are tested together.
        alarm: p-value below which a window alarms.
        mixed: whether a window may mix known domains.

    Attributes:
        domains: names of the domains that a window can be recognized as.
        left_out: names of known domains of which there are too few images to tell.
        state: where it stands.

    Raises:
        SettingsError: The model measures no distances, or keeps none of held-out images.
    """

    def __init__(
        self,
        model: Manifest,
        predict: Callable[[Any], Answers] | None = None,
        *,
        window: int = 64,
        alarm: float = 0.01,
        mixed: bool = False,
    ) -> None:
        if window < SMALLEST:
            raise SettingsError(f"window {window}: test at least {SMALLEST} images together.")
        if not 0 < alarm < 1:
            raise SettingsError(f"alarm {alarm}: choose a p-value between 0 and 1.")
        self.window, self.alarm, self.mixed, self.state = window, alarm, mixed, State()
        self._predict, self._names = predict, model.branches
        self._reference = _reference(model)
        vectors = {name: np.asarray(own) for name, own in self._reference.vectors.items()}
        self._known = known_domains(vectors)
        self.domains = tuple(self._known)
        self.left_out = tuple(name for name in vectors if name not in self._known)
        if not self._known:
            kept = counted(sum(map(len, vectors.values())), "held-out image")
            raise SettingsError(
                f"The model keeps {kept}, too few to tell what is usual: {FEWEST} of a domain are "
                "needed; train with a larger validation share."
            )
        self._waiting: list[tuple[Floats, Floats, datetime | None]] = []
        self._tested = 0  # images

    def add(self, images: Any, time: datetime | Sequence[datetime | None] | None = None) -> State:
        """Looks at images, one or several as `Classifier.predict` takes them.

        Args:
            images: the next ones, in the order of their times.
            time: when they were taken, one for all or each its own, if it is known.

        Returns:
            Where the watch now stands.
        """
        assert self._predict is not None
        answers = self._predict(images)
        times = list(time) if isinstance(time, Iterable) else [time] * len(answers)
        return self.take(answers, times)

    def take(self, answers: Answers, times: Sequence[datetime | None] | None = None) -> State:
        """The same as `add`, from what a model has said of images."""
        count = len(answers)
        if times is not None and len(times) != count:
            raise DataError(f"{count} images need as many times, not {len(times)}.")
        vectors = self._vectors(answers)
        assert answers.distances is not None
        whole = logarithms(answers.distances)
        tested = []
        for row in zip(vectors, whole, times or [None] * count, strict=True):
            self._waiting.append(row)
            if len(self._waiting) == self.window:
                tested.append(self._test())
        return self._moved(count, tested)

    def finish(self) -> State:
        """Tests what waits for a full window, if it is not too little."""
        return self._moved(0, [self._test()] if len(self._waiting) >= SMALLEST else [])

    def p_values(self, answers: Answers) -> Floats:
        """(N,), of each image alone: the share of images of a known domain that lie as far off."""
        vectors = self._vectors(answers)
        found: Floats = np.max([own.image_p_values(vectors) for own in self._known.values()], 0)
        return found

    def _vectors(self, answers: Answers) -> Floats:
        assert answers.seen.vectors is not None
        return answers.seen.vectors

    def _test(self) -> Window:
        rows, whole, times = zip(*self._waiting, strict=True)
        self._waiting.clear()
        first = self._tested
        self._tested += len(rows)
        window, mean = np.stack(rows), np.mean(whole, 0)
        found = {n: own.window_p_value(window) for n, own in self._known.items()}
        mixture, parts = mixture_p_value(self._known, window)
        p_value = max(*found.values(), mixture if self.mixed else 0.0)
        nearest = self._names[int(mean.argmin())]
        usual = self._reference.usual.get(nearest)
        return Window(
            first=first,
            images=len(rows),
            begin=times[0],
            end=times[-1],
            p_value=p_value,
            alarm=p_value < self.alarm,
            nearest=nearest,
            farther=None if usual is None else float(np.exp(mean.min() - usual)),
            p_values=found,
            mixture=mixture,
            parts=parts,
        )

    def _moved(self, images: int, tested: list[Window]) -> State:
        before = self.state
        since = before.since
        for window in tested:
            since = (since or window) if window.alarm else None
        self.state = State(
            images=before.images + images,
            windows=before.windows + len(tested),
            alarms=before.alarms + sum(window.alarm for window in tested),
            window=tested[-1] if tested else before.window,
            since=since,
            tested=tuple(tested),
        )
        return self.state


def summary(state: State, windows: Sequence[Window]) -> str:
    """What all windows of a watch tell, in sentences."""
    seen = f"{counted(state.images, 'image')} in {counted(len(windows), 'window')}"
    if not windows:
        return f"{counted(state.images, 'image')}: too few; a window needs {SMALLEST} or more."
    first = next((own for own in windows if own.alarm), None)
    if first is None:
        least = min(own.p_value for own in windows)
        return f"{seen}: none alarms. The least p-value is {least:.2g}."
    when = f" ({first.begin:%Y-%m-%d %H:%M})" if first.begin else ""
    far = "" if first.farther is None else f", {first.farther:.1f} times as far away as usual"
    alarms = sum(own.alarm for own in windows)
    which = "all alarm" if 1 < alarms == len(windows) else f"{alarms} alarm{'s' * (alarms == 1)}"
    last = ", also the last" if state.alarm else ", but not the last"
    told = which if alarms == len(windows) else which + last
    return (
        f"{seen}: {told}. The first begins at image {first.first + 1}{when}: its images seem to "
        f"come from a domain not known; the nearest known one is {first.nearest}{far}."
    )


def _reference(model: Manifest) -> Reference:
    """What a model keeps of held-out images.

    Raises:
        SettingsError: It measures no distances, or keeps nothing.
    """
    if model.distance is None:
        raise SettingsError(
            f"{model.method} measures no distances to domains; monitor a model of method bne."
        )
    if model.calibration.reference is None:
        raise SettingsError(
            "The model keeps no distances of held-out images to compare with; make its file anew "
            "with bne bundle --data."
        )
    return model.calibration.reference
