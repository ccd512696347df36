"""Shows images to a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.core import distances
from bne.core.embedding import Embedding
from bne.core.ensemble import DomainEnsemble
from bne.core.prediction import Prediction
from bne.data.feed import Feed
from bne.errors import DataError
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from bne.core.distances import Distance
    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet
    from bne.data.transform import EvalTransform
    from bne.methods import Method


@dataclass(frozen=True, eq=False)
class View:
    """N images seen by K branches.

    Attributes:
        logits: (N, classes), the method's answer.
        weights: (N, K), of the branches in it.
        branch_logits: (N, K, classes), each branch's own answer.
        nearness: (N, K), the larger the nearer an image lies to a branch's domain.
        points: where the images lie in the space of domains, if that is what weighs them.
        known: where the K domains lie there.
        mix: what the weights combine, as in `DomainEnsemble`.
    """

    logits: Tensor
    weights: Tensor
    branch_logits: Tensor
    nearness: Tensor
    points: Embedding | None
    known: Embedding | None
    mix: str

    def is_finite(self) -> Tensor:
        """(), whether all answers are numbers."""
        return self.logits.isfinite().all() & self.branch_logits.isfinite().all()

    def branch_answers(self) -> Tensor:
        """(N, K), the class that each branch sees."""
        return self.branch_logits.argmax(2)

    def ranked_answers(self) -> Tensor:
        """(N, K), the same with the nearest branch first, for each image."""
        order = self.nearness.argsort(dim=1, descending=True, stable=True)
        return self.branch_answers().gather(1, order)

    def answers_under(self, weights: Tensor) -> Tensor:
        """(N,), the class that the branches see together under other weights, (N, K)."""
        softened = self.mix == "probabilities"
        scores = self.branch_logits.softmax(2) if softened else self.branch_logits
        return (weights.unsqueeze(2) * scores).sum(1).argmax(1)

    def other_weights(self) -> dict[str, Tensor]:
        """The weights, (N, K), that each registered distance would give."""
        if self.points is None or self.known is None:
            return {"uniform": torch.full_like(self.weights, 1 / self.weights.shape[1])}
        return {
            name: distances.inverse_weights(distances.get(name)(self.points, self.known))
            for name in distances.names()
        }


def branches(method: Method) -> tuple[str, ...]:
    """The domains of a method's branches; none if it has no branches to weigh."""
    net = method.net
    return net.domains if hasattr(method, "explain") and isinstance(net, DomainEnsemble) else ()


def view(method: Method, images: Tensor) -> View:
    """What a method with branches says of images, (N, 3, H, W), in evaluation mode."""
    net = method.net
    assert isinstance(net, DomainEnsemble)
    out = method.explain(images)  # type: ignore[operator]  # torch types attributes as modules
    branch_logits = out.branch_logits
    if net.nearest is not None or net.mix == "statistics":
        branch_logits = net.branches(images)  # the answer needed some of them at most
    points = known = None
    nearness = out.weights
    if isinstance(out, Prediction):
        points = out.embedding
        known = net.domain_embeddings().select(points.layers)
        nearness = -ranking_distance(net)(points, known)
    return View(out.logits, out.weights, branch_logits, nearness, points, known, net.mix)


def ranking_distance(net: DomainEnsemble) -> Distance:
    """The one that tells the nearest domain: the network's own, unless that is always the same."""
    return distances.wasserstein if net.distance is distances.uniform else net.distance


@dataclass(frozen=True, eq=False)
class Weighing:
    """What K weighted branches say of N images, on the CPU.

    Attributes:
        weights: (N, K).
        nearness: (N, K), the larger the nearer an image lies to a branch's domain.
        by_branch: (N, K), the class that each branch sees.
        by_rank: (N, K), the same with the nearest branch first.
        by_weighting: (N,), the class seen under other weights, by their name.
    """

    weights: Tensor
    nearness: Tensor
    by_branch: Tensor
    by_rank: Tensor
    by_weighting: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Location:
    """Where images lie among the K domains, on the CPU.

    Attributes:
        layer_distances: (N, K) of all images, by layer: their distances in that layer alone.
        rows: (M,), the images that have a point, as rows of all N.
        points: the M points.
        known: the K domains' points.
    """

    layer_distances: Mapping[str, Tensor]
    rows: Tensor
    points: Embedding
    known: Embedding


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model says of N images of several domains, on the CPU.

    Attributes:
        domains: the names of the images' domains.
        classes: the names of the classes.
        branches: the names of the K domains that the model has a branch of; none if it has none.
        numbers: (N,), the images as numbers of the prepared ones.
        domain: (N,), an index into `domains`.
        held_out: (N,), whether an image of a domain trained on was kept from training.
        truth: (N,), the true class.
        logits: (N, classes), the model's answer.
        weighing: of the branches, if there are any.
        location: in the space of domains, if that is what weighs the branches.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    branches: tuple[str, ...]
    numbers: Tensor
    domain: Tensor
    held_out: Tensor
    truth: Tensor
    logits: Tensor
    weighing: Weighing | None
    location: Location | None

    @cached_property
    def answers(self) -> Tensor:
        """(N,), the class that the model sees."""
        return self.logits.argmax(1)

    def rows_of(self, domain: str) -> Tensor:
        """The rows of a domain's images."""
        return (self.domain == self.domains.index(domain)).nonzero().flatten()

    def placed_rows_of(self, domain: str) -> Tensor:
        """The rows of those that say where a domain lies: none that was held out."""
        rows = self.rows_of(domain)
        return rows[~self.held_out[rows]]


def joined(parts: Sequence[Observed]) -> Observed:
    """What was said of several groups of images, one after another."""
    weighings = [part.weighing for part in parts if part.weighing is not None]
    return replace(
        parts[0],
        numbers=torch.cat([part.numbers for part in parts]),
        domain=torch.cat([part.domain for part in parts]),
        held_out=torch.cat([part.held_out for part in parts]),
        truth=torch.cat([part.truth for part in parts]),
        logits=torch.cat([part.logits for part in parts]),
        weighing=_joined_weighings(weighings) if weighings else None,
        location=_joined_locations(parts),
    )


def _joined_weighings(parts: Sequence[Weighing]) -> Weighing:
    return Weighing(
        torch.cat([part.weights for part in parts]),
        torch.cat([part.nearness for part in parts]),
        torch.cat([part.by_branch for part in parts]),
        torch.cat([part.by_rank for part in parts]),
        {
            name: torch.cat([part.by_weighting[name] for part in parts])
            for name in parts[0].by_weighting
        },
    )


def _joined_locations(parts: Sequence[Observed]) -> Location | None:
    locations = []
    rows, before = [], 0
    for part in parts:
        if part.location is None:
            return None
        locations.append(part.location)
        rows.append(part.location.rows + before)
        before += len(part.numbers)
    return Location(
        {
            layer: torch.cat([one.layer_distances[layer] for one in locations])
            for layer in locations[0].layer_distances
        },
        torch.cat(rows),
        Embedding.cat([one.points for one in locations]),
        locations[0].known,
    )


def sample(images: ImageSet, domains: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """The numbers of at most `count` images of each domain, drawn at random, by domain.

    Raises:
        DataError: A domain is unknown or has no images.
    """
    drawn = {}
    for domain in domains:
        numbers = some_of(images, domain)
        drawn[domain] = np.random.default_rng(seed).permutation(numbers)[:count].tolist()
    return drawn


@torch.inference_mode()
def observe(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    members: Mapping[str, Sequence[int]],
    *,
    points: int,
    held_out: Collection[int] = (),
    device: torch.device | str = "cpu",
) -> Observed:
    """Shows images to a model, once, in float32.

    Args:
        method: the trained model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        classes: that it knows, in order.
        prepared: images, those of the domains labelled with these classes or some of them.
        members: the images to show, by domain.
        points: of how many images to keep the points: the first of each domain, equally many.
        held_out: images of domains trained on that were kept from training.
        device: to compute on.

    Raises:
        DataError: A class is unknown, or an answer is no number.
    """
    labels = translated(prepared.images, members, classes)
    kept_out = torch.tensor(sorted(held_out), dtype=torch.int64)
    feed = Feed(prepared, device)
    each = max(1, points // len(members))
    parts = []
    for number, chosen in enumerate(members.values()):
        kept = torch.tensor(chosen[:each])
        plan = batches(torch.tensor(chosen))
        for numbers, (images, _) in zip(plan, feed.gather(plan), strict=True):
            logits, weighing, location = _look(method, transform(images), numbers, kept)
            names = tuple(members), tuple(classes), branches(method)
            domain = torch.full_like(numbers, number)
            out = torch.isin(numbers, kept_out)
            truth = labels[prepared.labels[numbers]]
            parts.append(Observed(*names, numbers, domain, out, truth, logits, weighing, location))
    observed = joined(parts)
    check_finite(observed.logits.isfinite().all())
    return observed


def _look(
    method: Method, images: Tensor, numbers: Tensor, kept: Tensor
) -> tuple[Tensor, Weighing | None, Location | None]:
    if not branches(method):
        return method.predict(images).float().cpu(), None, None
    seen = view(method, images)
    weighing = Weighing(
        seen.weights.float().cpu(),
        seen.nearness.float().cpu(),
        seen.branch_answers().cpu(),
        seen.ranked_answers().cpu(),
        {name: seen.answers_under(weights).cpu() for name, weights in seen.other_weights().items()},
    )
    return seen.logits.float().cpu(), weighing, _locate(method, seen, numbers, kept)


def _locate(method: Method, seen: View, numbers: Tensor, kept: Tensor) -> Location | None:
    if seen.points is None or seen.known is None:
        return None
    assert isinstance(method.net, DomainEnsemble)
    distance = ranking_distance(method.net)
    alone = {
        layer: distance(seen.points.select([layer]), seen.known.select([layer])).float().cpu()
        for layer in seen.points.layers
    }
    rows = torch.isin(numbers, kept).nonzero().flatten()
    return Location(alone, rows, _on_cpu(seen.points, rows), _on_cpu(seen.known))


def _on_cpu(points: Embedding, rows: Tensor | None = None) -> Embedding:
    mean, var = points.mean.float().cpu(), points.var.float().cpu()
    if rows is not None:
        mean, var = mean[rows], var[rows]
    return replace(points, mean=mean, var=var)


def some_of(images: ImageSet, domain: str) -> list[int]:
    """The numbers of a domain's images.

    Raises:
        DataError: The domain is unknown, or it has none, as when all are unreadable.
    """
    numbers = images.indices_of([domain])
    if not numbers:
        raise DataError(f"Domain {domain!r} has no images; leave it out of --domains.")
    return numbers


def translated(images: ImageSet, domains: Collection[str], known: Sequence[str]) -> Tensor:
    """(C,), what each class of the data is to the model; -1 for one that the domains need not have.

    Raises:
        DataError: An image of the domains is of a class that is not known.
    """
    own = {images.files[number].label for number in images.indices_of(domains)}
    for label in sorted(own):
        if images.classes[label] not in known:
            raise DataError(
                f"The model does not know the class {images.classes[label]!r} of the data; it "
                f"knows {', '.join(known)}."
            )
    return torch.tensor([known.index(name) if name in known else -1 for name in images.classes])


def check_finite(finite: Tensor) -> None:
    """Waits for the device, once for all batches.

    Args:
        finite: (), whether all answers are.

    Raises:
        DataError: One is no number.
    """
    if not finite:
        raise DataError(
            "The network's answers are not finite: its training has diverged; train it anew, with "
            "a smaller learning rate."
        )
