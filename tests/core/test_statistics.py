"""Statistics measured over a loader, against sums by hand; and put back after skipped steps."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bne
from bne.core.norm import domain_layers
from bne.core.statistics import measure, shrunk
from bne.methods import create
from tests.networks import randomise_norms, small_cnn

DOMAINS = ["a", "b", "c"]
IDS = torch.tensor([0] * 12 + [1] * 5 + [2] * 10)
OVERFLOW = 1e30  # times the scale it is infinite in float32: in the gradient alone


@pytest.fixture
def images() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(27, 3, 12, 12, generator=generator)
    return images * (1 + IDS.view(-1, 1, 1, 1)) + IDS.view(-1, 1, 1, 1)


@pytest.fixture
def net() -> bne.DomainEnsemble:
    torch.manual_seed(0)
    return randomise_norms(bne.convert(small_cnn(), DOMAINS)).eval()


@pytest.mark.parametrize("size", [6, 1])  # 27 batches of one are summed up in two parts
def test_the_first_layer_has_its_inputs_own_moments_in_any_batches(net, images, size) -> None:
    labels = torch.zeros(27, dtype=torch.long)
    loader = DataLoader(TensorDataset(images, labels, IDS), batch_size=size, shuffle=True)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    bne.recompute_statistics(net, loader)
    layer = next(domain_layers(net))
    inputs = net.model[0](images).detach()
    for domain in range(3):
        own = inputs[domain == IDS].transpose(0, 1).flatten(1)
        torch.testing.assert_close(layer.running_mean[domain], own.mean(1))
        torch.testing.assert_close(layer.running_var[domain], own.var(1, correction=0))
    assert not net.training
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]) == (not key.endswith(("_mean", "_var"))), key


def test_one_batch_of_everything_gives_every_layer_its_batch_statistics(net, images) -> None:
    one = copy.deepcopy(net).train()
    for layer in domain_layers(one):
        layer.momentum = 1.0
    one(images, IDS, own_branch=True)
    bne.recompute_statistics(net.train(), [(images, [DOMAINS[i] for i in IDS])])  # by name
    for ours, theirs in zip(domain_layers(net), domain_layers(one), strict=True):
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)
    assert net.training


def test_a_method_is_left_as_its_mode_has_it(images) -> None:
    method = create("bne-pooled", small_cnn(), DOMAINS).eval()
    before = method.predict(images)
    measure(method, [(images, IDS, torch.ones(27, dtype=torch.bool))], method.observe, 3)
    assert not method.training
    others = create("bne-pooled", small_cnn(), DOMAINS)
    others.load_state_dict(method.state_dict())
    torch.testing.assert_close(method.predict(images), others.eval().predict(images))
    assert not torch.equal(method.predict(images), before)  # by the new statistics


def test_few_images_lean_on_the_average_domain(net, images) -> None:
    own, half, much = (copy.deepcopy(net) for _ in range(3))
    for one, shrinkage in ((own, 0.0), (half, 5.0), (much, 1e9)):
        bne.recompute_statistics(one, [(images, IDS)], shrinkage=shrinkage)
    layers = zip(*(domain_layers(one) for one in (own, half, much)), strict=True)
    kept = torch.tensor([12 / 17, 5 / 10, 10 / 15])
    for first, second, third in layers:
        share = kept / kept.sum()
        target = share @ first.running_mean
        expected = torch.lerp(target.expand(3, -1), first.running_mean, kept.unsqueeze(1))
        torch.testing.assert_close(second.running_mean, expected)
        deviation = (first.running_var + first.eps).sqrt()
        expected = torch.lerp((share @ deviation).expand(3, -1), deviation, kept.unsqueeze(1))
        torch.testing.assert_close((second.running_var + first.eps).sqrt(), expected)
        torch.testing.assert_close(third.running_mean[0], third.running_mean[2])


def test_shrinking_pays_for_small_domains_of_one_kind() -> None:
    """Means and deviations of domains that are drawn around a common one, from few samples."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(200, 8, generator=generator) * 0.3
    samples = true.unsqueeze(1) + torch.randn(200, 4, 8, generator=generator)
    found = bne.core.moments.Moments(samples.mean(1), samples.var(1, correction=0))
    near = shrunk(found, torch.full((200,), 4.0), 8.0, 1e-5)
    assert (near.mean - true).square().mean() < 0.7 * (found.mean - true).square().mean()


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        ([], {}, "no images to measure"),
        ([(torch.randn(4, 3, 8, 8), torch.tensor([0, 0, 1, 1]))], {}, "no images of domain 2"),
        ([(torch.randn(4, 3, 8, 8), torch.tensor([0, 1]))], {}, "4 images need as many domains"),
        ([], {"shrinkage": -1.0}, "shrinkage must be at least 0"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(net, batches, options, message: str) -> None:
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        bne.recompute_statistics(net, batches, **options)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not any(module._forward_pre_hooks for module in net.modules())
    with pytest.raises(TypeError, match="not a Sequential"):
        bne.recompute_statistics(nn.Sequential(), [])  # type: ignore[arg-type]


class Loop:
    """A training loop with a gradient scaler; each of its steps is a sound one or overflows."""

    def __init__(self, net, enabled=True, fused=False):
        self.net = net.train()
        self.optimizer = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9, fused=fused)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, enabled=enabled)

    def step(self, *factors):
        """Accumulates gradients of one batch per factor of the loss."""
        self.optimizer.zero_grad()
        for factor in factors:
            images = torch.randn(6, 3, 8, 8)
            ids = torch.arange(6) % len(DOMAINS)
            logits = self.net(images, ids) if hasattr(self.net, "domains") else self.net(images)
            assert logits.isfinite().all()
            self.scaler.scale(logits.square().mean() * factor).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def networks():
    torch.manual_seed(0)
    return {"converted": bne.convert(small_cnn(), DOMAINS), "plain": small_cnn()}


def state(net):
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def same(before, after):
    return {name for name in before if torch.equal(before[name], after[name])}


@pytest.mark.parametrize("kind", ["converted", "plain"])
@pytest.mark.parametrize("fused", [True, False])  # such an optimizer skips by itself
def test_a_skipped_step_leaves_the_network_as_it_was(kind, fused):
    loop = Loop(networks()[kind], fused=fused)
    loop.step(1)
    before = state(loop.net)
    with bne.forget_skipped_step(loop.net, loop.scaler):
        loop.step(OVERFLOW)
    assert same(before, loop.net.state_dict()) == set(before)
    assert loop.scaler.get_scale() == 2.0**29

    loop.step(OVERFLOW)  # by itself, it changes the statistics alone
    assert same(before, loop.net.state_dict()) == {name for name, _ in loop.net.named_parameters()}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_step_that_is_taken_counts(enabled):
    net = networks()["converted"]
    plain, within = Loop(copy.deepcopy(net), enabled), Loop(net, enabled)
    torch.manual_seed(1)
    plain.step(1)
    torch.manual_seed(1)
    with bne.forget_skipped_step(within.net, within.scaler):
        within.step(1)
    torch.testing.assert_close(state(within.net), state(plain.net), rtol=0, atol=0)
    assert within.net.model[1].num_batches_tracked.tolist() == [1] * len(DOMAINS)


def test_a_skipped_step_forgets_all_batches_that_it_accumulates():
    """Also a sound one; training goes on as if the step had not been."""
    net = networks()["converted"]
    without, within = Loop(copy.deepcopy(net)), Loop(net)
    sound, overflows = (1, 1), (1, OVERFLOW)
    for loop, by_seed in (
        (without, {1: sound, 3: sound}),
        (within, {1: sound, 2: overflows, 3: sound}),
    ):
        for seed, factors in by_seed.items():
            torch.manual_seed(seed)
            with bne.forget_skipped_step(loop.net, loop.scaler):
                loop.step(*factors)
    assert without.scaler.get_scale() == 2 * within.scaler.get_scale()  # exact: powers of two
    torch.testing.assert_close(state(within.net), state(without.net), rtol=0, atol=0)
    assert within.net.model[1].num_batches_tracked.tolist() == [4] * len(DOMAINS)


def test_statistics_stay_where_they_are_in_memory():
    """A CUDA graph writes to the same addresses again."""
    loop = Loop(networks()["converted"])
    addresses = [buffer.data_ptr() for buffer in loop.net.buffers()]
    with bne.forget_skipped_step(nn.ModuleList([loop.net]), loop.scaler):  # wrapped, as by DDP
        loop.step(OVERFLOW)
    assert [buffer.data_ptr() for buffer in loop.net.buffers()] == addresses
    assert not loop.net.model[1].num_batches_tracked.any()
