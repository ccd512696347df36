"""Training on points, against a plain loop in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.core import points
from bne.core.norm import DomainBatchNorm
from bne.methods import create
from bne.methods.mixstyle import mixed
from tests.networks import DOMAINS, randomise_norms, small_cnn

OTHERS = torch.tensor([1, 2, 1, 0, 0, 2, 0, 1, 1])
SHARES = torch.linspace(0, 0.5, 9)


@pytest.fixture
def drawn(monkeypatch):
    """Known domains and shares instead of random ones."""
    monkeypatch.setattr(points, "another", lambda _, domains: OTHERS % domains)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: SHARES / 0.5)


def method_of(name="points", **options):
    torch.manual_seed(0)
    method = create(name, small_cnn(), DOMAINS, options)
    randomise_norms(method.net)
    method.begin_epoch(1, warm_up=1)
    return method.train()


def by_definition(net, images, own, others, shares):
    """All images under their own domains' batch statistics, then leaning under others'.

    The shares are those of the images, in all layers, or by the layers' names those of all images.
    """
    first = second = images
    for module in net.model:
        if not isinstance(module, DomainBatchNorm):
            first, second = module(first), module(second)
            continue
        known = {}
        for d in range(len(net.domains)):
            known[d] = module.running_mean[d].clone(), module.running_var[d].clone()
            if (own == d).any():
                values = first[own == d].transpose(0, 1).flatten(1)
                known[d] = values.mean(1), values.var(1, correction=0)
        here = shares[module.name].expand(9) if isinstance(shares, dict) else shares
        rows = []
        for x, under, leaning in ((first, own, here * 0), (second, others, here)):
            out = []
            for image, d, share in zip(x, under.tolist(), leaning, strict=True):
                mean, deviation = known[d][0], (known[d][1] + module.eps).sqrt()
                image_deviation = (image.var((1, 2), correction=0) + module.eps).sqrt()
                mean = (1 - share) * mean + share * image.mean((1, 2))
                deviation = (1 - share) * deviation + share * image_deviation
                scale, shift = module.weight / deviation, module.bias
                out.append((image - mean[:, None, None]) * scale[:, None, None])
                out[-1] = out[-1] + shift[:, None, None]
            rows.append(torch.stack(out))
        first, second = rows
    return torch.cat([first, second])


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("own", [[0, 0, 0, 1, 1, 1, 2, 2, 2], [2, 0, 0, 2, 2, 0, 2, 0, 0]])
def test_logits_and_gradients_against_the_definition(batch, own):
    """Also where images are run under a domain that is not in the batch."""
    method, own, labels = method_of().double(), torch.tensor(own), batch[1]
    images = batch[0].double().requires_grad_()
    inputs = [images, *method.parameters()]
    expected = by_definition(method.net, images, own, OTHERS, SHARES.double())
    slopes = torch.autograd.grad(
        (F.cross_entropy(expected[:9], labels) + F.cross_entropy(expected[9:], labels)) / 2, inputs
    )
    actual = method.net(images, own, max_lean=0.5)
    torch.testing.assert_close(actual, expected)
    loss = method(images, labels, own)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), slopes)


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("name", ["points", "deepall-points"])
def test_learned_shares_against_the_definition(batch, name):
    method, (images, labels, own) = method_of(name, learn_lean=True).double(), batch
    with torch.no_grad():
        method.shares.logits.copy_(torch.tensor([-1.0, 0.5]))
    images, inputs = images.double(), list(method.parameters())
    own, others = (ids % len(method.net.domains) for ids in (own, OTHERS))
    shares = {"1": method.shares.logits[0].sigmoid(), "4": method.shares.logits[1].sigmoid()}
    logits = by_definition(method.net, images, own, others, shares)
    slopes = torch.autograd.grad(F.cross_entropy(logits, labels.repeat(2)), inputs)
    loss = method(images, labels, own)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), slopes)


def test_second_points_may_be_mixtures_of_domains(batch):
    """In double precision, against the domains' moments pooled by hand at every layer."""
    images, _, own = batch
    net = method_of().double().net
    weights = torch.tensor([[0, 1, 0], [0, 0.5, 0.5], [1 / 3] * 3] * 3, dtype=torch.double)
    torch.manual_seed(3)
    shares = torch.rand(9) * 0.5
    first = second = images.double()
    for module in net.model:
        if not isinstance(module, DomainBatchNorm):
            first, second = module(first), module(second)
            continue
        own_rows = [first[own == d].transpose(0, 1).flatten(1) for d in range(3)]
        mean = torch.stack([rows.mean(1) for rows in own_rows])
        square = torch.stack([rows.square().mean(1) for rows in own_rows])
        rows = []
        for x, weights_here, share in (
            (first, torch.eye(3)[own].double(), shares * 0),
            (second, weights, shares),
        ):
            middle = weights_here @ mean
            deviation = (weights_here @ square - middle.square() + module.eps).sqrt()
            middle = torch.lerp(middle, x.mean((2, 3)), share.double()[:, None])
            instance = (x.var((2, 3), correction=0) + module.eps).sqrt()
            deviation = torch.lerp(deviation, instance, share.double()[:, None])
            x = (x - middle[..., None, None]) / deviation[..., None, None]
            rows.append(x * module.weight[:, None, None] + module.bias[:, None, None])
        first, second = rows
    torch.manual_seed(3)
    found = net(images.double(), own, max_lean=0.5, elsewhere=weights)
    torch.testing.assert_close(found, torch.cat([first, second]))
    with pytest.raises(ValueError, match="pass max_lean"):
        net(images, own, elsewhere=weights)


@pytest.mark.parametrize("mixtures", [False, True])
@pytest.mark.parametrize("own", [[0, 0, 0, 1, 1, 1, 2, 2, 2], [2, 0, 0, 2, 2, 0, 2, 0, 0]])
def test_second_points_may_lie_beyond_the_domains(batch, monkeypatch, own, mixtures):
    """Logits and gradients by a plain loop in double precision, also far out, and past mixtures."""
    monkeypatch.setattr(points, "another", lambda *_: OTHERS)
    method, own = method_of().double(), torch.tensor(own)
    net = method.net
    images = (batch[0] * (0.1 + own)[:, None, None, None]).double().requires_grad_()
    beyond = torch.tensor([0, 0.1, 0.25, 0.5, 1, 2, 4, 8, 0.5], dtype=torch.double)
    weights = torch.eye(3)[OTHERS].double()
    if mixtures:
        weights = torch.tensor([[0, 1, 0], [0, 0.5, 0.5], [0.2, 0.2, 0.6]] * 3, dtype=torch.double)
    torch.manual_seed(3)
    shares = torch.rand(9).double() * 0.5
    first = second = images
    floors = 0
    for module in net.model:
        if not isinstance(module, DomainBatchNorm):
            first, second = module(first), module(second)
            continue
        mean, var = module.running_mean.clone(), module.running_var.clone()
        for d in own.unique():
            values = first[own == d].transpose(0, 1).flatten(1)
            mean[d], var[d] = values.mean(1), values.var(1, correction=0)
        square = var + mean**2
        there = own.unique()
        middle = mean[there].sum(0) / len(there)
        spread = (square[there].sum(0) / len(there) - middle**2 + module.eps).sqrt()
        rows = [[], []]
        for n in range(9):
            one = [mean[own[n]], (var[own[n]] + module.eps).sqrt()]
            through = sum(weights[n, d] * mean[d] for d in range(3))
            other = sum(weights[n, d] * square[d] for d in range(3)) - through**2
            other = (other + module.eps).sqrt()
            far = middle + (1 + beyond[n]) * (through - middle)
            wide = spread + (1 + beyond[n]) * (other - spread)
            floors += int((wide < other / 2).sum())
            wide = torch.where(wide < other / 2, other / 2, wide)
            instance = (second[n].var((1, 2), correction=0) + module.eps).sqrt()
            far = (1 - shares[n]) * far + shares[n] * second[n].mean((1, 2))
            wide = (1 - shares[n]) * wide + shares[n] * instance
            for x, out, (m, s) in ((first, rows[0], one), (second, rows[1], (far, wide))):
                scaled = (x[n] - m[:, None, None]) / s[:, None, None]
                out.append(scaled * module.weight[:, None, None] + module.bias[:, None, None])
        first, second = torch.stack(rows[0]), torch.stack(rows[1])
    assert floors or mixtures  # where deviations would have become too small
    expected = torch.cat([first, second])
    torch.manual_seed(3)
    elsewhere = weights if mixtures else None
    found = net(images, own, max_lean=0.5, elsewhere=elsewhere, beyond=beyond)
    torch.testing.assert_close(found, expected)
    inputs = [images, *net.parameters()]
    slopes = [torch.autograd.grad(out.square().sum(), inputs) for out in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_how_far_beyond_is_uniform_up_to_the_largest(batch):
    method = create("points", small_cnn(), DOMAINS, {"beyond": 0.4})
    drawn = method.how_far_beyond(torch.arange(1000) % 3)
    quarters = torch.histc(drawn, 4, 0, 0.4).tolist()
    assert sum(quarters) == 1000
    assert all(abs(quarter - 250) < 55 for quarter in quarters)
    # The method's loss is that of the network at what it draws.
    images, labels, own = batch
    method, again = method_of(beyond=0.4), method_of(beyond=0.4)
    torch.manual_seed(3)
    beyond = again.how_far_beyond(own)
    expected = F.cross_entropy(
        again.net(images, own, max_lean=0.5, beyond=beyond), labels.repeat(2)
    )
    torch.manual_seed(3)
    torch.testing.assert_close(method(*batch), expected)


@pytest.mark.parametrize("beyond", [torch.tensor([-0.1] * 9), torch.ones(3), torch.ones(9, 1)])
def test_what_is_no_way_beyond_is_refused(batch, beyond):
    images, _, own = batch
    net = method_of().net
    with pytest.raises(ValueError, match="beyond must have 9 numbers"):
        net(images, own, max_lean=0.5, beyond=beyond)
    with pytest.raises(ValueError, match="pass max_lean"):
        net(images, own, beyond=beyond)
    for number in (-0.1, 1.5, True):
        with pytest.raises(ValueError, match="beyond must be a share"):
            create("points", small_cnn(), DOMAINS, {"beyond": number})


def test_second_points_are_drawn_among_centre_and_groups():
    own = torch.tensor([0, 1, 3]).repeat_interleave(2000)
    method = create("points", small_cnn(), list("abcde"), {"centre": 0.25})
    weights = method.elsewhere(own)
    central = weights.amax(1) < 0.5
    even = torch.tensor([1, 1, 0, 1, 0]) / 3
    torch.testing.assert_close(weights[central], even.expand(int(central.sum()), -1))
    assert 0.22 < central.float().mean() < 0.28
    assert (weights[~central].gather(1, own[~central].unsqueeze(1)) == 0).all()
    assert ((weights[~central] == 1).sum(1) == 1).all()
    method = create("points", small_cnn(), list("abcde"), {"groups": True})
    taken = method.elsewhere(own)[:2000] > 0
    found, counts = taken.unique(dim=0, return_counts=True)
    # Half as often alone as not: b or d, and by an even chance each a and the other of them.
    chances = {"01000": 1 / 8, "00010": 1 / 8, "11000": 1 / 8, "10010": 1 / 8}
    chances |= {"01010": 1 / 4, "11010": 1 / 4}
    shares = {
        "".join(str(int(x)) for x in row): n / 2000
        for row, n in zip(found, counts.tolist(), strict=True)
    }
    assert shares == pytest.approx(chances, abs=0.04)
    assert create("points", small_cnn(), list("abcde")).elsewhere(own) is None


@pytest.mark.parametrize(
    "options", [{"centre": 1.0}, {"groups": True, "learn_lean": True, "beyond": 1.0}]
)
def test_mixtures_train_everything(batch, options):
    method = method_of(**options)
    method(*batch).backward()
    assert all(parameter.grad.isfinite().all() for parameter in method.parameters())


@pytest.mark.parametrize("name", ["points", "deepall-points"])
def test_shares_start_at_a_fifth_and_learn_after_the_warm_up(batch, name):
    method = method_of(name, learn_lean=True)
    assert method.learned_lean == pytest.approx({"1": 0.2, "4": 0.2})
    optimiser = torch.optim.SGD(method.parameters(), 1.0)
    method.begin_epoch(0, warm_up=1)
    method(*batch).backward()
    assert method.shares.logits.grad is None
    method.begin_epoch(1, warm_up=1)
    method(*batch).backward()
    optimiser.step()
    assert all(share != pytest.approx(0.2) for share in method.learned_lean.values())
    again = method_of(name, learn_lean=True)
    again.load_state_dict(method.state_dict())
    assert again.learned_lean == method.learned_lean
    assert method_of(name).learned_lean is None


def test_layers_that_are_not_named_do_not_lean(batch):
    images, _, domains = batch
    net, share, found = method_of().net, torch.tensor(0.3), []
    for shares in ({"1": share}, {"1": share, "4": share * 0}):
        torch.manual_seed(3)
        found.append(net(images, domains, max_lean=shares))
    torch.testing.assert_close(*found)
    with pytest.raises(ValueError, match="no batch-norm layer is named"):
        net(images, domains, max_lean={"bn": share})


def test_the_statistics_kept_are_those_of_the_first_copies(batch):
    images, _, domains = batch
    points, own = method_of().net, method_of().net
    first = own(images, domains, own_branch=True)
    torch.testing.assert_close(points(images, domains, max_lean=0.5)[:9], first)
    for (name, kept), expected in zip(points.named_buffers(), own.buffers(), strict=True):
        torch.testing.assert_close(kept, expected, msg=name)


def test_the_other_domain_is_drawn_evenly_from_those_in_the_batch():
    own = torch.tensor([0, 1, 3]).repeat_interleave(3000)
    other = points.another(own, 5)
    counts = [torch.bincount(part, minlength=5).tolist() for part in other.split(3000)]
    for d, row in zip((0, 1, 3), counts, strict=True):
        assert row[d] == row[2] == row[4] == 0
        assert all(abs(row[e] - 1500) < 110 for e in {0, 1, 3} - {d})  # 4 deviations
    assert points.another(torch.full((7,), 2), 5).tolist() == [2] * 7  # alone


def test_shares_are_uniform_up_to_the_largest(monkeypatch):
    net, met = method_of().net, []
    by_domain = DomainBatchNorm.by_domain

    def spy(layer, *args, shares, **options):
        met.append(shares)
        return by_domain(layer, *args, shares=shares, **options)

    monkeypatch.setattr(DomainBatchNorm, "by_domain", spy)
    net(torch.randn(1000, 3, 7, 7), torch.arange(1000) % 3, max_lean=0.4)
    first, second = met[0].split(1000)
    assert torch.equal(met[0], met[1])  # the same in every layer
    assert not first.any()
    quarters = torch.histc(second, 4, 0, 0.4).tolist()
    assert sum(quarters) == 1000
    assert all(abs(quarter - 250) < 55 for quarter in quarters)


def test_domains_play_no_part_without_domains(batch):
    images, labels, domains = batch
    found = []
    for ids in (domains, domains.flip(0)):
        method = method_of("deepall-points")
        method.observe(images, ids)
        torch.manual_seed(3)
        found.append([method(images, labels, ids), *method.state_dict().values()])
    assert all(map(torch.equal, *found))
    method = method_of("deepall-points", max_lean=0.3)
    net = copy.deepcopy(method.net)
    torch.manual_seed(3)
    logits = net(images, max_lean=0.3)
    torch.manual_seed(3)
    expected = F.cross_entropy(logits, labels.repeat(2))
    torch.testing.assert_close(method(images, labels, domains), expected)


@pytest.mark.parametrize("name", ["points", "deepall-points"])
def test_the_warm_up_is_that_of_branches(name, batch):
    images, labels, domains = batch
    method = method_of(name)
    assert method.stage == "points"
    method.begin_epoch(0, warm_up=1)
    ids = domains if name == "points" else torch.zeros_like(domains)
    logits = copy.deepcopy(method.net)(images, ids, own_branch=True)
    torch.testing.assert_close(method(*batch), F.cross_entropy(logits, labels))


def test_predictions_are_those_at_the_centre_unless_told_otherwise(batch):
    method = method_of().eval()
    plain = method.net.to_plain().eval()
    torch.testing.assert_close(method.predict(batch[0]), plain(batch[0]))
    mixing = method_of(mix="logits").eval()
    assert torch.equal(mixing.predict(batch[0]), mixing.explain(batch[0]).logits)
    assert not torch.allclose(mixing.predict(batch[0]), plain(batch[0]))
    without = method_of("deepall-points").eval()
    torch.testing.assert_close(without.predict(batch[0]), without.net.to_plain().eval()(batch[0]))


@pytest.mark.parametrize("name", ["points", "deepall-points"])
@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan"), True])
def test_what_is_no_share_is_refused(name, share):
    with pytest.raises(ValueError, match="max_lean must be a share"):
        create(name, small_cnn(), DOMAINS, {"max_lean": share})


@pytest.mark.parametrize("name", ["points", "deepall-points"])
def test_styles_are_mixed_alike_in_both_copies(name, batch, monkeypatch):
    """Against the network with the features of its one stage changed by hand."""
    images, labels, domains = batch
    method = method_of(name, mixstyle="own domain")
    assert method.styles.layers == ["0"]
    partners, share = torch.tensor([1, 2, 0, 4, 3, 5, 8, 6, 7]), torch.linspace(0, 1, 9)
    drawn_for = []
    monkeypatch.setattr(
        method.styles, "draw", lambda ids, _: (drawn_for.append(ids), (partners, share))[1]
    )
    plain = copy.deepcopy(method.net)
    with torch.no_grad():
        features = plain.model[0](images)
    both = mixed(features, partners, share).repeat(2, 1, 1, 1)
    plain.model[0].register_forward_hook(lambda _, __, x: both[: len(x)])
    ids = domains if name == "points" else torch.zeros_like(domains)
    torch.manual_seed(3)
    expected = F.cross_entropy(plain(images, ids, max_lean=0.5), labels.repeat(2))
    torch.manual_seed(3)
    torch.testing.assert_close(method(*batch), expected)
    assert torch.equal(drawn_for[0], domains)
    method.begin_epoch(0, warm_up=1)
    expected = F.cross_entropy(plain(images, ids, own_branch=True), labels)
    torch.testing.assert_close(method(*batch), expected)
    assert not method.net.model[0]._forward_hooks
    with pytest.raises(ValueError, match="partners must be one of"):
        create(name, small_cnn(), DOMAINS, {"mixstyle": "same"})


def test_a_share_of_centres_is_a_share():
    with pytest.raises(ValueError, match="centre must be a share"):
        create("points", small_cnn(), DOMAINS, {"centre": 1.5})
