import pytest
import torch

import bne
from bne.core.distances import inverse_weights
from bne.speed import PARTS
from bne.speed.settings import Case
from bne.speed.work import make_images, make_network, make_work
from tests.speed.settings import settings


def closure(work, name):
    """What a step has under a name."""
    return dict(
        zip(work.__code__.co_freevars, (c.cell_contents for c in work.__closure__), strict=True)
    )[name]


@pytest.mark.parametrize("part", PARTS)
def test_every_case_runs(part):
    chosen = settings()
    for entry in PARTS[part](chosen):
        make_work(entry.case, chosen)()


@pytest.mark.parametrize(
    "case",
    [
        Case("training", 6, graph=False),
        Case("training", 6, graph=False, domains=3),
        Case("warm-up", 6, graph=False, domains=3),
    ],
)
def test_a_step_trains(case):
    chosen = settings()
    step = make_work(case, chosen)
    optimiser = closure(step, "optimiser")
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    step()
    assert all(p.grad is not None for p in parameters)
    assert any(not torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


def test_detached_weights_are_a_cheaper_step():
    """The option reaches the network."""
    chosen = settings()
    case = Case("training", 6, graph=False, domains=3, options=(("weight_gradient", False),))
    network = make_network(case, chosen)
    assert isinstance(network, bne.DomainEnsemble)
    assert not network.weight_gradient


def test_compiled_networks_go_through_the_compiler(monkeypatch):
    chosen, compiled = settings(), []
    monkeypatch.setattr(torch, "compile", lambda network: compiled.append(network) or network)
    infer = make_work(Case("inference", 2, graph=False, domains=3, compiled=True), chosen)
    assert compiled == [closure(infer, "network")]
    assert not compiled[0].training
    make_work(Case("inference", 2, graph=False, domains=3), chosen)
    assert len(compiled) == 1


def test_domains_differ_and_a_seed_leaves_the_rest_alone():
    chosen = settings()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    infer = make_work(Case("inference", 2, graph=False, domains=3), chosen)
    assert torch.equal(torch.rand(3), expected)
    network = closure(infer, "network")
    population = next(m for m in network.modules() if isinstance(m, bne.DomainBatchNorm)).population
    assert (population.mean[0] != population.mean[1]).all()
    assert infer().shape == (2, 7)


def test_distance_leads_the_gradient_of_the_network_back():
    """It is what the network itself does between its passes."""
    chosen = settings()
    case = Case("distance", 5, graph=False, domains=4, options=(("nearest", 2),))
    weigh = make_work(case, chosen)
    network, statistics = closure(weigh, "network"), closure(weigh, "statistics")
    gradients = weigh()
    assert len(gradients) == 2 * len(statistics) == 8
    torch.manual_seed(0)
    make_network(case, chosen)
    own = network.explain(make_images(5, chosen))  # the images that the work drew
    means = torch.cat([moments.mean for moments in statistics.values()], dim=1)
    torch.testing.assert_close(own.embedding.mean, means)
    near = own.distances.topk(2, largest=False)
    expected = torch.zeros(5, 4).scatter(1, near.indices, inverse_weights(near.values))
    torch.testing.assert_close(own.weights, expected)
