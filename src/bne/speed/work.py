"""The work of a case: a network, random images, and what is done with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from bne.core.distances import inverse_weights
from bne.core.embedding import Embedding
from bne.core.ensemble import DomainEnsemble, convert
from bne.core.moments import Moments
from bne.core.surgery import domain_layers
from bne.models import build
from bne.training.inputs import autocast

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from bne.speed.settings import Case, Settings

CLASSES = 7


def make_work(case: Case, settings: Settings) -> Callable[[], object]:
    """What the clock calls again and again.

    Args:
        case: that is timed.
        settings: of the comparison.
    """
    with torch.random.fork_rng([settings.device] if settings.on_gpu else []):
        torch.manual_seed(0)
        network = make_network(case, settings)
        images = make_images(case.images, settings)
    if case.work == "inference":
        network.eval()
        if case.compiled:
            torch.compiler.reset()  # it would take another case's number of images for variable
            network = torch.compile(network)  # type: ignore[assignment]
        return inference(network, images, settings)
    if case.work == "distance":
        assert isinstance(network, DomainEnsemble)
        return distance(network.eval(), images, settings)
    return training(network.train(), images, case, settings)


def make_network(case: Case, settings: Settings) -> nn.Module:
    """The plain network, or a converted one whose domains differ, on the device."""
    network = build(settings.backbone, CLASSES)
    if case.domains:
        network = convert(network, map(str, range(case.domains)), **dict(case.options))
        tell_apart(network)
    return network.to(settings.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@torch.no_grad()
def tell_apart(network: nn.Module) -> None:
    """Gives every domain statistics of its own."""
    for layer in domain_layers(network):
        if layer.population is not None:
            layer.population.mean.add_(torch.randn_like(layer.population.mean), alpha=0.1)
            layer.population.var.mul_(torch.rand_like(layer.population.var) + 0.5)


def make_images(count: int, settings: Settings) -> Tensor:
    """Noise, (count, 3, size, size), as a feed would bring it to the device."""
    images = torch.randn(count, 3, settings.size, settings.size, device=settings.device)
    return images.contiguous(memory_format=torch.channels_last)


def make_labels(count: int, settings: Settings) -> Tensor:
    """All classes in turn, (count,), on the device."""
    return torch.arange(count, device=settings.device) % CLASSES


def training(
    network: nn.Module, images: Tensor, case: Case, settings: Settings
) -> Callable[[], None]:
    """A training step of the plain network, of distance training or of the warm-up."""
    domains = torch.arange(len(images), device=images.device) * case.domains // len(images)

    def logits() -> Tensor:
        if isinstance(network, DomainEnsemble) and case.work == "training":
            return network.explain(images, domains).logits
        return network(images, domains) if case.domains else network(images)  # type: ignore[no-any-return]

    return training_step(network, logits, make_labels(case.images, settings), settings)


def training_step(
    network: nn.Module, logits: Callable[[], Tensor], labels: Tensor, settings: Settings
) -> Callable[[], None]:
    """Forward, backward and update, by the same optimiser for all.

    Args:
        network: that learns.
        logits: the forward pass, which gives (N, classes).
        labels: (N,).
        settings: of the comparison.
    """
    optimiser = torch.optim.SGD(network.parameters(), 1e-4, momentum=0.9, fused=settings.on_gpu)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with autocast(settings.precision, settings.device):
            loss = F.cross_entropy(logits(), labels)
        loss.backward()
        optimiser.step()

    return step


def inference(network: nn.Module, images: Tensor, settings: Settings) -> Callable[[], Tensor]:
    """The logits of all images."""

    def infer() -> Tensor:
        with torch.inference_mode(), autocast(settings.precision, settings.device):
            return network(images)  # type: ignore[no-any-return]

    return infer


def distance(
    network: DomainEnsemble, images: Tensor, settings: Settings
) -> Callable[[], tuple[Tensor, ...]]:
    """All that a step of distance training does between its passes through the network.

    That is: stack the images' statistics, choose the nearest domains, weigh them, and lead the
    gradient back to the statistics.
    """
    with torch.no_grad(), autocast(settings.precision, settings.device):
        points = network.embed(images)
    statistics = {
        name: Moments(
            *(part[:, place].clone().requires_grad_() for part in (points.mean, points.var))
        )
        for name, place in points.slices.items()
    }
    leaves = [tensor for moments in statistics.values() for tensor in moments]
    nearest = min(network.nearest or len(network.domains), len(network.domains))

    def weigh() -> tuple[Tensor, ...]:
        with autocast(settings.precision, settings.device):
            embedding = Embedding.stack(statistics)
            with torch.no_grad():
                far = network.distance(embedding, network.domain_embeddings())
                chosen = far.topk(nearest, largest=False).indices
            distances = network.distance(embedding, network.domain_embeddings())
            weights = inverse_weights(distances.gather(1, chosen))
        return torch.autograd.grad(weights, leaves, torch.ones_like(weights))

    return weigh
