"""A converted network in the hands of torch's own tools."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import bne
from tests.networks import DOMAINS, randomise_norms, small_cnn

IMAGES = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1))
IDS = torch.arange(6) % 3


@pytest.fixture
def net():
    return randomise_norms(bne.convert(small_cnn(), DOMAINS)).eval()


@pytest.mark.parametrize("change", ["in place", "loaded", "exchanged"])
def test_statistics_that_change_after_compilation_count(net, change):
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    before = compiled(IMAGES)
    layer = net.model[4]
    if change == "in place":
        layer.running_mean += 1
    elif change == "loaded":
        net.load_state_dict(randomise_norms(copy.deepcopy(net), seed=7).state_dict())
    else:
        layer.running_mean = layer.running_mean + 1
    after = compiled(IMAGES)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, net(IMAGES))


@pytest.mark.parametrize(
    ("own_branch", "ids"), [(True, IDS), (False, torch.arange(3).repeat_interleave(6))]
)
def test_a_layer_in_evaluation_mode_is_left_alone_while_the_network_trains(net, own_branch, ids):
    layer, met = net.train().model[1].eval(), []
    before = [tensor.clone() for tensor in layer.buffers()]
    layer.register_forward_hook(lambda _, inputs, out: met.append((*inputs, out)))
    net(IMAGES, IDS, own_branch=own_branch)
    assert all(map(torch.equal, before, layer.buffers()))
    assert net.model[4].num_batches_tracked.tolist() == [1, 1, 1]
    x, out = met[-1]
    torch.testing.assert_close(out, layer.by_domain(x, ids))


@pytest.mark.parametrize("use_buffers", [True, False])
def test_an_averaged_model(net, use_buffers):
    averaged, other = AveragedModel(net, use_buffers=use_buffers), copy.deepcopy(net)
    randomise_norms(other, seed=3)
    for each in net, other:
        averaged.update_parameters(each)
    ours, one, two = (each.model[1] for each in (averaged.module, net, other))
    torch.testing.assert_close(ours.weight, (one.weight + two.weight) / 2)
    mean = (one.running_mean + two.running_mean) / 2 if use_buffers else two.running_mean
    torch.testing.assert_close(ours.running_mean, mean)
    assert averaged.eval()(IMAGES).shape == (6, 4)


class Checkpointed(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


def test_gradient_checkpointing_is_refused_in_a_sentence():
    net = bne.convert(nn.Sequential(Checkpointed(*small_cnn()[:6]), *small_cnn()[6:]), DOMAINS)
    out = net.train()(IMAGES, IDS, own_branch=True)
    with pytest.raises(RuntimeError, match=r"'0\.1' .* gradient checkpointing"):
        out.sum().backward()
