"""An embedding from some layers alone, whose pass ends at the last of them."""

import copy

import pytest
import torch
from torch import nn

import bne
from bne.core.norm import domain_layers
from tests.networks import DOMAINS, randomise_norms

IMAGES = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


class Block(nn.Module):
    """A convolution, batch norm and ReLU, of which the batch norm may run twice."""

    def __init__(self, inputs, outputs, again=False):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.again = again

    def forward(self, x):
        x = self.norm(self.conv(x)).relu()
        return self.norm(x) if self.again else x


def network(again=False):
    torch.manual_seed(0)
    blocks = Block(3, 5), Block(5, 6, again), Block(6, 7), Block(7, 8)
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def ensemble(again=False, **options):
    return randomise_norms(bne.convert(network(again), DOMAINS, **options)).eval()


def calls_of(net, images):
    """How often each convolution runs when images are embedded."""
    met = []
    hooks = [
        net.model[n].register_forward_pre_hook(lambda *_, n=n: met.append(n)) for n in range(7)
    ]
    net.embed(images)
    for hook in hooks:
        hook.remove()
    return met


@pytest.mark.parametrize("again", [False, True])
def test_the_pass_ends_where_the_last_layer_was_met(again):
    net, whole = ensemble(again, layers=2), ensemble(again)
    assert net.layers == ("0.norm", "1.norm")
    assert calls_of(net, IMAGES) == list(range(7))  # which learns where that is
    assert calls_of(net, IMAGES) == [0, 1]
    expected, found = whole.embed(IMAGES).select(net.layers), net.embed(IMAGES)
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.var, expected.var)
    net.layers = 3
    assert calls_of(net, IMAGES) == list(range(7))
    assert calls_of(copy.deepcopy(net), IMAGES) == [0, 1, 2]
    net.layers = ["2.norm", "0.norm"]
    assert calls_of(net, IMAGES) == list(range(7))
    assert calls_of(net, IMAGES) == [0, 1, 2]


@pytest.mark.parametrize("options", [{}, {"nearest": 1}, {"mix": "statistics"}, {"lean": 0.2}])
def test_weights_are_those_of_the_first_layers_distances(options):
    net, whole = ensemble(layers=2, **options), ensemble(**options)
    net(IMAGES)
    said, every = net(IMAGES, details=True), whole.embed(IMAGES)
    distances = torch.zeros(3, 3)
    for name, layer in zip(("0.norm", "1.norm"), domain_layers(net.model), strict=False):
        own, known = every.select([name]), layer.population
        mean = own.mean[:, None] - known.mean
        std = own.var[:, None].sqrt() - known.var.sqrt()
        distances += mean.square().sum(2) + std.square().sum(2)
    torch.testing.assert_close(said.distances, distances)
    torch.testing.assert_close(net(IMAGES), said.logits)
    if not options:
        weights = (1 / distances) / (1 / distances).sum(1, keepdim=True)
        expected = (weights.unsqueeze(2) * whole.branches(IMAGES)).sum(1)
        torch.testing.assert_close(said.logits, expected)


def test_training_runs_to_the_end_and_its_gradient_is_that_of_the_named_layers():
    net = ensemble(layers=2)
    ids = torch.arange(3)
    net.embed(IMAGES)
    assert calls_of(net.train(), IMAGES) == list(range(7))
    net(IMAGES, ids, details=True).distances.sum().backward()
    assert net.model[1].conv.weight.grad is not None
    assert net.model[2].conv.weight.grad is None


def test_compilers_leave_out_what_is_not_used():
    net, any_number = ensemble(layers=2), {"images": {0: torch.export.Dim("n", min=1)}}
    programs = [
        torch.export.export(one, (IMAGES,), dynamic_shapes=any_number).run_decompositions({})
        for one in (net, ensemble())
    ]
    some, every = (
        sum("conv2d" in str(node.target) for node in program.graph.nodes) for program in programs
    )
    assert every - some == 2  # the third and the fourth layer of the instance pass
    torch.testing.assert_close(programs[0].module()(IMAGES), net(IMAGES))
    torch.testing.assert_close(torch.compile(net, backend="eager")(IMAGES), net(IMAGES))


@pytest.mark.parametrize("layers", [0, 5, [], ["0.conv"]])
def test_layers_that_are_not_there(layers):
    with pytest.raises(ValueError, match=r"1 to 4|no batch-norm layer is named"):
        bne.convert(network(), DOMAINS, layers=layers)
