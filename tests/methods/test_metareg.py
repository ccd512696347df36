"""MetaReg against a transcription of its two phases, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import create
from tests.networks import DOMAINS, small_cnn

LEARNED = ("weights", "biases", "penalty")


def method_of(epoch, **options):
    method = create("metareg", small_cnn(), DOMAINS, options).double().train()
    with torch.no_grad():
        for name in LEARNED:
            getattr(method, name).normal_(0, 0.3)
        method.penalty.abs_()
    method.begin_epoch(epoch, warm_up=2)
    return method


@pytest.fixture
def third_scored_on_first(monkeypatch):
    """The steps are the third domain's instead of a random one's, the score is the first's."""
    places = torch.tensor([0.4, 0.6, 0.1])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: places)


@pytest.mark.usefixtures("third_scored_on_first")
def test_the_warm_up_against_the_algorithm(batch):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(1, alpha=0.4, inner_steps=3, penalty_rate=0.5)
    net = copy.deepcopy(method.net)
    weights, biases, penalty = (
        getattr(method, name).detach().clone().requires_grad_() for name in LEARNED
    )
    features = net[:-1](images)
    base = sum(
        F.cross_entropy((weights[d] @ f + biases[d])[None], y[None]) / len(images)
        for f, y, d in zip(features, labels, domains.tolist(), strict=True)
    )
    apart = F.cross_entropy(net[-1](features.detach()), labels)
    w, b = weights[2].detach(), biases[2].detach()
    fixed = features.detach()
    for _ in range(3):
        w, b = (value.clone().requires_grad_() for value in (w, b)) if not w.grad_fn else (w, b)
        inner = F.cross_entropy(fixed[6:] @ w.T + b, labels[6:]) + (penalty * w.abs()).sum()
        by_w, by_b = torch.autograd.grad(inner, (w, b), create_graph=True)
        w, b = w - 0.4 * by_w, b - 0.4 * by_b
    score = F.cross_entropy(fixed[:3] @ w.T + b, labels[:3])
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, base + apart)  # the score is for the gradient alone
    slopes = torch.autograd.grad(loss, [method.penalty, method.weights, *method.net.parameters()])
    (by_penalty,) = torch.autograd.grad(0.5 * score, penalty)
    known = torch.autograd.grad(base + apart, [weights, *net.parameters()])
    torch.testing.assert_close(slopes, (by_penalty, *known))
    assert by_penalty.any()


def test_the_penalty_learns_in_the_warm_up_and_stays_fixed_after_it(batch):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(1)
    optimiser = torch.optim.SGD(method.parameters(), 0.1)
    for epoch in (1, 2):
        method.begin_epoch(epoch, warm_up=2)
        before = copy.deepcopy(method.state_dict())
        optimiser.zero_grad()
        method(images, labels, domains).backward()
        optimiser.step()
        changed = [not torch.equal(method.state_dict()[name], before[name]) for name in LEARNED]
        assert changed == [epoch == 1] * 3
        assert not torch.equal(method.net[-1].weight, before["net.8.weight"])


def test_the_last_phase_is_that_of_a_weighted_l1(batch):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(2)
    net = copy.deepcopy(method.net)
    weighted = sum(
        method.penalty[c, f].item() * net[-1].weight[c, f].abs() for c in range(4) for f in range(8)
    )
    expected = F.cross_entropy(net(images), labels) + weighted
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, expected)
    known = torch.autograd.grad(expected, list(net.parameters()))
    torch.testing.assert_close(torch.autograd.grad(loss, list(method.net.parameters())), known)


def test_no_weight_is_ever_rewarded_for_its_size(batch):
    method = method_of(1)
    with torch.no_grad():
        method.penalty[0, :2] = -1
        kept = method.penalty.clone()
    method(batch[0].double(), *batch[1:])
    kept[0, :2] = 0
    assert torch.equal(method.penalty, kept)


def test_one_epoch_at_least_learns_the_penalty():
    method = create("metareg", small_cnn(), DOMAINS)
    stages = []
    for epoch in (0, 1):
        method.begin_epoch(epoch, warm_up=0)
        stages.append(method.stage)
    assert stages == ["penalty", "train"]


def test_both_domains_are_in_the_batch():
    method = create("metareg", small_cnn(), DOMAINS)
    pairs = {tuple(int(d) for d in method._pair(torch.tensor([2, 0, 2]))) for _ in range(20)}
    assert pairs == {(0, 2), (2, 0)}


@pytest.mark.parametrize(
    ("option", "value"), [("alpha", -1), ("penalty_rate", -1), ("inner_steps", 0)]
)
def test_what_makes_no_sense_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be at least"):
        create("metareg", small_cnn(), DOMAINS, {option: value})
