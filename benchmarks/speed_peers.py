"""One training step of BNE against what a user would take instead, in one run.

    PYTHONPATH=src python benchmarks/speed_peers.py --out results/speed.jsonl
    PYTHONPATH=src python benchmarks/speed_peers.py --domainbed ../DomainBed   times its own step

The peers are BNE in plain PyTorch, written straight from Algorithm 1 (`AlgorithmOne`), and
DomainBed's ERM, with the same backbone, images and device. ERM is the plain network: it says what
a user of DomainBed pays for a step without any method for domains. README.md beside this file says
what the records mean; `speed_tables.py` puts them there.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from timing import (
    CLASSES,
    Case,
    Line,
    Reference,
    Settings,
    Work,
    circumstances,
    make_batch,
    make_work,
    publish,
    record,
    time_all,
    training_step,
)
from torch import Tensor, nn

from bne.models import build


class NaiveNorm(nn.Module):
    """Batch norm with K running statistics that does one thing at a time.

    Attributes:
        domain: what the next pass runs under; None normalises every image by itself.
        collecting: whether the pass uses the batch's statistics, and follows them.
        found: mean and variance of every image, (N, C) each, from the last pass under None.
    """

    def __init__(self, plain: nn.BatchNorm2d, domains: int) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = plain.weight, plain.bias, plain.eps
        self.register_buffer("mean", plain.running_mean.repeat(domains, 1))
        self.register_buffer("var", plain.running_var.repeat(domains, 1))
        self.domain: int | None = None
        self.collecting = False
        self.found: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalises (N, C, H, W)."""
        exact = x.float() if x.dtype == torch.bfloat16 else x
        if self.domain is None:
            var, mean = torch.var_mean(exact, (2, 3), correction=0, keepdim=True)
            self.found = mean.flatten(1), var.flatten(1)
            x = ((x - mean) / (var + self.eps).sqrt()).to(x.dtype)
            return x * self.weight.view(-1, 1, 1).to(x) + self.bias.view(-1, 1, 1).to(x)
        if not self.collecting:
            mean, var = self.mean[self.domain], self.var[self.domain]
            return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)
        var, mean = torch.var_mean(exact, (0, 2, 3), correction=0)
        self.mean[self.domain] = 0.99 * self.mean[self.domain] + 0.01 * mean
        self.var[self.domain] = 0.99 * self.var[self.domain] + 0.01 * var
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


class AlgorithmOne(nn.Module):
    """BNE as the paper prints it: a pass over every domain batch, one over every image, K more."""

    def __init__(self, model: nn.Module, domains: int) -> None:
        super().__init__()
        self.model = model
        self.domains = domains
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, NaiveNorm(child, domains))
        self.norms = [module for module in model.modules() if isinstance(module, NaiveNorm)]

    def forward(self, images: Tensor) -> Tensor:
        """The mixture's logits of (N, 3, H, W), as many of every domain, in domain order."""
        with torch.no_grad():
            for domain, batch in enumerate(images.chunk(self.domains)):
                self.run(batch, domain, collecting=True)
        self.run(images, None)
        points = [norm.found for norm in self.norms]
        branches = [self.run(images, domain) for domain in range(self.domains)]
        similarities = []
        for domain in range(self.domains):
            distance: Any = 0
            for norm, (mean, var) in zip(self.norms, points, strict=True):
                distance = distance + (mean - norm.mean[domain]).square().sum(1)
                distance = distance + (var.sqrt() - norm.var[domain].sqrt()).square().sum(1)
            similarities.append(1 / distance)
        mixture: Any = 0
        for similarity, logits in zip(similarities, branches, strict=True):
            mixture = mixture + similarity.unsqueeze(1) * logits
        return mixture / torch.stack(similarities).sum(0).unsqueeze(1)

    def run(self, images: Tensor, domain: int | None, collecting: bool = False) -> Tensor:
        """One pass through the network."""
        for norm in self.norms:
            norm.domain, norm.collecting = domain, collecting
        return self.model(images)


def erm_update(settings: Settings, frozen: bool) -> Callable[[list[tuple[Tensor, Tensor]]], Any]:
    """What DomainBed's ERM does in a step, in float32, on a ResNet-18 of torchvision.

    Args:
        settings: whose device it runs on.
        frozen: whether batch norm keeps its statistics, as DomainBed's `freeze_bn` says.
    """
    features = build("resnet18", CLASSES)
    features.fc = nn.Dropout(0.0)
    network = nn.Sequential(features, nn.Linear(512, CLASSES)).to(settings.device).train()
    for module in network.modules():
        if frozen and isinstance(module, nn.BatchNorm2d):
            module.eval()
    adam = torch.optim.Adam(network.parameters(), lr=5e-5)

    def update(minibatches: list[tuple[Tensor, Tensor]]) -> float:
        images, labels = (torch.cat(part) for part in zip(*minibatches, strict=True))
        adam.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        adam.step()
        return loss.item()

    return update


def domainbed_update(settings: Settings, frozen: bool, checkout: Path) -> Callable[..., Any]:
    """The same by a checkout of DomainBed, with random weights instead of a download."""
    from torchvision.models import resnet18

    sys.path.insert(0, str(checkout))
    from domainbed.algorithms import ERM

    options = {
        "resnet18": True, "resnet50_augmix": False, "vit": False, "freeze_bn": frozen,
        "resnet_dropout": 0.0, "nonlinear_classifier": False, "lr": 5e-5, "weight_decay": 0.0,
    }  # fmt: skip
    shape = (3, settings.size, settings.size)

    def untrained(pretrained: bool) -> nn.Module:
        return resnet18()

    with mock.patch("torchvision.models.resnet18", untrained):
        erm = ERM(shape, CLASSES, settings.domains, options)
    erm.to(settings.device)
    erm.train()
    return erm.update


def peers(settings: Settings, checkout: Path | None) -> dict[Case, Callable[[], Work]]:
    """All steps, each a case named by its work; the first is what the others are compared with."""
    count, domains, gpu = settings.images, settings.domains, settings.on_gpu
    low, exact = settings.precision, replace(settings, precision="float32")
    printed = (("branch_statistics", "population"),)

    def step(own: Settings, number: int, *options: tuple[str, object]) -> Callable[[], Work]:
        return partial(make_work, Case("training", count, gpu, number, options), own)

    bne, naive = f"BNE, {low}", f"Algorithm 1 in plain PyTorch, {low}"
    erm = "DomainBed's own ERM" if checkout else "ERM as in DomainBed"
    found: dict[Case, Callable[[], Work]] = {
        Case(bne, count, gpu, domains): step(settings, domains),
        Case(f"BNE as printed, {low}", count, gpu, domains): step(settings, domains, *printed),
        Case(naive, count, gpu, domains): partial(naive_step, settings),
        Case(f"plain network, {low}", count, gpu): step(settings, 0),
        Case(f"{erm}, float32", count, False): partial(erm_step, settings, False, checkout),
        Case(f"{erm}, batch norm frozen, float32", count, False): partial(
            erm_step, settings, True, checkout
        ),
    }
    if gpu:
        found |= {
            Case(bne, count, False, domains): step(settings, domains),
            Case(naive, count, False, domains): partial(naive_step, settings),
            Case("BNE, float32", count, True, domains): step(exact, domains),
            Case("Algorithm 1 in plain PyTorch, float32", count, False, domains): partial(
                naive_step, exact
            ),
            Case("plain network, float32", count, True): step(exact, 0),
            Case("plain network, float32", count, False): step(exact, 0),
        }
    return found


def naive_step(settings: Settings) -> Work:
    """A step of `AlgorithmOne` with the optimiser, layout and images that ours has."""
    network = AlgorithmOne(build(settings.backbone, CLASSES), settings.domains).train()
    network.to(settings.device, memory_format=torch.channels_last)
    images, labels = make_batch(settings.images, settings)
    return training_step(network, partial(network, images), labels, settings)


def erm_step(settings: Settings, frozen: bool, checkout: Path | None) -> Work:
    """An ERM step on the domain batches of a step of ours."""
    if checkout:
        update = domainbed_update(settings, frozen, checkout)
    else:
        update = erm_update(settings, frozen)
    images, labels = make_batch(settings.images, settings)
    parts = (tensor.chunk(settings.domains) for tensor in (images.contiguous(), labels))
    return partial(update, list(zip(*parts, strict=True)))


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--out", type=Path, help="a .jsonl file, to which records are added")
    parser.add_argument("--domainbed", type=Path, help="a checkout of DomainBed, to time itself")
    parser.add_argument("--device", default=here, type=torch.device)
    parser.add_argument("--per-domain", type=int, default=16)
    parser.add_argument("--size", type=int, default=224, help="DomainBed takes 224 only")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    settings = Settings(
        backbone="resnet18",
        device=options.device,
        precision="bf16" if options.device.type == "cuda" else "float32",
        domains=3,
        per_domain=options.per_domain,
        batch=256,
        size=options.size,
        repeat=options.repeat,
    )
    works = peers(settings, options.domainbed)
    first = Reference("BNE, first line", ((1, (next(iter(works)),)),))
    timings, shared = time_all(works, settings), circumstances(settings)
    lines = [Line(case.work, case, first) for case in works]
    publish([record("peers", line, timings, shared) for line in lines], options.out)


if __name__ == "__main__":
    main()
