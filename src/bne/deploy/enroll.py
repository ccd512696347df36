"""New domains for a trained model, from unlabeled images and without training; and their removal.

Only batch-norm statistics are collected, as training would collect them: weights stay as they are.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import torch

from bne.core.norm import DomainBatchNorm, domain_layers
from bne.data.batches import draw
from bne.data.decoding import in_threads
from bne.data.transform import upload
from bne.deploy.answers import Seen
from bne.deploy.bundle import Bundle
from bne.deploy.engine import Engine
from bne.errors import DataError, SettingsError, did_you_mean
from bne.methods.bne import BNE
from bne.training.runtime import recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from bne.deploy.manifest import Manifest
    from bne.methods import Method

    Read = Callable[[], NDArray[np.uint8]]
    """Gives one image, (size, size, 3); safe from any thread."""

FEWEST = 2
TOGETHER = 16  # images in a batch, unless the run is known


def enroll(
    engine: Engine, model: Manifest, name: str, images: Sequence[Read], *, recenter: bool = False
) -> Bundle:
    """Adds a domain to a copy of a model.

    Args:
        engine: the trained model.
        model: what is known of it.
        name: of the new domain.
        images: unlabeled ones of it, as `engine` takes them.
        recenter: whether the new domain counts in the domains' centre.

    Raises:
        SettingsError: The model cannot have more branches, or has one of that name.
        DataError: There are too few images, or one cannot be read.
    """
    method = _copied(engine.method, model)
    if why := _unfit(name, model):
        raise SettingsError(f"name {name!r}: {why}; choose another.")
    if len(images) < FEWEST:
        raise DataError(
            f"{len(images)} image{'s' * (len(images) != 1)} cannot tell what a domain is like; "
            f"give at least {FEWEST}, better 64 or more."
        )
    alone = copy.deepcopy(method)
    alone.net.set_domains([name])
    together = model.recipe.get("per_domain", TOGETHER) // model.recipe.get("accumulate", 1)
    _collect(alone, engine, images, min(max(FEWEST, together), len(images)))
    method.net.set_domains([*method.net.domains, name])
    for layer, measured in zip(domain_layers(method), domain_layers(alone), strict=True):
        if layer.population is not None and measured.population is not None:
            for own, new in zip(layer.population, measured.population, strict=True):
                own[-1] = new[0]
    told = {"images": len(images), "at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    enrolled = {**model.enrolled, name: {**told, "central": recenter}}
    where = model.central if recenter else len(model.branches)
    names = [*model.branches[:where], name, *model.branches[where:]]
    found = _arranged(method, replace(model, branches=tuple(names), enrolled=enrolled))
    if (known := model.calibration.reference) is None:
        return found
    seen = _seen(Engine(method, engine.transform, engine.device, known), images)
    assert seen.vectors is not None
    assert seen.distances is not None
    known = known.including(name, seen.vectors, seen.distances[:, names.index(name)])
    scale = replace(model.calibration, reference=known)
    return found._replace(manifest=replace(found.manifest, calibration=scale))


def forget(engine: Engine, model: Manifest, name: str) -> Bundle:
    """Removes a domain from a copy of a model, be it enrolled or trained on.

    Raises:
        SettingsError: The model has no such domain, or no other.
    """
    method = _copied(engine.method, model)
    if name not in model.branches:
        raise SettingsError(
            f"The model has no domain {name!r}; {did_you_mean(name, model.branches)}."
        )
    if len(model.branches) == 1:
        raise SettingsError(f"{name!r} is the model's last domain, which it cannot do without.")
    names = tuple(own for own in model.branches if own != name)
    enrolled = {own: told for own, told in model.enrolled.items() if own != name}
    scale = model.calibration
    if scale.reference:
        scale = replace(scale, reference=scale.reference.without(name))
    if name not in model.enrolled:  # distances to it were among those that were measured
        scale = replace(scale, percentiles=())
    found = replace(model, branches=names, enrolled=enrolled, calibration=scale)
    return _arranged(method, found)


def _unfit(name: str, model: Manifest) -> str | None:
    """Why a new domain cannot be called so, if it cannot."""
    if not name.strip():
        return "it is empty"
    if name in model.branches:
        return "the model has a domain of that name"
    if name != name.strip() or not name.isprintable():
        return "it begins or ends with a space, or has characters that cannot be printed"
    return None


def _seen(engine: Engine, images: Sequence[Read]) -> Seen:
    """What a model says of all images."""
    parts = []
    for start in range(0, len(images), engine.batch):
        part = images[start : start + engine.batch]
        parts.append(engine(np.stack(list(in_threads(lambda read: read(), part)))))
    return Seen.cat(parts)


def _copied(method: Method, model: Manifest) -> BNE:
    layers = list(domain_layers(method))
    if not isinstance(method, BNE) or any(type(layer) is not DomainBatchNorm for layer in layers):
        raise SettingsError(
            f"{model.method} has no branches that differ in batch-norm statistics alone, so its "
            "domains cannot be changed without training; train with method bne or points."
        )
    return copy.deepcopy(method)


def _arranged(method: BNE, model: Manifest) -> Bundle:
    method.net.set_domains(model.branches, model.central)
    return Bundle(method, replace(model, map=None))  # it has the places of the old domains


def _collect(method: BNE, engine: Engine, images: Sequence[Read], together: int) -> None:
    """Measures the statistics of the only domain, on batches of so many images."""
    batches = list(draw({"": range(len(images))}, together, seed=0))

    def shown(numbers: Iterable[Tensor]) -> Iterator[Tensor]:
        for part in numbers:
            pixels = np.stack(list(in_threads(lambda n: images[n](), part.tolist())))
            there = upload(torch.from_numpy(pixels).permute(0, 3, 1, 2), engine.device)
            yield engine.transform(there)

    with torch.random.fork_rng():
        torch.manual_seed(0)  # of layers that drop
        recompute(method, batches, shown, engine.device, nullcontext)
