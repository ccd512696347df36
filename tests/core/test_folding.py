"""What is prepared for all layers at once equals what each layer does by itself."""

import pytest
import torch
from torch import nn

import bne
from bne.core import ensemble, shortcuts
from tests.devices import needs_gpu
from tests.networks import DOMAINS, randomise_norms, small_cnn


def differing(model, **options):
    """A converted network whose domains differ."""
    return randomise_norms(bne.convert(model, DOMAINS, **options)).eval()


def without_bias(layer):
    layer.bias = None
    return layer


@torch.no_grad()
def both(monkeypatch, net, images):
    """The branches' answers with layers prepared at once, and each by itself."""
    answers = []
    for at_once in True, False:
        monkeypatch.setattr(ensemble, "pays", lambda images, copies, at_once=at_once: at_once)
        answers.append(net(images, details=True).branch_logits)
    return answers


@pytest.mark.parametrize("options", [{}, {"nearest": 2}])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_branches(monkeypatch, options, layout):
    images = torch.randn(2, 3, 8, 8, dtype=torch.double).contiguous(memory_format=layout)
    net = differing(small_cnn().double(), **options)
    at_once, single = both(monkeypatch, net, images)
    torch.testing.assert_close(at_once, single, equal_nan=True)


def test_layers_of_all_kinds(monkeypatch):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.BatchNorm2d(4, eps=1e-2),
        nn.BatchNorm2d(4, affine=False),
        without_bias(nn.BatchNorm2d(4)),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.Flatten(),
        nn.LazyBatchNorm1d(),
        nn.LazyLinear(5),
    )
    images = torch.randn(3, 3, 6, 6, dtype=torch.double)
    model.double()(images)
    at_once, single = both(monkeypatch, differing(model), images)
    torch.testing.assert_close(at_once, single)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("whole", [True, False])
def test_half_precision(monkeypatch, dtype, whole):
    """Whole networks or their input alone, also where γ / σ is more than float16 can hold."""
    net = differing(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten()))
    layer = net.model[0]
    with torch.no_grad():
        layer.weight[1:] = 500
        layer.running_var[:, 1:] = 1e-6
        layer.running_mean[:, 1:] = 30
    scale = layer.weight[1] / (layer.running_var[0, 1] + layer.eps).sqrt()
    assert scale.to(torch.float16).isinf()
    images = torch.randn(2, 3, 4, 4)
    images[:, 1:] = 30 + images[:, 1:].sign() / 64  # which float16 just tells apart
    images = images.to(dtype)
    expected = net.double()(images.double(), details=True).branch_logits
    at_once, single = both(monkeypatch, net.to(dtype if whole else torch.float32), images)
    assert at_once.dtype == dtype
    assert torch.equal(at_once, single)
    near = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 0.5}  # float32 cancels 30 * γ / σ
    torch.testing.assert_close(at_once.double(), expected, **near)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_of_a_network(monkeypatch, device, dtype, autocast):
    """Both ways are as near to float64, through convolutions and activations."""
    net = differing(small_cnn()).to(device, dtype)
    images = torch.randn(16, 3, 8, 8, device=device).to(dtype)
    exact = net.double()(images.double(), details=True).branch_logits
    net.to(torch.float32 if autocast else dtype)
    with torch.autocast(device, dtype, enabled=autocast):
        answers = both(monkeypatch, net, images)
    at_once, single = ((logits.double() - exact).square().mean().sqrt() for logits in answers)
    assert at_once <= 1.5 * single  # on a GPU they round differently
    assert at_once <= torch.finfo(dtype).eps * exact.abs().max()


def test_layers_that_normalise_in_a_way_of_their_own(monkeypatch):
    class Tenfold(bne.DomainBatchNorm):
        def by_domain(self, *args, **kwargs):
            return 10 * super().by_domain(*args, **kwargs)

    net = differing(small_cnn().double())
    net.model[1].__class__ = Tenfold
    at_once, single = both(monkeypatch, net, torch.randn(2, 3, 8, 8, dtype=torch.double))
    torch.testing.assert_close(at_once, single)


def test_which_layers_are_prepared():
    layer = bne.DomainBatchNorm(4, 3)
    here, elsewhere = torch.device("cpu"), torch.device("meta")
    assert shortcuts._can_be_prepared(layer, here)
    assert not shortcuts._can_be_prepared(layer, elsewhere)
    assert not shortcuts._can_be_prepared(bne.DomainBatchNorm(4, 3, affine=False), here)
    layer.weight = TwoSided(torch.ones(4))
    assert not shortcuts._can_be_prepared(layer, here)


class TwoSided(nn.Parameter):
    """A parameter of another type, as sharded ones are."""


@needs_gpu
def test_few_small_images_on_a_gpu_without_gradients():
    images = torch.zeros(2, 3, 8, 8, device="cuda")
    assert not shortcuts.pays(images)
    with torch.no_grad():
        assert shortcuts.pays(images)
        assert not shortcuts.pays(images.cpu())
        assert not shortcuts.pays(images.expand(shortcuts.FEW + 1, 2, 3, 8, 8))
        assert not shortcuts.pays(images, shortcuts.FEW // 2 + 1)
        assert not shortcuts.pays(torch.zeros(1, device="cuda").expand(1, shortcuts.SMALL + 1))
