"""One pass of a trained model over images, domain by domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from bne.core.distances import get, inverse_weights, names, uniform, wasserstein
from bne.core.embedding import Embedding
from bne.core.ensemble import DomainEnsemble
from bne.core.options import ONE_PASS
from bne.core.prediction import Prediction, mix
from bne.errors import DataError
from bne.training.scores import batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.data.feed import Feed
    from bne.data.images import ImageSet
    from bne.data.transform import EvalTransform
    from bne.methods import Method


Tell = Callable[[int], None]
"""Hears how many more images, or other things, are done."""


def silent(count: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, eq=False)
class Observed:
    """What a model says of N images, on the CPU.

    A model without branches to weigh has K = 0, one that compares no statistics L = 0.

    Attributes:
        domains: names of the images' domains.
        classes: names of the classes.
        branches: names of the K domains that the model has a branch for.
        weightings: names of W other ways to weigh the branches.
        numbers: (N,), the images' positions among the prepared ones.
        domain: (N,), indices into `domains`.
        held_out: (N,), True for images of a source domain that were held out from training.
        truth: (N,), true classes.
        answers: (N,), predicted classes.
        confidence: (N,), probabilities of the predicted classes.
        logits: (N, classes), of the prediction.
        weights: (N, K), weights of the branches in the prediction.
        nearness: (N, K), larger the nearer an image lies to a branch's domain.
        by_branch: (N, K), classes that each branch predicts alone.
        by_weighting: (N, W), classes that the branches predict together under other weights.
        layer_distances: (N, L, K), distances from the domains in one layer alone.
        mapped: (M,), rows of the images whose points are kept.
        points: those M points in the space of domains; None if the model compares no statistics.
        known: the K domains' points.
    """

    domains: tuple[str, ...]
    classes: tuple[str, ...]
    branches: tuple[str, ...]
    weightings: tuple[str, ...]
    numbers: Tensor
    domain: Tensor
    held_out: Tensor
    truth: Tensor
    answers: Tensor
    confidence: Tensor
    logits: Tensor
    weights: Tensor
    nearness: Tensor
    by_branch: Tensor
    by_weighting: Tensor
    layer_distances: Tensor
    mapped: Tensor
    points: Embedding | None
    known: Embedding | None

    @cached_property
    def by_rank(self) -> Tensor:
        """(N, K), classes that each branch predicts alone, the nearest branch first."""
        order = self.nearness.argsort(dim=1, descending=True, stable=True)
        return self.by_branch.gather(1, order)

    def rows(
        self, domains: Iterable[str] | None = None, *, held_out: bool | None = None
    ) -> dict[str, Tensor]:
        """Rows of the images of each domain that has any.

        Args:
            domains: names; by default all.
            held_out: whether to take images that were held out from training or the others; by
                default both.
        """
        wanted = torch.ones_like(self.held_out) if held_out is None else self.held_out == held_out
        found = {
            name: (wanted & (self.domain == self.domains.index(name))).nonzero().flatten()
            for name in (self.domains if domains is None else domains)
        }
        return {name: rows for name, rows in found.items() if len(rows)}


@torch.inference_mode()
def observe(
    method: Method,
    transform: EvalTransform,
    classes: Sequence[str],
    prepared: PreparedImages,
    feed: Feed,
    members: Mapping[str, Sequence[int]],
    *,
    held_out: Collection[int] = (),
    points: int = 0,
    weightings: Sequence[str] | None = None,
    tell: Tell = silent,
) -> Observed:
    """Shows images to a model, once; no batch mixes domains, nor held-out images with others.

    Args:
        method: the trained model, on the feed's device, in evaluation mode.
        transform: the step from prepared images to its input.
        classes: names that it knows, in order.
        prepared: images labeled with those classes or some of them.
        feed: the same images on the device.
        members: numbers of the images to show, by domain.
        held_out: numbers of images of source domains that were held out from training.
        points: number of images per domain whose points are kept, the first ones.
        weightings: names of distances to weigh the branches by as well; by default all.
        tell: is called with how many more images were shown.

    Raises:
        DataError: A domain has no images, as when all are unreadable, or a class is unknown, or an
            answer is not finite.
    """
    if empty := [domain for domain, chosen in members.items() if not chosen]:
        raise DataError(f"Domain {empty[0]!r} has no images; leave it out of --domains.")
    labels = _translated(prepared.images, members, classes)
    kept_out = torch.tensor(sorted(held_out)).long()
    firsts = torch.tensor([n for chosen in members.values() for n in chosen[:points]]).long()
    plan = []
    for domain, chosen in enumerate(map(torch.as_tensor, members.values())):
        out = torch.isin(chosen, kept_out)
        plan += [(domain, p) for own in (chosen[~out], chosen[out]) for p in batches(own)]
    shown = feed.gather(part for _, part in plan)
    looks = []
    for (_, part), (images, _) in zip(plan, shown, strict=True):
        mapped = torch.isin(part, firsts)
        looks.append(_look(method, transform(images), mapped, weightings or names()))
        tell(len(part))
    # Only here does the host wait for the device.
    rows = {key: torch.cat([look.rows[key] for look in looks]).cpu() for key in looks[0].rows}
    if not rows.pop("finite").all():
        raise DataError(
            "The network's answers are not finite: its training has diverged; train it anew, with "
            "a smaller learning rate."
        )
    numbers = torch.cat([part for _, part in plan])
    embedded = [look.points for look in looks if look.points is not None]
    known = looks[0].known
    return Observed(
        domains=tuple(members),
        classes=tuple(classes),
        branches=branches(method),
        weightings=looks[0].weightings,
        numbers=numbers,
        domain=torch.cat([torch.full_like(part, domain) for domain, part in plan]),
        held_out=torch.isin(numbers, kept_out),
        truth=labels[prepared.labels[numbers]],
        mapped=torch.isin(numbers, firsts).nonzero().flatten(),
        points=_on_cpu(Embedding.cat(embedded)) if embedded else None,
        known=None if known is None else _on_cpu(known),
        **rows,
    )


def branches(method: Method) -> tuple[str, ...]:
    """Names of the domains whose branches a method weighs; none if it has none to weigh."""
    net = method.net
    return net.domains if hasattr(method, "explain") and isinstance(net, DomainEnsemble) else ()


class _Look(NamedTuple):
    """A batch's rows of `Observed`, by name, with `finite`, and what is not one row per image."""

    rows: dict[str, Tensor]
    weightings: tuple[str, ...] = ()
    points: Embedding | None = None
    known: Embedding | None = None


def _look(method: Method, images: Tensor, mapped: Tensor, others: Sequence[str]) -> _Look:
    """Shows images, (B, 3, H, W), to a model; the points of those `mapped`, (B,), are kept."""
    if not branches(method):
        logits = method.predict(images)
        none = logits.new_empty(len(logits), 0)
        empty = dict.fromkeys(("weights", "nearness", "by_branch", "by_weighting"), none)
        return _Look({**_answers(logits, none), **empty, "layer_distances": none.unsqueeze(2)})
    net = method.net
    assert isinstance(net, DomainEnsemble)
    out = method.explain(images)  # type: ignore[operator]  # torch types attributes as modules
    branch_logits = out.branch_logits
    if net.nearest is not None or net.mix in ONE_PASS:  # the answer left branches out
        branch_logits = net.branches(images)
    points = known = None
    nearness = out.weights
    weightings = {"uniform": torch.full_like(nearness, 1 / len(net.domains))}
    layers = nearness.unsqueeze(1)[:, :0]
    if isinstance(out, Prediction):
        points, known = out.embedding, net.domain_embeddings().select(out.embedding.layers)
        # A distance that is the same everywhere tells no nearest domain.
        distance = wasserstein if net.distance is uniform else net.distance
        nearness = -distance(points, known)
        weightings = {n: inverse_weights(get(n)(points, known)) for n in others}
        alone = [distance(points.select([n]), known.select([n])) for n in points.layers]
        layers = torch.stack(alone, 1)
        kept = mapped.nonzero().flatten()
        points = replace(points, mean=points.mean[kept], var=points.var[kept])
    mixed = [mix(branch_logits, weights, net.mix).argmax(1) for weights in weightings.values()]
    rows = {
        **_answers(out.logits, branch_logits),
        "weights": out.weights,
        "nearness": nearness,
        "by_branch": branch_logits.argmax(2),
        "by_weighting": torch.stack(mixed, 1),
        "layer_distances": layers,
    }
    return _Look(rows, tuple(weightings), points, known)


def _answers(logits: Tensor, branch_logits: Tensor) -> dict[str, Tensor]:
    confidence, answers = logits.double().softmax(1).max(1)
    finite = logits.isfinite().all(1) & branch_logits.isfinite().flatten(1).all(1)
    return {"answers": answers, "confidence": confidence, "logits": logits, "finite": finite}


def _on_cpu(points: Embedding) -> Embedding:
    return replace(points, mean=points.mean.cpu(), var=points.var.cpu())


def sample(images: ImageSet, domains: Sequence[str], count: int, seed: int) -> dict[str, list[int]]:
    """Numbers of at most `count` images of each domain, drawn at random, by domain."""
    return {
        name: np.random.default_rng(seed).permutation(images.indices_of([name]))[:count].tolist()
        for name in domains
    }


def _translated(images: ImageSet, domains: Collection[str], known: Sequence[str]) -> Tensor:
    """(C,), the model's class for each class of the data; -1 where the domains have no image."""
    own = {images.files[number].label for number in images.indices_of(domains)}
    unknown = [images.classes[label] for label in sorted(own) if images.classes[label] not in known]
    if unknown:
        raise DataError(
            f"The model does not know the class {unknown[0]!r} of the data; it knows "
            f"{', '.join(known)}."
        )
    return torch.tensor([known.index(name) if name in known else -1 for name in images.classes])
