"""A convolution of the images is done once for all their passes, to the same result."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne.passes import SharedConv1d, SharedConv2d, unshare
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


class InPlace(nn.Module):
    """A network that overwrites what its first convolution gives."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Hardswish(inplace=True), *small_cnn()[1:])

    def forward(self, x):
        return self.body(x)


class Strip(nn.Module):
    """A network of one spatial dimension."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
        self.head = nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.body(x.flatten(2)).mean(2))


MADE = {"cnn": small_cnn, "scaled": Scaled, "pre-activated": PreActivated, "in place": InPlace}


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
        unshare(module)
    return net


def rows_convolved(monkeypatch, run):
    """How many rows of images are convolved, call by call."""
    met, convolve = [], F.conv2d

    def counting(x, *args):
        if x.shape[1] == 3:
            met.append(len(x))
        return convolve(x, *args)

    with monkeypatch.context() as patch:
        patch.setattr(F, "conv2d", counting)
        run()
    return met


@pytest.mark.parametrize("name", [*MADE, "strip"])
@pytest.mark.parametrize(
    "options", [{}, {"nearest": 2}, {"max_branches": 2}, {"mix": "statistics"}, {"max_images": 4}]
)
@pytest.mark.parametrize("gradients", [False, True])
def test_answers_are_those_without_sharing(batch, name, options, gradients):
    model = Strip() if name == "strip" else MADE[name]()
    net = differing(model, **options).eval()
    with torch.set_grad_enabled(gradients):
        ours, theirs = (one.explain(batch[0]) for one in (net, without_sharing(net)))
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.branch_logits, theirs.branch_logits, equal_nan=True)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nearest": 2},
        {"max_branches": 2},
        {"weight_gradient": False},
        {"branch_statistics": "population"},
    ],
)
def test_a_training_step_is_that_without_sharing(batch, name, options):
    images, labels, ids = batch
    net = differing(MADE[name](), **options).train()
    pair = net, without_sharing(net)
    for one in pair:
        F.cross_entropy(one.explain(images, ids).logits, labels).backward()
    ours, theirs = ([*one.buffers(), *(p.grad for p in one.parameters())] for one in pair)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("options", "without"),
    [
        ({}, [9, 27]),
        ({"nearest": 2}, [9, 18]),
        ({"mix": "statistics"}, [9, 9]),
        ({"max_branches": 1}, [9, 9, 9, 9]),
    ],
)
def test_images_are_convolved_once(batch, monkeypatch, options, without):
    net = differing(small_cnn(), **options).eval()
    assert rows_convolved(monkeypatch, lambda: net.explain(batch[0])) == [9]
    plain = without_sharing(net)
    assert rows_convolved(monkeypatch, lambda: plain.explain(batch[0])) == without
    assert rows_convolved(monkeypatch, lambda: [net.embed(batch[0]) for _ in "ab"]) == [9, 9]


def test_training_without_the_weights_gradient_convolves_once_with_one(batch, monkeypatch):
    net = differing(small_cnn(), weight_gradient=False).train()
    assert rows_convolved(monkeypatch, lambda: net.explain(batch[0], batch[2])) == [9, 9]
    net.weight_gradient = True
    assert rows_convolved(monkeypatch, lambda: net.explain(batch[0], batch[2])) == [9]


def test_a_copy_shares_by_itself(batch, monkeypatch):
    other = copy.deepcopy(differing(small_cnn()).eval())
    assert rows_convolved(monkeypatch, lambda: other.explain(batch[0])) == [9]


def test_nothing_is_kept(batch):
    net = differing(small_cnn()).eval()
    net.explain(batch[0])
    assert net._passes.shared is None
    with pytest.raises(RuntimeError):
        net.explain(batch[0][:, :2])
    assert net._passes.shared is None


def test_only_plain_convolutions_before_the_first_norm_are_shared():
    class Own(nn.Conv2d):
        pass

    model = nn.Sequential(Own(3, 3, 1), *small_cnn())
    shared = [name for name, m in bne.convert(model, DOMAINS).model.named_modules()
              if isinstance(m, SharedConv1d | SharedConv2d)]  # fmt: skip
    assert shared == ["1"]


@pytest.mark.parametrize("back", [bne.revert, lambda net: net.branch("art")])
def test_plain_networks_have_plain_convolutions(back):
    model = small_cnn()
    plain = back(bne.convert(model, DOMAINS))
    assert list(map(type, plain)) == list(map(type, model))
    assert vars(plain[0]).keys() == vars(model[0]).keys()
    assert str(plain) == str(model)


def test_a_parametrised_convolution_is_left_alone(batch):
    """Its weights may be computed anew in every pass."""
    model = small_cnn().double()
    nn.utils.parametrizations.spectral_norm(model[0])
    net = differing(model).eval()
    assert not isinstance(net.model[0], SharedConv2d)
    assert net(batch[0]).shape == (9, 4)


def test_no_images(batch):
    net = differing(small_cnn()).eval()
    assert net(batch[0][:0]).shape == (0, 4)
