"""MASF against transcriptions of its losses, image by image, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from bne.methods import create
from bne.methods.masf import triplets
from tests.networks import DOMAINS, small_cnn


def by_definition(points, labels, margin):
    """Triplets one by one, in the words of the semi-hard rule."""
    total, pairs = 0.0, 0
    for a in range(len(points)):
        away = ((points[a] - points) ** 2).sum(1)
        negatives = away[labels != labels[a]]
        for p in range(len(points)):
            if p == a or labels[p] != labels[a] or not len(negatives):
                continue
            farther = negatives[negatives > away[p]]
            negative = farther.min() if len(farther) else negatives.max()
            total = total + (margin + away[p] - negative).clamp_min(0)
            pairs += 1
    return total / max(pairs, 1)


@pytest.mark.parametrize("margin", [0.5, 20.0])
def test_triplets_against_their_definition(margin):
    points = torch.randn(14, 3, dtype=torch.double, requires_grad=True)
    labels = torch.randint(4, (14,))
    loss, expected = triplets(points, labels, margin), by_definition(points, labels, margin)
    torch.testing.assert_close(loss, expected)
    found, known = (torch.autograd.grad(value, points) for value in (loss, expected))
    torch.testing.assert_close(found, known)


@pytest.mark.parametrize("labels", [[1, 1, 1], [0, 1, 2]])
def test_images_without_triplets_cost_nothing(labels):
    points = torch.randn(3, 2, requires_grad=True)
    loss = triplets(points, torch.tensor(labels), 1.0)
    loss.backward()
    assert loss == 0
    assert not points.grad.any()


def divergence(logits, labels, domains, unseen):
    total = 0.0
    others = [d for d in range(3) if d != unseen]
    for d in others:
        for c in range(4):
            one, other = (logits[(domains == k) & (labels == c)] for k in (d, unseen))
            if len(one) and len(other):
                p, q = ((x.mean(0) / 2).softmax(0) for x in (one, other))
                total = total + (F.kl_div(q.log(), p, reduction="sum") / 2) / 4
                total = total + (F.kl_div(p.log(), q, reduction="sum") / 2) / 4
    return total / len(others)


@pytest.mark.parametrize("first_order", [False, True])
def test_loss_and_gradients_against_the_definition(batch, monkeypatch, first_order):
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([0.6, 0.1, 0.3]))
    images, _, domains = batch[0].double(), *batch[1:]
    labels = torch.tensor([0, 1, 1, 1, 2, 0, 3, 1, 0])  # one class of one domain alone
    options = {"alpha": 0.5, "clip": 0.05, "cohesion": 0.1, "first_order": first_order}
    method = create("masf", small_cnn(), DOMAINS, options).double().train()
    net, embedder = copy.deepcopy(method.net), copy.deepcopy(method.embedder)
    names, values = zip(*net.named_parameters(), strict=True)
    seen = domains != 1
    task = F.cross_entropy(net(images[seen]), labels[seen])
    ahead = []
    slopes = torch.autograd.grad(task, values, create_graph=True)
    assert {bool(slope.norm() > 0.05) for slope in slopes} == {True, False}
    for value, slope in zip(values, slopes, strict=True):
        slope = slope.detach() if first_order else slope
        slope = slope * 0.05 / slope.norm() if slope.norm() > 0.05 else slope
        ahead.append(value - 0.5 * slope)
    stepped = dict(zip(names, ahead, strict=True))
    body = {name: value for name, value in stepped.items() if not name.startswith("8.")}
    features = functional_call(net[:-1], body, (images,))
    logits = features @ stepped["8.weight"].T + stepped["8.bias"]
    expected = task + divergence(logits, labels, domains, unseen=1)
    expected = expected + 0.1 * by_definition(embedder(features), labels, 20.0)
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, expected)
    known = torch.autograd.grad(expected, [*values, *embedder.parameters()])
    torch.testing.assert_close(torch.autograd.grad(loss, list(method.parameters())), known)


@pytest.mark.parametrize(
    ("option", "value"), [("alpha", -1), ("cohesion", -1), ("clip", 0), ("temperature", 0)]
)
def test_what_makes_no_sense_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be"):
        create("masf", small_cnn(), DOMAINS, {option: value})
