"""Running only the nearest branches, and mixing statistics instead of branches."""

import copy

import pytest
import torch
import torch.nn.functional as F

import bne
from bne.core.norm import domain_layers
from tests.networks import randomise_norms, small_cnn

DOMAINS = ["a", "b", "c", "d", "e"]


@pytest.fixture
def net():
    torch.manual_seed(0)
    return randomise_norms(bne.convert(small_cnn(), DOMAINS)).double().eval()


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(10, 3, 16, 16, generator=generator, dtype=torch.double)


@pytest.fixture
def ids():
    return torch.tensor([0, 1, 2, 3, 4, 4, 3, 2, 1, 0])


def with_nearest(net, number):
    net = copy.deepcopy(net)
    net.nearest = number
    return net


def rows_run(net, images, *domains):
    """How many images the network itself is given for one mixture, pass by pass."""
    counts = []
    handle = net.model.register_forward_pre_hook(lambda _, given: counts.append(len(given[0])))
    net(images, *domains, details=True)
    handle.remove()
    return counts


class TestNearest:
    def test_all_branches_are_exact(self, net, images, ids):
        some = with_nearest(net, len(DOMAINS))
        torch.testing.assert_close(some(images), net(images), rtol=0, atol=0)
        for one in (net.train(), some.train()):
            F.cross_entropy(one(images, ids), ids % 4).backward()
        for ours, theirs in zip(some.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)

    @pytest.mark.parametrize("number", [1, 2, 4])
    def test_the_nearest_are_mixed_by_their_own_distances(self, net, images, number):
        whole = net(images, details=True)
        out = with_nearest(net, number)(images, details=True)
        torch.testing.assert_close(out.distances, whole.distances)
        for image in range(len(images)):
            near = whole.distances[image].argsort()[:number]
            inverse = 1 / whole.distances[image, near]
            weights = inverse / inverse.sum()
            torch.testing.assert_close(out.weights[image, near], weights)
            torch.testing.assert_close(out.weights[image].sum(), weights.sum())
            mixed = weights @ whole.branch_logits[image, near]
            torch.testing.assert_close(out.logits[image], mixed)
            run = torch.zeros(len(DOMAINS), dtype=torch.bool)
            run[near] = True
            assert torch.equal(out.branch_logits[image].isfinite().all(1), run)
            torch.testing.assert_close(
                out.branch_logits[image, near], whole.branch_logits[image, near]
            )

    @pytest.mark.parametrize("number", [1, 2, 4])
    def test_cost_follows_the_branches_that_are_run(self, net, images, ids, number):
        some = with_nearest(net, number)
        assert sum(rows_run(some, images)) == (1 + number) * len(images)
        assert sum(rows_run(some.train(), images, ids)) == (1 + number) * len(images)

    @pytest.mark.parametrize("number", [1, 3])
    def test_in_training_the_own_branch_defines_the_statistics(self, net, images, ids, number):
        """The running statistics are those of a warm-up step, whatever else is run."""
        warm = copy.deepcopy(net).train()
        warm(images, ids)
        some = with_nearest(net, number).train()
        out = some(images, ids, details=True)
        assert (out.weights.gather(1, ids.unsqueeze(1)) > 0).all()
        assert ((out.weights > 0).sum(1) == number).all()
        for ours, theirs in zip(domain_layers(some), domain_layers(warm), strict=True):
            torch.testing.assert_close(ours.running_mean, theirs.running_mean)
            torch.testing.assert_close(ours.running_var, theirs.running_var)

    @pytest.mark.parametrize("number", [2, 4])
    def test_training_gradients_are_those_of_a_plain_loop(self, net, images, ids, number):
        near = net(images, details=True).distances.argsort().tolist()  # chosen before the step
        some, loop = with_nearest(net, number).train(), copy.deepcopy(net).train()
        whole, logits = loop(images, ids, details=True), []
        for image, own in enumerate(ids.tolist()):
            run = [own, *(domain for domain in near[image] if domain != own)][:number]
            inverse = 1 / whole.distances[image, run]
            logits.append(inverse / inverse.sum() @ whole.branch_logits[image, run])
        F.cross_entropy(torch.stack(logits), ids % 4).backward()
        F.cross_entropy(some(images, ids), ids % 4).backward()
        for ours, theirs in zip(some.parameters(), loop.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)

    def test_in_training_even_a_full_cache_runs_all_at_once(self, net, images, ids, monkeypatch):
        """One by one, a branch would lack the images that define its statistics."""
        one, other = (with_nearest(net, 3).train() for _ in range(2))
        expected = one(images, ids)
        monkeypatch.setattr("bne.core.ensemble.CPU_VALUES", 1)
        torch.testing.assert_close(other(images, ids), expected)

    def test_one_at_a_time_or_all_at_once(self, net, images):
        some = with_nearest(net, 3)
        expected = some(images)
        some.max_branches = 1
        torch.testing.assert_close(some(images), expected)

    def test_in_training_all_must_be_run_at_once(self, net, images, ids):
        some = with_nearest(net, 3).train()
        some.max_branches = 1
        with pytest.raises(ValueError, match="nearest and max_branches do not go together"):
            some(images, ids, details=True)

    def test_none_is_too_few(self):
        with pytest.raises(ValueError, match="nearest must be at least 1, not 0"):
            bne.convert(small_cnn(), DOMAINS, nearest=0)


class TestDomainsPerStep:
    """A batch of three of the five domains."""

    @pytest.fixture
    def some(self, net):
        some = copy.deepcopy(net).train()
        some.domains_per_step = 3
        return some

    @pytest.fixture
    def own(self):
        return torch.tensor([0, 0, 0, 2, 2, 2, 2, 4, 4, 4])

    def test_their_branches_alone_are_run_and_mixed(self, net, some, images, own):
        whole = copy.deepcopy(net).train()(images, own, details=True)
        out = some(images, own, details=True)
        present = [0, 2, 4]
        inverse = 1 / whole.distances[:, present]
        weights = inverse / inverse.sum(1, keepdim=True)
        torch.testing.assert_close(out.weights[:, present], weights)
        assert (out.weights[:, [1, 3]] == 0).all()
        mixed = (weights.unsqueeze(2) * whole.branch_logits[:, present]).sum(1)
        torch.testing.assert_close(out.logits, mixed)
        assert rows_run(some, images, own) == [10, 30]

    def test_the_others_keep_their_statistics(self, net, some, images, own):
        some(images, own)
        for ours, before in zip(domain_layers(some), domain_layers(net), strict=True):
            same = (ours.running_mean == before.running_mean).all(1)
            assert same.tolist() == [False, True, False, True, False]

    def test_one_branch_at_a_time_or_all_at_once(self, some, images, own):
        one = copy.deepcopy(some)
        one.max_branches = 1
        expected, found = some(images, own), one(images, own)
        torch.testing.assert_close(found, expected)
        for logits in (expected, found):
            logits.square().sum().backward()
        for ours, theirs in zip(one.parameters(), some.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
        for ours, theirs in zip(one.buffers(), some.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs)

    def test_nearest_limits_them_further(self, some, images, own):
        some.nearest = 2
        out = some(images, own, details=True)
        assert ((out.weights > 0).sum(1) == 2).all()
        assert (out.weights.gather(1, own.unsqueeze(1)) > 0).all()
        assert (out.weights[:, [1, 3]] == 0).all()

    def test_equal_weights_are_those_of_the_domains_present(self, some, images, own):
        some.distance = bne.uniform
        weights = some(images, own, details=True).weights
        torch.testing.assert_close(weights[0], weights.new_tensor([1, 0, 1, 0, 1]) / 3)
        torch.testing.assert_close(some(images, own), some(images, own, details=True).logits)

    def test_more_domains_than_said_are_refused(self, some, images, ids):
        with pytest.raises(ValueError, match="images of 5 domains, but domains_per_step is 3"):
            some(images, ids)

    def test_fewer_domains_than_said_are_all_there_is(self, some, images, own):
        two = own.clamp_max(2)
        weights = some(images, two, details=True).weights
        assert (weights[:, [0, 2]] > 0).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(10, dtype=torch.double))

    def test_the_domain_loss_is_of_the_domains_present(self, some, images, own):
        out = some(images, own, details=True)
        assert out.distances[:, [1, 3]].isinf().all()
        F.cross_entropy(bne.distances.nearness(out.distances), own).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in some.parameters())

    def test_evaluation_runs_all(self, net, some, images):
        assert torch.equal(some.eval()(images), net(images))


class TestMixedStatistics:
    @pytest.fixture
    def mixed(self, net):
        mixed = copy.deepcopy(net)
        mixed.mix = "statistics"
        return mixed

    def test_each_layer_has_the_moments_of_the_mixture(self, mixed, net, images):
        """The plain network, its statistics drawn from the mixture's density by hand."""
        out = mixed(images, details=True)
        torch.testing.assert_close(out.weights, net(images, details=True).weights)
        for number, weights in enumerate(out.weights.detach()):
            plain = net.to_plain().eval()
            for name, layer in ((layer.name, layer) for layer in domain_layers(net.model)):
                second = layer.running_var + layer.running_mean.square()
                mean = weights @ layer.running_mean
                plain.get_submodule(name).running_mean = mean
                plain.get_submodule(name).running_var = weights @ second - mean.square()
            expected = plain(images[number : number + 1])
            torch.testing.assert_close(out.logits[number : number + 1], expected)

    def test_large_means_leave_the_variance_its_digits(self):
        torch.manual_seed(0)
        layer = bne.DomainBatchNorm(4, len(DOMAINS)).eval()
        layer.running_mean.normal_(1000)
        layer.running_var.uniform_(0.5, 2)
        x, weights = 1000 + torch.randn(6, 4, 3, 3), torch.rand(6, len(DOMAINS)).softmax(1)
        exact = copy.deepcopy(layer).double().by_mixture(x.double(), weights.double())
        near = layer.by_mixture(x, weights)
        torch.testing.assert_close(near.double(), exact, rtol=0, atol=1e-3)

    def test_any_number_of_domains_costs_two_passes(self, mixed, images):
        assert rows_run(mixed, images) == [len(images), len(images)]

    def test_equal_domains_are_the_plain_network(self, images):
        model = randomise_norms(small_cnn()).double().eval()
        mixed = bne.convert(model, DOMAINS, mix="statistics")
        torch.testing.assert_close(mixed(images), model(images))
        assert mixed(images, details=True).branch_logits.isnan().all()
        assert mixed(images, details=True).branch_logits.shape == (10, 5, 4)

    def test_training_mixes_logits(self, mixed, net, images, ids):
        ours = mixed.train()(images, ids)
        torch.testing.assert_close(ours, net.train()(images, ids))

    def test_half_precision_keeps_the_statistics(self, mixed, images):
        with torch.autocast("cpu", torch.bfloat16):
            near = mixed.float()(images.float())
        torch.testing.assert_close(near.double(), mixed.double()(images), rtol=0.1, atol=0.1)
