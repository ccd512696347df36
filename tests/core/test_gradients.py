"""Gradients and torch.func's transforms of a whole network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from tests.networks import DOMAINS, small_cnn


@pytest.mark.parametrize("domains", [["one"], ["a", "b", "c"]])
@pytest.mark.parametrize("order", ["two steps", "evaluation, then a step"])
def test_statistics_may_change_between_a_pass_and_its_backward(domains, order):
    torch.manual_seed(0)
    net = bne.convert(small_cnn(), domains, branch_statistics="population").double().train()
    images = torch.randn(6, 3, 8, 8, dtype=torch.double)
    ids = torch.arange(6) % len(domains)
    if order == "two steps":
        loss = net(images, ids).sum() + net(2 * images, ids).sum()
    else:
        loss = net.eval()(images[:1]).sum()
        net.train()(images, ids, own_branch=True)
    loss.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("max_branches", [None, 1])
def test_a_graph_that_is_kept_can_be_run_backward_again(max_branches):
    torch.manual_seed(0)
    net = bne.convert(small_cnn(), ["a", "b"], max_branches=max_branches).double().train()
    images, ids = torch.randn(6, 3, 8, 8, dtype=torch.double), torch.arange(6) % 2
    loss = net(images, ids).square().sum()
    once = torch.autograd.grad(loss, tuple(net.parameters()), retain_graph=True)
    again = torch.autograd.grad(loss, tuple(net.parameters()))
    for one, other in zip(once, again, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert net.model[1].num_batches_tracked.tolist() == [1, 1]


def test_vmap():
    net = bne.convert(small_cnn(), ["a", "b"]).double().eval()
    images = torch.randn(3, 1, 3, 8, 8, dtype=torch.double)
    expected = net(images.flatten(0, 1)).unsqueeze(1)
    torch.testing.assert_close(torch.vmap(net)(images), expected)
    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(net)(images), expected)


class Scaled(nn.Module):
    """A distance that learns."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images, domains):
        return self.scale * bne.wasserstein(images, domains)


@pytest.mark.parametrize("weight_gradient", [True, False])
def test_no_gradient_goes_through_the_weights_unless_wanted(weight_gradient):
    net = bne.convert(
        small_cnn(), DOMAINS, distance=Scaled(), weight_gradient=weight_gradient
    ).train()
    out = net(torch.randn(6, 3, 16, 16), torch.arange(6) % 3, details=True)
    assert out.weights.requires_grad == weight_gradient


def test_single_branches_can_be_trained_by_their_logits():
    net = bne.convert(small_cnn(), DOMAINS, nearest=2)
    out = net.train()(torch.randn(6, 3, 16, 16), torch.arange(6) % 3, details=True)
    run = out.branch_logits.isfinite()
    assert run.any(2).sum(1).tolist() == [2] * 6
    out.branch_logits[run].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
    assert net.model[0].weight.grad.abs().sum() > 0


def test_dead_channels_keep_everything_finite():
    """Channels without any variance, as in ImageNet's ResNet-18, in a full training step."""
    net = bne.convert(small_cnn(), DOMAINS)
    with torch.no_grad():
        net.model[0].weight[:2] = 0
        net.model[1].weight[:2] = 0
    images, ids = torch.randn(9, 3, 16, 16), torch.arange(9) % 3
    out = net.train()(images, ids, details=True)
    F.cross_entropy(out.logits, torch.zeros(9, dtype=torch.long)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
