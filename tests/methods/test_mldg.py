"""MLDG against its definition, with the second derivative taken by torch, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from bne.methods import create
from tests.networks import DOMAINS, small_cnn


def method_of(**options):
    return create("mldg", small_cnn(), DOMAINS, options).double().train()


@pytest.fixture
def second_held_out(monkeypatch):
    """The second domain instead of a random one."""
    places = torch.tensor([0.6, 0.1, 0.3])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: places)


@pytest.mark.usefixtures("second_held_out")
@pytest.mark.parametrize("first_order", [False, True])
def test_loss_and_gradients_against_the_definition(batch, first_order):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(alpha=0.3, beta=0.7, first_order=first_order)
    net = copy.deepcopy(method.net)
    names, values = zip(*net.named_parameters(), strict=True)
    seen = domains != 1
    before = F.cross_entropy(net(images[seen]), labels[seen])
    slopes = torch.autograd.grad(before, values, create_graph=True)
    ahead = [
        p - 0.3 * (s.detach() if first_order else s) for p, s in zip(values, slopes, strict=True)
    ]
    logits = functional_call(net, dict(zip(names, ahead, strict=True)), (images[~seen],))
    expected = before + 0.7 * F.cross_entropy(logits, labels[~seen])
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, expected)
    known = torch.autograd.grad(expected, values)
    torch.testing.assert_close(torch.autograd.grad(loss, list(method.parameters())), known)


def test_the_gradient_is_that_of_finite_differences(batch):
    """Of the whole loss, along one direction: nothing of the virtual step is left out."""
    images, labels, domains = batch[0].double(), *batch[1:]
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 5), nn.Tanh(), nn.Linear(5, 4))
    method = create("mldg", model, DOMAINS, {"alpha": 0.5}).double().train()

    def loss():
        torch.manual_seed(3)
        return method(images, labels, domains)

    loss().backward()
    directions = [torch.randn_like(p) for p in method.parameters()]
    slope = sum((p.grad * d).sum() for p, d in zip(method.parameters(), directions, strict=True))
    found = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            for p, d in zip(method.parameters(), directions, strict=True):
                p += step * d
        found.append(loss().item())
    assert (found[0] - found[1]) / 2e-5 == pytest.approx(slope.item(), rel=1e-6)


def test_every_domain_is_held_out_in_turn(batch):
    method, domains, held = method_of(), torch.tensor([2, 0, 1, 0, 2, 1]), set()
    for _ in range(30):
        seen, out = method.split(domains)
        assert sorted([*seen.tolist(), *out.tolist()]) == list(range(6))
        (domain,) = set(domains[out].tolist())
        assert domain not in domains[seen].tolist()
        held.add(domain)
    assert held == {0, 1, 2}


def test_some_domains_in_a_step():
    method = method_of()
    method.domains_per_step = 2
    seen, out = method.split(torch.tensor([2, 2, 0, 0]))
    assert {len(seen), len(out)} == {2}
    only = create("mldg", small_cnn(), ["only"])
    assert [len(part) for part in only.split(torch.zeros(6, dtype=torch.long))] == [3, 3]


@pytest.mark.parametrize("option", ["alpha", "beta"])
def test_negative_factors_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 0"):
        create("mldg", small_cnn(), DOMAINS, {option: -1})
