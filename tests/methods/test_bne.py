import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import BNE, create
from tests.networks import DOMAINS, randomise_norms, small_cnn


@pytest.mark.parametrize("distance_training", [False, True])
def test_bne_warms_up_or_trains_by_distance(batch, distance_training):
    images, labels, domains = batch
    method = BNE(small_cnn(), DOMAINS).train()
    reference = copy.deepcopy(method.net)
    method.begin_epoch(1, warm_up=1 if distance_training else 2)
    logits = reference(images, domains, own_branch=not distance_training)
    torch.testing.assert_close(method.loss(*batch), F.cross_entropy(logits, labels))
    torch.testing.assert_close(method.eval().predict(images), reference.eval()(images))


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("bne-a", ["warm-up", "warm-up", "warm-up"]),
        ("bne-b", ["distance training", "distance training", "distance training"]),
        ("bne", ["warm-up", "warm-up", "distance training"]),
    ],
)
def test_the_papers_three_policies(name, stages):
    method = create(name, small_cnn(), DOMAINS)
    found = []
    for epoch in range(3):
        method.begin_epoch(epoch, warm_up=2)
        found.append(method.stage)
    assert found == stages


def test_the_domain_loss_is_the_cross_entropy_of_the_weights(batch):
    images, labels, domains = batch
    method = create("bne-ce", randomise_norms(small_cnn()), DOMAINS, {"domain_loss": 0.5}).train()
    out = copy.deepcopy(method.net)(images, domains, details=True)
    own = out.weights[torch.arange(9), domains]
    expected = F.cross_entropy(out.logits, labels) - 0.5 * own.log().mean()
    torch.testing.assert_close(method.loss(*batch), expected)


@pytest.mark.parametrize("domain_loss", [0.0, 0.5])
def test_the_branch_loss_is_the_mean_of_the_branches_losses(batch, domain_loss):
    images, labels, domains = batch
    options = {"branch_loss": 0.3, "domain_loss": domain_loss}
    method = BNE(randomise_norms(small_cnn()), DOMAINS, **options).train()
    out = copy.deepcopy(method.net)(images, domains, details=True)
    branches = [F.cross_entropy(out.branch_logits[:, k], labels) for k in range(3)]
    expected = 0.7 * F.cross_entropy(out.logits, labels) + 0.3 * sum(branches) / 3
    expected = expected - domain_loss * out.weights[torch.arange(9), domains].log().mean()
    torch.testing.assert_close(method.loss(*batch), expected)


def test_the_domain_loss_is_finite_where_a_weight_vanishes(batch):
    images, labels, domains = batch
    method = create("bne-ce", small_cnn(), DOMAINS).train()
    distances = torch.tensor([[0.0, 1e9, 1e9]] * 9, requires_grad=True)
    method.net.distance = lambda a, b: distances
    loss = method.loss(images, labels, domains)
    assert loss.isfinite()
    loss.backward()
    assert distances.grad.isfinite().all()
    assert (
        method.net(images, domains, details=True).weights[:, 1].log().isinf().all()
    )  # the case is real


@pytest.mark.parametrize("mix", ["logits", "probabilities"])
def test_uniform_weights_need_no_place_in_the_space_of_domains(batch, monkeypatch, mix):
    method = BNE(randomise_norms(small_cnn()), DOMAINS, distance="uniform", mix=mix).eval()
    randomise_norms(method.net)
    method.net.max_images = 4
    expected = method.explain(batch[0]).logits
    monkeypatch.setattr(method.net, "_embed", None)
    torch.testing.assert_close(method.predict(batch[0]), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance_training": "sometimes"}, "distance_training must be one of"),
        ({"domain_loss": 1.0, "weight_gradient": False}, "it needs weight_gradient"),
        ({"distance": "euclid"}, "no distance is named 'euclid'"),
        ({"branch_loss": 1.1}, "branch_loss must be a share from 0 to 1"),
        ({"branch_loss": 0.5, "nearest": 2}, "leave nearest out"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BNE(small_cnn(), DOMAINS, **options)


def test_a_negative_domain_loss_is_refused():
    with pytest.raises(ValueError, match="domain_loss must be at least 0, not -1"):
        BNE(small_cnn(), DOMAINS, domain_loss=-1)
