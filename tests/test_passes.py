"""Copies of an image share the convolutions before the first batch norm, to the same result."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne.passes import SharedInput
from tests.networks import DOMAINS, randomise_norms, small_cnn


class Scaled(nn.Module):
    """A network whose convolution does not meet the images themselves."""

    def __init__(self):
        super().__init__()
        self.body = small_cnn()

    def forward(self, x):
        return self.body(x * 2)


class PreActivated(nn.Module):
    """A network with a way around its first batch norm, and a convolution used twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        stem = self.stem(x)
        return self.head((stem + self.stem(self.norm(stem)) + x).mean((2, 3)))


class Strip(nn.Module):
    """A network of one spatial dimension."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.body(x.flatten(2)).mean(2))


MADE = {"cnn": small_cnn, "scaled": Scaled, "pre-activated": PreActivated}


@pytest.fixture
def batch():
    torch.manual_seed(0)
    images = torch.randn(9, 3, 8, 8, dtype=torch.double)
    return images, torch.randint(4, (9,)), torch.arange(3).repeat_interleave(3)


def differing(model, **options):
    return randomise_norms(bne.convert(model.double(), DOMAINS, **options))


def without_sharing(net):
    net = copy.deepcopy(net)
    for module in net.modules():
        SharedInput.detach(module)
    return net


def rows_met(net, run):
    """How many rows every convolution that may be shared treats, call by call."""
    met = []
    hooked = [module for module in net.modules() if module._forward_pre_hooks]
    handles = [m.register_forward_pre_hook(lambda _, x: met.append(len(x[0]))) for m in hooked]
    run()
    for handle in handles:
        handle.remove()
    return met


@pytest.mark.parametrize("name", [*MADE, "strip"])
@pytest.mark.parametrize("options", [{}, {"nearest": 2}, {"max_branches": 2}])
def test_answers_are_those_without_sharing(batch, name, options):
    model = Strip() if name == "strip" else MADE[name]()
    net = differing(model, **options).eval()
    ours, theirs = (one.explain(batch[0]) for one in (net, without_sharing(net)))
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.branch_logits, theirs.branch_logits, equal_nan=True)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("options", [{}, {"nearest": 2}, {"max_branches": 2}])
def test_a_training_step_is_that_without_sharing(batch, name, options):
    images, labels, ids = batch
    net = differing(MADE[name](), **options).train()
    pair = net, without_sharing(net)
    for one in pair:
        F.cross_entropy(one.explain(images, ids).logits, labels).backward()
    ours, theirs = ([*one.buffers(), *(p.grad for p in one.parameters())] for one in pair)
    torch.testing.assert_close(ours, theirs)


def test_the_images_are_treated_once_for_all_branches(batch):
    net = differing(small_cnn()).eval()
    assert rows_met(net, lambda: net.explain(batch[0])) == [9, 9]  # in the instance pass as well
    plain = without_sharing(net)
    plain.model[0].register_forward_pre_hook(lambda *_: None)
    assert rows_met(plain, lambda: plain.explain(batch[0])) == [9, 27]


def test_a_copy_shares_by_itself(batch):
    net = differing(small_cnn()).eval()
    other = copy.deepcopy(net)
    assert rows_met(other, lambda: other.explain(batch[0])) == [9, 9]


def test_only_what_may_meet_images_is_hooked():
    net = bne.convert(PreActivated(), DOMAINS)
    hooked = [name for name, module in net.model.named_modules() if module._forward_hooks]
    assert hooked == ["stem"]


@pytest.mark.parametrize("back", [bne.revert, lambda net: net.branch("art")])
def test_plain_networks_have_no_hooks_but_the_user_s(back):
    model = small_cnn()
    model[0].register_forward_hook(lambda *_: None)
    plain = back(bne.convert(model, DOMAINS))
    assert len(plain[0]._forward_hooks) == 1
    assert not plain[0]._forward_pre_hooks


def test_no_images(batch):
    net = differing(small_cnn()).eval()
    assert net(batch[0][:0]).shape == (0, 4)
