"""Max-pooling by our kernels against PyTorch's own; without a GPU, in Triton's interpreter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne.fused import pooling_for
from bne.pooling import FusedMaxPool2d
from tests.networks import DOMAINS

pytest.importorskip("triton", reason="Triton is not installed")
pooling = pytest.importorskip("bne.kernels.pooling")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WINDOWS = {
    "ResNet's": ((3, 3), (2, 2), (1, 1)),
    "without overlap": ((2, 2), (2, 2), (0, 0)),
    "every place": ((3, 3), (1, 1), (1, 1)),
    "with gaps": ((2, 2), (3, 3), (0, 0)),
    "oblong": ((3, 2), (1, 2), (1, 0)),
    "large": ((5, 5), (2, 3), (2, 2)),
}
SHAPES = [(2, 64, 12, 40), (3, 5, 9, 7), (1, 3, 5, 5)]
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="no GPU")


def images(shape, dtype=torch.float32, seed=0):
    """Channels last, with many equal values, as after a ReLU."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).relu().mul(4).round().div(4)
    return x.to(dtype).to(DEVICE, memory_format=torch.channels_last)


def compare(x, window, rtol=0.0, atol=0.0):
    """Outputs and gradients of both, from the same slope."""
    theirs, ours = (x.clone().requires_grad_() for _ in range(2))
    expected, actual = F.max_pool2d(theirs, *window), pooling.max_pool(ours, *window)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert actual.stride() == expected.stride()
    slope = torch.randn(expected.shape).to(expected)
    expected.backward(slope)
    actual.backward(slope)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=rtol, atol=atol)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_maxima_and_gradients(shape, window):
    compare(images(shape), window, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    # A value under several windows is summed in float32 here, in torch perhaps not.
    compare(images((2, 8, 9, 10), dtype), WINDOWS["ResNet's"], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_values_that_are_not_finite(value):
    x = images((2, 8, 9, 10))
    x[0, :, :4], x[1, 3, 5, 6] = value, value
    compare(x, WINDOWS["ResNet's"], rtol=1e-6, atol=1e-6)


def test_a_gradient_in_another_order_of_memory():
    x = images((2, 8, 6, 6)).requires_grad_()
    y = pooling.max_pool(x, (2, 2), (2, 2), (0, 0))
    slope = torch.randn(y.shape, device=DEVICE)
    (ours,) = torch.autograd.grad(y, x, slope)
    (theirs,) = torch.autograd.grad(F.max_pool2d(x, 2), x, slope)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("window", [((3, 3), (2, 2), (2, 2)), ((9, 9), (1, 1), (0, 0))])
def test_windows_that_torch_refuses(window):
    x = images((2, 8, 6, 6))
    with pytest.raises(RuntimeError) as theirs:
        F.max_pool2d(x, *window)
    with pytest.raises(RuntimeError) as ours:
        pooling.max_pool(x, *window)
    assert str(ours.value) == str(theirs.value)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4)
    )


def test_conversion_exchanges_poolings_and_removal_puts_them_back():
    net = network()
    net(torch.randn(2, 3, 8, 8))
    converted = bne.convert(net, DOMAINS)
    assert [type(m) for m in converted.modules()].count(FusedMaxPool2d) == 1
    assert type(copy.deepcopy(converted).model[2]) is FusedMaxPool2d
    plain = bne.revert(converted)
    assert type(plain[2]) is nn.MaxPool2d


@pytest.mark.parametrize(
    "option", [{"ceil_mode": True}, {"dilation": 2}, {"return_indices": True}, {"padding": 1}]
)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_every_option_of_torchs_layer(option, device):
    plain = nn.MaxPool2d(3, **option)
    ours = FusedMaxPool2d(3, **option)
    x = images((2, 8, 11, 11)).to(device, memory_format=torch.channels_last).requires_grad_()
    torch.testing.assert_close(ours(x), plain(x))


@needs_gpu
def test_where_the_kernels_are_used():
    x = images((8, 16, 20, 20))
    assert pooling_for(x) is pooling
    assert pooling_for(x.contiguous()) is None  # channels first
    assert pooling_for(x.double()) is None
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
