"""A convolution of the images is done once for all their passes, to the same result."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import bne
from bne.core.passes import SharedConv2d, stop_sharing
from bne.methods import DNet
from tests.networks import DOMAINS, randomise_norms, small_cnn


class Before(nn.Module):
    """A network that does something to its input first."""

    def __init__(self, change):
        super().__init__()
        self.change, self.body = change, small_cnn()

    def forward(self, x):
        return self.body(self.change(x))


def changes_input():
    """A network that overwrites its input, and the same one without overwriting."""
    pair = Before(lambda x: x.mul_(0.3).add_(0.5)), Before(lambda x: x * 0.3 + 0.5)
    return same_weights(*pair)


def same_weights(one, other):
    other.load_state_dict(one.state_dict())
    return one.double(), other.double()


class Repeats(nn.Module):
    """A network that convolves its input several times, in place or not."""

    def __init__(self, in_place=False):
        super().__init__()
        self.in_place = in_place
        self.stem = nn.Conv2d(3, 3, 3, padding=1)
        self.rest = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        for _ in range(3):
            if self.in_place:
                x += self.stem(x)
            else:
                x = x + self.stem(x)
        return self.head(self.rest(x).flatten(1))


class OtherWeights(Repeats):
    """A network that uses its convolution with two sets of weights."""

    def forward(self, x):
        other = functional_call(self.stem, {"weight": self.stem.weight * 2}, (x,))
        return self.head(self.rest(self.stem(x) + other).flatten(1))


class Precisions(Repeats):
    """A network that uses its convolution in two precisions."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            own = F.conv2d(self.stem(x), torch.ones(3, 3, 1, 1))
        return self.head(self.rest(own + self.stem(x)).flatten(1))


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


def in_place():
    """A network that overwrites what its first convolution gives."""
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Hardswish(inplace=True), *small_cnn()[1:])


def spectral():
    """A network whose first convolution has other weights in every pass of training."""
    model = small_cnn()
    nn.utils.spectral_norm(model[0])
    return model


MADE = {
    "cnn": small_cnn,
    "scaled": lambda: Before(lambda x: x * 2),
    "pre-activated": PreActivated,
    "in place": in_place,
    "repeats": Repeats,
    "other weights": OtherWeights,
    "spectral": spectral,
}


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
        stop_sharing(module)
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


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    "options", [{}, {"nearest": 2}, {"max_branches": 2}, {"mix": "statistics"}, {"max_images": 4}]
)
@pytest.mark.parametrize("gradients", [False, True])
def test_answers_are_those_without_sharing(batch, name, options, gradients):
    net = differing(MADE[name](), **options).eval()
    with torch.set_grad_enabled(gradients):
        ours, theirs = (one(batch[0], details=True) for one in (net, without_sharing(net)))
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
        F.cross_entropy(one(images, ids), labels).backward()
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
    for one in (net, copy.deepcopy(net)):
        assert rows_convolved(monkeypatch, lambda one=one: one(batch[0], details=True)) == [9]
    plain = without_sharing(net)
    assert rows_convolved(monkeypatch, lambda: plain(batch[0], details=True)) == without
    assert rows_convolved(monkeypatch, lambda: [net.embed(batch[0]) for _ in "ab"]) == [9, 9]


def test_training_without_the_weights_gradient_convolves_once_with_one(batch, monkeypatch):
    net = differing(small_cnn(), weight_gradient=False).train()
    assert rows_convolved(monkeypatch, lambda: net(batch[0], batch[2], details=True)) == [9, 9]
    net.weight_gradient = True
    assert rows_convolved(monkeypatch, lambda: net(batch[0], batch[2], details=True)) == [9]


@pytest.mark.parametrize("dimensions", [1, 3])
def test_other_dimensions(dimensions):
    convolution, norm = getattr(nn, f"Conv{dimensions}d"), getattr(nn, f"BatchNorm{dimensions}d")
    pool = getattr(nn, f"AdaptiveAvgPool{dimensions}d")
    model = nn.Sequential(convolution(3, 4, 3), norm(4), nn.ReLU(), pool(1), nn.Flatten())
    net = differing(model).eval()
    assert type(net.model[0]).__name__ == f"SharedConv{dimensions}d"
    images = torch.randn(5, 3, *(4,) * dimensions, dtype=torch.double)
    torch.testing.assert_close(net(images), without_sharing(net)(images))


def test_dnet_shares_too(batch, monkeypatch):
    net = DNet(small_cnn(), DOMAINS).double().eval()
    assert rows_convolved(monkeypatch, lambda: net.predict(batch[0])) == [9]


@pytest.mark.parametrize(
    "options",
    [{}, {"branch_statistics": "population"}, {"max_branches": 1}, {"weight_gradient": False}],
)
def test_a_network_that_changes_its_input(batch, options):
    """Every pass, and the caller, has images of its own."""
    images, _, ids = batch
    mine = images.clone()
    changed, left = (differing(m, **options).train()(mine, ids) for m in changes_input())
    torch.testing.assert_close(changed, left)
    assert torch.equal(mine, images)


def test_dnet_of_a_network_that_changes_its_input(batch):
    one, other = (DNet(randomise_norms(m), DOMAINS).double().eval() for m in changes_input())
    other.load_state_dict(one.state_dict())
    mine = batch[0].clone()
    torch.testing.assert_close(one.predict(mine), other.predict(mine))
    assert torch.equal(mine, batch[0])


@torch.no_grad()
def test_a_network_that_changes_its_input_between_convolutions(batch):
    one, other = (differing(m).eval() for m in same_weights(Repeats(in_place=True), Repeats()))
    torch.testing.assert_close(one(batch[0].clone()), other(batch[0]))


@torch.no_grad()
def test_two_precisions_in_a_pass(batch):
    net = randomise_norms(bne.convert(Precisions(), DOMAINS)).eval()
    images = batch[0].float()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(net(images), without_sharing(net)(images))


def test_the_gradient_reaches_the_images(batch):
    net = differing(small_cnn()).eval()
    images = batch[0].requires_grad_()
    losses = (one(images).square().sum() for one in (net, without_sharing(net)))
    torch.testing.assert_close(*(torch.autograd.grad(loss, images) for loss in losses))


def test_a_call_within_a_call(batch):
    """A distance that places other images, by the network itself."""
    net = differing(small_cnn()).eval()
    expected, plain = net(batch[0], details=True), net.distance

    def distance(embedding, known):
        net.distance = plain
        net(batch[0][:2] + 1, details=True)
        return plain(embedding, known)

    net.distance = distance
    torch.testing.assert_close(net(batch[0]), expected.logits)


def test_nothing_is_kept(batch):
    net = differing(small_cnn()).eval()
    net(batch[0], details=True)
    assert net._passes.shared is None
    with pytest.raises(RuntimeError):
        net(batch[0][:, :2], details=True)
    assert net._passes.shared is None


def test_only_plain_convolutions_before_the_first_norm_are_shared():
    class Own(nn.Conv2d):
        pass

    model = nn.Sequential(Own(3, 3, 1), *small_cnn())
    shared = [name for name, m in bne.convert(model, DOMAINS).model.named_modules()
              if isinstance(m, SharedConv2d)]  # fmt: skip
    assert shared == ["1"]


@pytest.mark.parametrize("domain", [None, "art"])
def test_plain_networks_have_plain_convolutions(domain):
    model = small_cnn()
    plain = bne.convert(model, DOMAINS).to_plain(domain)
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
