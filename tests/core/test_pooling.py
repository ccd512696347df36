"""Max-pooling by our kernels against PyTorch's own; without a GPU, in Triton's interpreter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne.core.kernels import pooling_for
from bne.core.shortcuts import FusedMaxPool2d
from tests.devices import DEVICE, needs_gpu, needs_kernels
from tests.networks import DOMAINS

pooling = pytest.importorskip("bne.core.kernels.pooling")

WINDOWS = {
    "ResNet's": ((3, 3), (2, 2), (1, 1)),
    "without overlap": ((2, 2), (2, 2), (0, 0)),
    "every place": ((3, 3), (1, 1), (1, 1)),
    "with gaps": ((2, 2), (3, 3), (0, 0)),
    "oblong": ((3, 2), (1, 2), (1, 0)),
    "large": ((5, 5), (2, 3), (2, 2)),
}
SHAPES = [(1, 64, 7, 20), (3, 5, 9, 7)]
OPTIONS = {
    "stride 1": {"stride": 1},
    "padding": {"padding": 1},
    "pairs": {"kernel_size": (3, 2), "stride": [1, 2], "padding": (1, 0)},
    "a window of 26": {"kernel_size": (13, 2), "padding": (6, 1)},
    "one size in a list": {"kernel_size": (3,), "stride": (2,), "padding": (1,)},
    "ceil mode": {"ceil_mode": True},
    "dilation": {"dilation": 2},
    "indices": {"return_indices": True},
}
OURS = {"stride 1", "padding", "pairs"}
REFUSED = [
    {"padding": 2},
    {"padding": -1},
    {"stride": 0},
    {"stride": -1},
    {"kernel_size": 0},
    {"kernel_size": 5, "padding": 0, "stride": 5},
]


def images(shape, dtype=torch.float32):
    """Channels last, with many equal values, as after a ReLU."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x.relu().mul(4).round().div(4).to(dtype)
    return x.to(DEVICE, memory_format=torch.channels_last)


def slope_of(pooled, layout=torch.channels_last):
    slope = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(1))
    return slope.to(pooled.dtype).to(DEVICE, memory_format=layout)


def compare(x, window, layout=torch.channels_last):
    """Outputs and gradients against torch's on the CPU, in float32 and rounded."""
    reference = x.cpu().float().clone().requires_grad_()
    x.requires_grad_()
    expected, actual = F.max_pool2d(reference, *window), pooling.max_pool(x, *window)
    exactly = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(actual.cpu(), expected.to(x.dtype), **exactly)
    assert actual.is_contiguous(memory_format=torch.channels_last)
    slope = slope_of(actual, layout)
    actual.backward(slope)
    expected.backward(slope.cpu().float())
    # Rounded once, at the end; the interpreter does not round bfloat16 to the nearest.
    near = {"rtol": torch.finfo(x.dtype).eps, "atol": 1e-6}
    torch.testing.assert_close(x.grad.cpu(), reference.grad.to(x.dtype), **near)


@pytest.fixture
def uses(monkeypatch):
    """Lets layers use the kernels wherever they could on a GPU, and counts how often they do."""
    calls = []
    treat = pooling.max_pool
    monkeypatch.setattr(pooling, "max_pool", lambda *args: calls.append(1) or treat(*args))
    monkeypatch.setattr("bne.core.kernels._pay", lambda x: x.dtype.itemsize <= 4 and x.numel() > 0)
    return calls


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_maxima_and_gradients(shape, window):
    compare(images(shape), window)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_gradients_in_float32(dtype):
    compare(images((2, 8, 9, 10), dtype), WINDOWS["ResNet's"])


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_values_that_are_not_finite(value):
    x = images((2, 8, 9, 10))
    x[0, :, :4], x[1, 3, 5, 6] = value, value
    compare(x, WINDOWS["ResNet's"])


def test_a_gradient_in_another_order_of_memory():
    compare(images((2, 8, 6, 6)), WINDOWS["without overlap"], torch.contiguous_format)


def test_saved_tensors_that_come_back_in_another_order_of_memory():
    x = images((2, 8, 6, 6)).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous(), lambda t: t):
        y = pooling.max_pool(x, *WINDOWS["ResNet's"])
    (ours,) = torch.autograd.grad(y, x, slope_of(y))
    (theirs,) = torch.autograd.grad(F.max_pool2d(x, *WINDOWS["ResNet's"]), x, slope_of(y))
    torch.testing.assert_close(ours, theirs)


def test_second_derivatives_are_refused():
    x = images((2, 8, 6, 6)).requires_grad_()
    y = pooling.max_pool(x, *WINDOWS["ResNet's"])
    slope = slope_of(y).requires_grad_()
    (first,) = torch.autograd.grad(y, x, slope, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_torchs_layer(name, uses):
    options = {"kernel_size": 3, **OPTIONS[name]}
    plain, ours = nn.MaxPool2d(**options), FusedMaxPool2d(**options)
    x = images((2, 8, 13, 11))
    torch.testing.assert_close(ours(x), plain(x), rtol=0, atol=0)
    assert len(uses) == (name in OURS)


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_what_torch_refuses(options, uses):
    options = {"kernel_size": 3, **options}
    x = images((2, 8, 4, 4))
    with pytest.raises(RuntimeError) as theirs:
        nn.MaxPool2d(**options)(x)
    with pytest.raises(RuntimeError) as ours:
        FusedMaxPool2d(**options)(x)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(2, 8, 6, 6),
        torch.randn(8, 6, 6),
        torch.randn(2, 8, 6, 6, dtype=torch.double).to(memory_format=torch.channels_last),
        torch.randn(4, 8, 6, 6).to(memory_format=torch.channels_last)[:, ::2],
        torch.randn(2, 1, 6, 6),
        torch.zeros(2, 8, 6, 6, dtype=torch.uint8).to(memory_format=torch.channels_last),
        torch.zeros(0, 8, 6, 6).to(memory_format=torch.channels_last),
    ],
    ids=["channels first", "one image", "float64", "gaps", "one channel", "integers", "no image"],
)
def test_images_that_are_left_to_torch(x, uses):
    torch.testing.assert_close(FusedMaxPool2d(2)(x), nn.MaxPool2d(2)(x))
    assert not uses


def test_images_too_large_for_the_kernels_counting(uses):
    def suit(*shape):
        x = torch.empty(shape, device="meta").to(memory_format=torch.channels_last)
        return pooling_for(x) is pooling

    assert suit(1, 64, 2, 2**19 - 1)
    assert not suit(1, 64, 2, 2**19)  # a line
    assert not suit(1, 64, 2**13, 2**10)  # an image


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)
    )


def test_conversion_exchanges_poolings_and_reversion_puts_them_back():
    converted = bne.convert(network(), DOMAINS)
    assert type(converted.model[2]) is FusedMaxPool2d
    assert type(copy.deepcopy(converted).model[2]) is FusedMaxPool2d
    assert type(converted.to_plain()[2]) is nn.MaxPool2d


@needs_kernels
def test_a_converted_network_with_the_kernels_is_that_without(uses):
    net = bne.convert(network(), DOMAINS).to(DEVICE, memory_format=torch.channels_last)
    x, domains = images((6, 3, 8, 8)), torch.arange(6, device=DEVICE) % len(DOMAINS)
    for mode in (True, False):
        net.train(mode)
        with_kernels = net(x, domains, own_branch=True)
        assert uses
        uses.clear()
        plain = copy.deepcopy(net)
        plain.model[2].__class__ = nn.MaxPool2d
        torch.testing.assert_close(plain(x, domains, own_branch=True), with_kernels)
        assert not uses


def test_vmap_of_a_converted_network():
    net = bne.convert(network(), DOMAINS).eval()
    x = torch.randn(3, 1, 3, 8, 8)
    torch.testing.assert_close(torch.vmap(net)(x), net(x.flatten(0, 1)).unsqueeze(1))


@needs_gpu
def test_where_the_kernels_are_used():
    x = images((8, 16, 20, 20))
    assert pooling_for(x) is pooling
    assert pooling_for(x.cpu()) is None
    with torch.no_grad():
        assert pooling_for(x) is None  # too small to be worth a launch
        assert pooling_for(images((64, 64, 40, 40))) is pooling


@needs_gpu
def test_more_values_than_32_bits_count():
    x = torch.zeros((2700, 64, 112, 112), dtype=torch.bfloat16, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)
    x[-1, -1, -1, -1] = 3
    y = pooling.max_pool(x.requires_grad_(), (3, 3), (2, 2), (1, 1))
    assert y[-1, -1, -1, -1] == 3
    y.backward(torch.ones_like(y))
    assert x.grad[-1, -1, -1, -1] == 1
    assert x.grad.sum(dtype=torch.float64) == y.numel()
