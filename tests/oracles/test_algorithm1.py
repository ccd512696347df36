"""The real implementation against plain loops written from the paper's Algorithm 1."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import bne
from bne.core.norm import domain_layers
from tests.networks import DOMAINS
from tests.oracles import algorithm1 as paper

IDS = [2, 0, 0, 1, 2, 1, 1, 0, 2, 0]  # mixed up, and of unequal sizes
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def network():
    first = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
    second = nn.Conv2d(4, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU()
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU()
    return nn.Sequential(*first, *second, *pooled, nn.Linear(6, 4))


def random_ensemble(domains, seed):
    torch.manual_seed(seed)
    net = bne.convert(network().double(), domains)
    for layer in domain_layers(net):
        nn.init.normal_(layer.weight, 1, 0.2)
        nn.init.normal_(layer.bias)
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
        layer.num_batches_tracked.fill_(1000)  # past the start, where the paper's share holds
    return net


def random_batch(ids, size, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(len(ids), 3, *size, dtype=torch.double, generator=generator)
    images *= 1 + torch.tensor(ids).view(-1, 1, 1, 1)  # domains that differ
    labels = torch.randint(4, (len(ids),), generator=generator)
    return images, labels, torch.tensor(ids)


@pytest.fixture
def ensemble():
    return random_ensemble(DOMAINS, seed=0)


@pytest.fixture
def batch():
    return random_batch(IDS, (5, 7), seed=1)


def stages_of(ensemble):
    """The reference's own copy of the network, and its parameters by the network's names."""
    stages, parameters = [], {}
    for name, module in ensemble.model.named_children():
        own = {
            key: value.detach().clone().requires_grad_()
            for key, value in module.named_parameters(recurse=False)
        }
        parameters |= {f"model.{name}.{key}": value for key, value in own.items()}
        if isinstance(module, nn.Conv2d):
            stages.append(lambda x, own=own: F.conv2d(x[None], **own, padding=1)[0])
        elif isinstance(module, nn.Linear):
            stages.append(lambda x, own=own: own["weight"] @ x + own["bias"])
        elif isinstance(module, nn.ReLU):
            stages.append(lambda x: x.clamp(min=0))
        elif isinstance(module, nn.AdaptiveAvgPool2d):
            stages.append(lambda x: x.mean(dim=(1, 2)))
        elif isinstance(module, bne.DomainBatchNorm):
            means, variances = list(module.running_mean.clone()), list(module.running_var.clone())
            stages.append(paper.Norm(**own, means=means, variances=variances))
    return stages, parameters


def rows(nested):
    return torch.stack([torch.stack(row) for row in nested])


def assert_same_prediction(out, step):
    torch.testing.assert_close(out.logits, torch.stack(step.logits), **EXACT)
    torch.testing.assert_close(out.weights, rows(step.weights), **EXACT)
    torch.testing.assert_close(out.distances, rows(step.distances), **EXACT)


def assert_same_step(ensemble, stages, parameters):
    """Compares running statistics and gradients."""
    norms = [stage for stage in stages if isinstance(stage, paper.Norm)]
    for norm, layer in zip(norms, domain_layers(ensemble), strict=True):
        torch.testing.assert_close(layer.running_mean, torch.stack(norm.means), **EXACT)
        torch.testing.assert_close(layer.running_var, torch.stack(norm.variances), **EXACT)
    gradients = {name: parameter.grad for name, parameter in ensemble.named_parameters()}
    expected = {name: parameter.grad for name, parameter in parameters.items()}
    torch.testing.assert_close(gradients, expected, **EXACT)


@pytest.mark.parametrize("max_branches", [None, 2])
@pytest.mark.parametrize("branch_statistics", ["batch", "population"])
def test_distance_training_step(ensemble, batch, branch_statistics, max_branches):
    ensemble.max_branches = max_branches
    compare_distance_training(ensemble, batch, branch_statistics)


@settings(max_examples=40, deadline=None)
@given(
    ids=st.integers(1, 4).flatmap(
        lambda k: st.lists(st.integers(0, k - 1), min_size=1, max_size=6).map(lambda ids: (k, ids))
    ),
    size=st.tuples(st.integers(1, 3), st.integers(2, 3)),
    branch_statistics=st.sampled_from(["batch", "population"]),
    seed=st.integers(0, 2**16),
)
@example(ids=(1, [0]), size=(1, 2), branch_statistics="batch", seed=8860)  # a channel is constant
def test_distance_training_step_of_any_batch(ids, size, branch_statistics, seed):
    """Any number of domains, of any sizes: also of one image, and of none."""
    count, ids = ids
    ensemble = random_ensemble([str(d) for d in range(count)], seed)
    compare_distance_training(ensemble, random_batch(ids, size, seed), branch_statistics)


def compare_distance_training(ensemble, batch, branch_statistics):
    images, labels, domains = batch
    stages, parameters = stages_of(ensemble)
    step = paper.training_step(
        stages, list(images), labels, domains, len(ensemble.domains), branch_statistics
    )
    step.loss.backward()

    ensemble.branch_statistics = branch_statistics
    out = ensemble.train()(images, domains, details=True)
    F.cross_entropy(out.logits, labels).backward()

    assert_same_prediction(out, step)
    assert_same_step(ensemble, stages, parameters)


def test_detached_weights_are_constants_in_the_backward_pass(ensemble, batch):
    images, labels, domains = batch
    reference, detached = copy.deepcopy(ensemble), copy.deepcopy(ensemble)
    out = reference.train()(images, domains, details=True)
    logits = (out.weights.detach().unsqueeze(-1) * out.branch_logits).sum(1)
    F.cross_entropy(logits, labels).backward()

    detached.weight_gradient = False
    F.cross_entropy(detached.train()(images, domains), labels).backward()
    ours, theirs = ([p.grad for p in net.parameters()] for net in (detached, reference))
    torch.testing.assert_close(ours, theirs, **EXACT)

    F.cross_entropy(ensemble.train()(images, domains), labels).backward()
    assert not torch.allclose(ensemble.model[0].weight.grad, detached.model[0].weight.grad)


def test_prediction(ensemble, batch):
    images, _, _ = batch
    stages, _ = stages_of(ensemble)
    assert_same_prediction(
        ensemble.eval()(images, details=True), paper.predict(stages, list(images), len(DOMAINS))
    )


def test_warm_up_step(ensemble, batch):
    images, labels, domains = batch
    stages, parameters = stages_of(ensemble)
    logits = ensemble.train()(images, domains, own_branch=True)
    F.cross_entropy(logits, labels).backward()

    expected = {}
    for d in range(len(DOMAINS)):
        own = (domains == d).nonzero().flatten().tolist()
        batch = [images[i] for i in own]
        answers = paper.under_batch_statistics(stages, batch, [True] * len(own), d, update=True)
        expected |= dict(zip(own, answers, strict=True))
    expected = torch.stack([expected[i] for i in range(len(images))])
    F.cross_entropy(expected, labels).backward()
    torch.testing.assert_close(logits, expected, **EXACT)
    assert_same_step(ensemble, stages, parameters)
