"""What is prepared for all layers at once equals what each layer does by itself."""

import pytest
import torch
from torch import nn

import bne
from bne import ensemble, folding
from tests.networks import DOMAINS, randomise_norms, small_cnn


def differing(model, **options):
    """A converted network whose domains differ."""
    return randomise_norms(bne.convert(model, DOMAINS, **options)).eval()


def both(monkeypatch, net, images):
    calls = []
    fold = folding.fold

    def spied(*args):
        calls.append(args)
        return fold(*args)

    monkeypatch.setattr(ensemble, "fold", spied)
    with torch.no_grad():
        at_once = net.explain(images)
        assert len(calls) == 1
        monkeypatch.setattr(ensemble, "pays", lambda images: False)
        single = net.explain(images)
    assert len(calls) == 1
    return at_once.branch_logits, single.branch_logits


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
def test_half_precision(monkeypatch, dtype):
    net = differing(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten()))
    images = torch.randn(2, 3, 4, 4).to(dtype)
    at_once, single = both(monkeypatch, net, images)
    assert at_once.dtype == dtype
    assert torch.equal(at_once, single)


def test_not_where_gradients_or_large_images_are_wanted():
    images = torch.zeros(1, 3, 8, 8)
    assert not folding.pays(images)
    with torch.no_grad():
        assert folding.pays(images)
        assert not folding.pays(torch.zeros(1).expand(folding.SMALL + 1))
