"""Moments of activations and their linear map, against autograd's own gradients of the formulas."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.functional import jacobian
from torch.autograd.graph import saved_tensors_hooks

import bne
from bne.core import activations
from bne.core.activations import image_moments, mapped

SHAPES = [(5, 1, 3, 4, 4), (3, 2, 4, 3), (4, 3, 2), (2, 1, 3, 2, 3, 2), (1, 1, 2, 3, 3)]


def plain_moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(samples, (1, *range(3, samples.ndim)), correction=0)
    return mean, var


def plain_map(samples: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    images, _, channels = samples.shape[:3]
    shape = (images, 1, channels, *(1,) * (samples.ndim - 3))
    return (samples * scale.view(shape) + shift.view(shape)).flatten(0, 1)


def normalised(moments, linear, samples: Tensor, share: Tensor) -> Tensor:
    """By statistics between each image's own and the first image's, as a layer has them."""
    mean, var = moments(samples)
    point = mean[:1] + share * (mean - mean[:1]), var[:1] + share * (var - var[:1])
    scale = (point[1] + 1e-5).rsqrt()
    return linear(samples, scale, -point[0] * scale)


@pytest.fixture(params=[1, 20, 2**18])
def cached(request, monkeypatch) -> int:
    """Values at a time: an image, some, or all."""
    monkeypatch.setattr(activations, "CACHED", request.param)
    return request.param


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_the_formulas(shape, cached) -> None:
    torch.manual_seed(0)
    found = []
    for functions in ((image_moments, mapped), (plain_moments, plain_map)):
        torch.manual_seed(1)
        samples = torch.randn(shape, dtype=torch.double, requires_grad=True)
        share = torch.rand(shape[0], 1, dtype=torch.double, requires_grad=True)
        y = normalised(*functions, samples, share)
        y.backward(torch.randn_like(y))
        found.append((y, samples.grad, share.grad))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_they_can_be_differentiated_twice(cached) -> None:
    torch.manual_seed(0)
    samples = torch.randn(3, 1, 2, 2, 2, dtype=torch.double, requires_grad=True)
    share = torch.rand(3, 1, dtype=torch.double, requires_grad=True)

    def work(samples: Tensor, share: Tensor) -> Tensor:
        return normalised(image_moments, mapped, samples, share)

    assert gradcheck(work, (samples, share), check_batched_grad=True)
    assert gradgradcheck(work, (samples, share), check_batched_grad=True)


def test_derivatives_at_once_and_forward_ones_are_those_one_by_one() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 2))
    net = bne.convert(network.double(), ["a", "b"], lean=0.1).eval()
    images = torch.randn(2, 1, 5, 5, dtype=torch.double)
    expected = jacobian(net, images)
    torch.testing.assert_close(jacobian(net, images, vectorize=True), expected)
    with forward_ad.dual_level():
        along = torch.randn_like(images)
        _, found = forward_ad.unpack_dual(net(forward_ad.make_dual(images, along)))
    torch.testing.assert_close(found, torch.einsum("ncmxyz,mxyz->nc", expected, along))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_gradients_of_some_inputs_alone(wanted) -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 1, 3, 4), torch.randn(2, 3), torch.randn(2, 3)]
    for number in wanted:
        given[number].requires_grad_()
    found = []
    for linear in (mapped, plain_map):
        own = torch.autograd.grad(linear(*given).square().sum(), [given[n] for n in wanted])
        found.append(own)
    torch.testing.assert_close(*found)


def test_activations_keep_their_order_of_memory_and_no_copy_is_kept() -> None:
    x = torch.randn(6, 8, 5, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    kept: list[Tensor] = []
    with saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        y = normalised(image_moments, mapped, x.unsqueeze(1), torch.rand(6, 1))
    large = {tensor.untyped_storage().data_ptr() for tensor in kept if tensor.numel() == x.numel()}
    assert large == {x.untyped_storage().data_ptr()}
    (gradient,) = torch.autograd.grad(torch.relu_(y).sum(), x)  # which overwrites the output
    for tensor in (y, gradient):
        assert tensor.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype, cached) -> None:
    torch.manual_seed(0)
    samples = (torch.randn(3, 1, 4, 40, 40) + 10).to(dtype).requires_grad_()
    moments = image_moments(samples)
    exact = plain_moments(samples.double())
    assert {value.dtype for value in moments} == {torch.float32}
    torch.testing.assert_close([*moments], [value.float() for value in exact])
    scale, shift = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    y = mapped(samples, scale, shift)
    assert y.dtype == dtype
    weight = torch.randn_like(y)
    got = torch.autograd.grad((y * weight).sum(), (samples, scale, shift))
    doubles = [value.detach().double().requires_grad_() for value in (samples, scale, shift)]
    expected = torch.autograd.grad((plain_map(*doubles) * weight.double()).sum(), doubles)
    assert got[0].dtype == dtype
    torch.testing.assert_close(got[0], expected[0].to(dtype))
    torch.testing.assert_close([*got[1:]], [value.float() for value in expected[1:]])


def test_no_images_at_all() -> None:
    samples = torch.zeros(0, 1, 3, 4, 4, requires_grad=True)
    mean, var = image_moments(samples)
    assert mean.shape == var.shape == (0, 3)
    assert mapped(samples, mean, var).shape == (0, 3, 4, 4)
