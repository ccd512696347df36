import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import BNE, create
from bne.methods.mixstyle import mixed
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


def test_a_warm_up_after_statistics_learns_nothing_else(batch):
    images, labels, domains = batch
    method = BNE(small_cnn(), DOMAINS, distance_training="after statistics").train()
    usual, weights = copy.deepcopy(method.net), copy.deepcopy(dict(method.named_parameters()))
    method.begin_epoch(0, warm_up=1)
    assert method.stage == "statistics"
    step = torch.optim.SGD(method.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
    loss = method.loss(*batch)
    (loss / 2).backward()
    step.step()
    torch.testing.assert_close(
        loss, F.cross_entropy(usual(images, domains, own_branch=True), labels)
    )
    for name, value in method.named_parameters():
        assert torch.equal(value, weights[name])
    for name, value in usual.named_buffers():
        assert torch.equal(value, method.net.get_buffer(name))
    method.begin_epoch(1, warm_up=1)
    assert method.stage == "distance training"


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


@pytest.mark.parametrize(
    ("name", "options", "mixes"),  # the passes of a step after the warm-up, in order
    [
        ("bne", {}, [False, True]),  # by instance, all branches
        ("bne", {"branch_statistics": "population"}, [True, False, True]),  # own branch before
        ("bne", {"weight_gradient": False}, [False, True]),
        ("dson-bne", {"distance_training": "always"}, [False, True]),
    ],
)
def test_styles_are_mixed_alike_in_every_branch(batch, monkeypatch, name, options, mixes):
    """Against the network with the features of its one stage changed by hand, pass by pass."""
    images, labels, domains = batch
    method = create(
        name, randomise_norms(small_cnn()), DOMAINS, {"mixstyle": "own domain"} | options
    )
    partners, share = torch.tensor([1, 2, 0, 4, 3, 5, 8, 6, 7]), torch.linspace(0, 1, 9)
    drawn = []
    monkeypatch.setattr(
        method.styles, "draw", lambda ids, _: (drawn.append(ids), (partners, share))[1]
    )
    plain = copy.deepcopy(method.train().net)
    with torch.no_grad():
        changed = mixed(plain.model[0](images), partners, share)
    passes = iter(mixes)
    plain.model[0].register_forward_hook(
        lambda _, __, x: changed.repeat(len(x) // 9, 1, 1, 1) if next(passes) else None
    )
    expected = F.cross_entropy(plain(images, domains), labels)
    torch.testing.assert_close(method(*batch), expected)
    for (key, found), known in zip(method.net.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(found, known, msg=key)
    assert next(passes, None) is None
    assert len(drawn) == 1
    assert torch.equal(drawn[0], domains)
    assert not method.net.model[0]._forward_hooks
    assert torch.equal(method.eval().predict(images), method.net(images))


def test_styles_stay_in_their_branch_if_a_step_has_some_domains_alone(batch):
    """Against a network that knows no others."""
    images, labels, domains = (part[:6] for part in batch)
    model, losses = randomise_norms(small_cnn()), []
    for known in (DOMAINS, DOMAINS[:2]):
        method = create("bne-b", model, known, {"mixstyle": "other domain"})
        method.net.domains_per_step = 2
        method.styles.probability, method.styles.layers = 1.0, ["3"]  # after a batch norm
        torch.manual_seed(0)
        losses.append(method.train()(images, labels, domains))
    torch.testing.assert_close(*losses)


def test_styles_in_the_warm_up_and_what_they_do_not_go_with(batch, monkeypatch):
    method = BNE(small_cnn(), DOMAINS, mixstyle="own domain").train()
    method.begin_epoch(0, warm_up=1)
    monkeypatch.setattr(method.styles, "draw", lambda *_: (torch.arange(9).flip(0), torch.zeros(9)))
    mixing, plain = method(*batch), BNE(small_cnn(), DOMAINS)
    plain.load_state_dict(method.state_dict())
    plain.train().begin_epoch(0, warm_up=1)
    assert not torch.allclose(mixing, plain(*batch))
    with pytest.raises(ValueError, match="nearest does not go with max_branches"):
        BNE(small_cnn(), DOMAINS, nearest=1, max_branches=1)
    BNE(small_cnn(), DOMAINS, nearest=1, max_branches=1, branch_statistics="population")
    with pytest.raises(ValueError, match="does not go with max_branches"):
        BNE(small_cnn(), DOMAINS, mixstyle="own domain", max_branches=1)
    with pytest.raises(ValueError, match="does not go with nearest"):
        BNE(small_cnn(), DOMAINS, mixstyle="own domain", nearest=2)
    BNE(small_cnn(), DOMAINS, mixstyle="own domain", nearest=2, distance_training="never")
    create("points", small_cnn(), DOMAINS, {"mixstyle": "own domain", "nearest": 2})
    with pytest.raises(ValueError, match="partners must be one of"):
        BNE(small_cnn(), DOMAINS, mixstyle="same")


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
