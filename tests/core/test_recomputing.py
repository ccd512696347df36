"""Training with a limit on branches: they are run again in the backward pass, not kept."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from tests.devices import needs_gpu
from tests.networks import DOMAINS, randomise_norms, small_cnn


@pytest.fixture
def batch():
    torch.manual_seed(0)
    images = torch.randn(9, 3, 16, 16, dtype=torch.double)
    return images, torch.randint(4, (9,)), torch.arange(3).repeat_interleave(3)


def trained(net, batch):
    """The network after one backward pass of distance training."""
    images, labels, ids = batch
    net = copy.deepcopy(net).train()
    torch.manual_seed(1)
    F.cross_entropy(net(images, ids), labels).backward()
    return net


def assert_same_step(one, other):
    for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
    for ours, theirs in zip(one.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("statistics", ["batch", "population"])
@pytest.mark.parametrize("limit", [1, 2])
def test_gradients_and_statistics_are_those_of_all_branches_at_once(batch, limit, statistics):
    net = bne.convert(small_cnn(), DOMAINS, branch_statistics=statistics).double()
    randomise_norms(net)
    whole = trained(net, batch)
    net.max_branches = limit
    part = trained(net, batch)
    assert_same_step(part, whole)
    assert part.model[1].num_batches_tracked.tolist() == [1, 1, 1]  # tracked once, not twice


def test_repeated_branches_drop_the_same_values(batch, monkeypatch):
    model = small_cnn()
    model.insert(6, nn.Dropout(0.5))
    net = bne.convert(model, DOMAINS, max_branches=1).double()
    repeated = trained(net, batch)
    monkeypatch.setattr("bne.core.shortcuts.checkpoint", lambda run, images, **_: run(images))
    assert_same_step(repeated, trained(net, batch))


def test_activations_of_branches_are_not_kept(batch):
    """Bytes that autograd keeps between forward and backward."""

    def kept(limit):
        net = bne.convert(small_cnn(), DOMAINS, max_branches=limit, weight_gradient=False)
        total = 0

        def count(tensor):
            nonlocal total
            total += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            net.double().train()(batch[0], batch[2], details=True)
        return total

    assert kept(1) < kept(None) / 2.5


@needs_gpu
def test_a_cuda_graph_refuses_to_repeat_what_is_random(batch):
    model = small_cnn()
    model.insert(6, nn.Dropout(0.5))
    net = bne.convert(model, DOMAINS, max_branches=1).double().cuda().train()
    images, _, ids = (tensor.cuda() for tensor in batch)
    net(
        images, ids, details=True
    )  # libraries set themselves up at their first use, not in a capture
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="layer '6' draws random numbers"),
        torch.cuda.graph(graph),
    ):
        net(images, ids, details=True)


def test_random_layers_are_found_by_name():
    from bne.core.shortcuts import _random_layers

    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.0), nn.ReLU())
    assert _random_layers(model) == ["0"]
    assert _random_layers(model.eval()) == []
