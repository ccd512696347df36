from copy import deepcopy

import pytest
import torch
from torch import nn

import bne
from tests.networks import DOMAINS, small_cnn

OVERFLOW = 1e30  # times the scale it is infinite in float32: in the gradient alone


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
    plain, within = Loop(deepcopy(net), enabled), Loop(net, enabled)
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
    without, within = Loop(deepcopy(net)), Loop(net)
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
