"""Epi-FCR against its losses, image by image, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import create
from tests.networks import DOMAINS, randomise_norms, small_cnn

OTHERS = [2, 0, 1]  # the partner of each domain


def method_of(epoch, **options):
    model = randomise_norms(small_cnn())
    method = create("epi-fcr", model, DOMAINS, options).double().train()
    for partner in method.partners:
        with torch.no_grad():
            for parameter in partner.parameters():
                parameter += torch.randn_like(parameter) / 5
    method.begin_epoch(epoch, warm_up=1)
    return method


def test_loss_and_gradients_against_the_definition(batch, monkeypatch):
    monkeypatch.setattr(torch, "randint", lambda *_, **__: torch.tensor([2, 2, 2]))
    images, labels, domains = batch[0].double(), *batch[1:]
    options = {"feature_factor": 0.7, "classifier_factor": 0.4, "random_factor": 0.3}
    method = method_of(1, **options)
    net, partners = copy.deepcopy(method.net).eval(), copy.deepcopy(method.partners).eval()
    expected = 0.0
    for image, label, d in zip(images, labels, domains.tolist(), strict=True):
        x, y, other = image[None], label[None], partners[OTHERS[d]]
        frozen = copy.deepcopy(other).requires_grad_(False)
        expected = (
            expected
            + F.cross_entropy(net(x), y)
            + F.cross_entropy(partners[d](x), y)
            + 0.7 * F.cross_entropy(frozen[-1](net[:-1](x)), y)
            + 0.4 * F.cross_entropy(net[-1](frozen[:-1](x)), y)
            + 0.3 * F.cross_entropy(method.random(net[:-1](x)), y)
        )
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, expected / 9)
    trained = [*method.net.parameters(), *method.partners.parameters()]
    known = torch.autograd.grad(expected / 9, [*net.parameters(), *partners.parameters()])
    torch.testing.assert_close(torch.autograd.grad(loss, trained), known)


def test_the_warm_up_trains_all_networks_apart(batch):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(0)
    net, partners = copy.deepcopy(method.net).eval(), copy.deepcopy(method.partners).eval()
    own = sum(
        F.cross_entropy(partners[d](images[domains == d]), labels[domains == d]) / 3
        for d in range(3)
    )
    expected = F.cross_entropy(net(images), labels) + own
    torch.testing.assert_close(method(images, labels, domains), expected)
    assert (method.stage, method_of(1).stage) == ("warm-up", "episodes")


def test_statistics_and_the_random_classifier_stay_as_they_are(batch):
    method = method_of(1)
    before = copy.deepcopy(method.state_dict())
    optimiser = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], 0.1)
    method(batch[0].double(), *batch[1:]).backward()
    optimiser.step()
    trained = {name for name, parameter in method.named_parameters() if parameter.requires_grad}
    changed = {k for k, value in method.state_dict().items() if not torch.equal(value, before[k])}
    assert changed == trained
    assert not trained & {"random.weight", "random.bias"}


def test_a_partner_is_always_another_domains():
    method, domains = create("epi-fcr", small_cnn(), DOMAINS), torch.tensor([0, 1, 2, 2])
    drawn = torch.stack([method._others(domains) for _ in range(40)])
    assert (drawn != domains).all()
    assert torch.equal(drawn[:, 2], drawn[:, 3])
    assert {tuple(row) for row in drawn[:, :1].tolist()} == {(1,), (2,)}


@pytest.mark.parametrize("option", ["feature_factor", "classifier_factor", "random_factor"])
def test_negative_factors_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 0"):
        create("epi-fcr", small_cnn(), DOMAINS, {option: -1})
