import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.core.norm import DomainBatchNorm, domain_layers
from bne.methods import BNE, DSON, create
from bne.methods.dson import OptimisedNorm
from tests.devices import DEVICE, needs_kernels
from tests.networks import DOMAINS, randomise_norms, small_cnn


@torch.no_grad()
def set_mixture(method, value):
    for layer in domain_layers(method.net):
        layer.mixture.fill_(value)


@torch.no_grad()
def randomised(**options):
    method = DSON(small_cnn(), DOMAINS, **options)
    randomise_norms(method.net)
    for layer in domain_layers(method.net):
        layer.mixture.normal_()
        layer.scales.uniform_(0.5, 1.5)
        layer.shifts.normal_(0, 0.3)
    return method


def by_definition(method, images, domain):
    """One domain's images through its branch, image by image and channel by channel."""
    x = images
    for module in method.net.model:
        if module not in set(domain_layers(method.net)):
            x = module(x)
            continue
        share = 1 / (1 + (-module.mixture[domain]).exp())
        own = domain if len(module.scales) > 1 else 0
        out = torch.empty_like(x)
        for c in range(x.shape[1]):
            batch_mean, batch_var = module.running_mean[domain, c], module.running_var[domain, c]
            if method.training:
                batch_mean, batch_var = x[:, c].mean(), x[:, c].var(correction=0)
            for n in range(x.shape[0]):
                mean = share * batch_mean + (1 - share) * x[n, c].mean()
                var = share * batch_var + (1 - share) * x[n, c].var(correction=0)
                normalised = (x[n, c] - mean) / (var + module.eps).sqrt()
                out[n, c] = normalised * module.scales[own, c] + module.shifts[own, c]
        x = out
    return x


@pytest.mark.parametrize("affine", ["domain", "shared"])
def test_against_the_definition(batch, affine):
    images, labels, domains = batch
    method = randomised(affine=affine).train()
    logits = torch.cat([by_definition(method, images[domains == d], d) for d in range(3)])
    torch.testing.assert_close(method(*batch), F.cross_entropy(logits, labels))
    method.eval()
    branches = torch.stack([by_definition(method, images, d) for d in range(3)])
    torch.testing.assert_close(method.predict(images), branches.mean(0))


@pytest.mark.parametrize("affine", ["domain", "shared"])
def test_gradients_against_the_definition(batch, affine):
    images, labels, domains = batch
    method = randomised(affine=affine).train().double()
    images = images.double().requires_grad_()
    logits = torch.cat([by_definition(method, images[domains == d], d) for d in range(3)])
    inputs = [images, *method.parameters()]
    expected = torch.autograd.grad(F.cross_entropy(logits, labels), inputs)
    actual = torch.autograd.grad(method(images, labels, domains), inputs)
    torch.testing.assert_close(actual, expected)


def instance_moments(method, images):
    """By name, each image's mean and variance at every layer under instance normalization."""
    found, x = {}, images
    for module in method.net.model:
        if module not in set(domain_layers(method.net)):
            x = module(x)
            continue
        mean, var = x.mean((2, 3)), x.var((2, 3), correction=0)
        found[module.name] = mean, var
        x = (x - mean[..., None, None]) / (var + module.eps).sqrt()[..., None, None]
        gamma, beta = module.scales.mean(0), module.shifts.mean(0)
        x = x * gamma[:, None, None] + beta[:, None, None]
    return found


@pytest.mark.parametrize("name", ["dson", "dson-bne"])
def test_distance_training_is_the_loss_of_the_mixture(batch, name):
    """By plain loops in double precision: branches, weights by distance, loss and gradients."""
    images, labels, domains = batch
    start = randomised(distance="wasserstein").double()
    method = create(name, small_cnn(), DOMAINS, {"distance_training": "always"}).double().train()
    method.load_state_dict(start.state_dict())
    images = images.double().requires_grad_()
    branches = []
    for k in range(3):  # all images, by the statistics of those of domain k in this branch
        x = images
        for module in method.net.model:
            if module not in set(domain_layers(method.net)):
                x = module(x)
                continue
            members = x[domains == k].transpose(0, 1).flatten(1)
            share = 1 / (1 + (-module.mixture[k]).exp())
            rows = []
            for image in x:
                own = image.flatten(1)
                mean = share * members.mean(1) + (1 - share) * own.mean(1)
                var = share * members.var(1, correction=0) + (1 - share) * own.var(1, correction=0)
                scale = module.scales[k] / (var + module.eps).sqrt()
                rows.append((image - mean[:, None, None]) * scale[:, None, None])
                rows[-1] = rows[-1] + module.shifts[k][:, None, None]
            x = torch.stack(rows)
        branches.append(x)
    own = instance_moments(method, images)
    inputs = [images, *method.parameters()]
    loss = method(images, labels, domains)  # which has updated the domains' statistics
    weights = torch.full((9, 3), 1 / 3, dtype=torch.double)
    if name == "dson-bne":
        near = []
        for n in range(9):
            for k in range(3):
                far = 0
                for module in domain_layers(method.net):
                    mean, var = (moment[n] for moment in own[module.name])
                    far = far + (mean - module.running_mean[k]).square().sum()
                    far = far + (var.sqrt() - module.running_var[k].sqrt()).square().sum()
                near.append(1 / far)
        near = torch.stack(near).view(9, 3)
        weights = near / near.sum(1, keepdim=True)
        assert weights.std(1).min() > 0
    logits = sum(weights[:, k, None] * branches[k] for k in range(3))
    expected = F.cross_entropy(logits, labels)
    torch.testing.assert_close(loss, expected)
    slopes = [torch.autograd.grad(one, inputs, allow_unused=True) for one in (loss, expected)]
    torch.testing.assert_close(*slopes)


def test_branches_that_are_run_again_update_statistics_once(batch):
    images, labels, domains = batch
    options = {"distance": "wasserstein", "distance_training": "always"}
    model = nn.Sequential(*small_cnn()[:-1], nn.BatchNorm1d(8), nn.Linear(8, 4))
    once = DSON(model, DOMAINS, **options).train()
    again = DSON(model, DOMAINS, max_branches=1, **options).train()
    for method in (once, again):
        method.double()(images.double(), labels, domains).backward()
    for name, buffer in once.named_buffers():
        torch.testing.assert_close(again.get_buffer(name), buffer)
    for name, parameter in once.named_parameters():
        torch.testing.assert_close(again.get_parameter(name).grad, parameter.grad)


def test_a_scale_without_a_shift():
    layer = DomainBatchNorm(2, 2)
    layer.bias = None
    OptimisedNorm.take_over(layer, "shared")
    with torch.no_grad():
        layer.scales.fill_(3.0)
    x, domains = torch.randn(4, 2, 3, 3), torch.tensor([0, 0, 1, 1])
    scaled = layer.by_domain(x, domains)
    layer.scales = None
    torch.testing.assert_close(scaled, 3 * layer.by_domain(x, domains))


@needs_kernels
@pytest.mark.parametrize(
    ("shape", "affine", "layout", "dtype"),
    [
        ((6, 5, 4, 3), "domain", torch.channels_last, torch.float32),
        ((6, 70, 3, 3), "shared", torch.contiguous_format, torch.float32),  # channels in two tiles
        ((70, 2, 2, 3), "none", torch.channels_last, torch.bfloat16),  # images in two tiles
        ((6, 3, 40, 41), "domain", torch.channels_last, torch.float32),  # positions in chunks
    ],
    ids=str,
)
@pytest.mark.parametrize("training", [True, False])
def test_the_layer_by_our_kernels_is_that_without(
    monkeypatch, shape, affine, layout, dtype, training
):
    layer = DomainBatchNorm(shape[1], 3, affine=affine != "none").train(training).to(DEVICE)
    OptimisedNorm.take_over(layer, "domain" if affine == "none" else affine)
    with torch.no_grad():
        for tensor in (*layer.parameters(), layer.running_mean):
            tensor.normal_()
    x = (torch.randn(shape) * 2 + 3).to(DEVICE, dtype).contiguous(memory_format=layout)
    domains = torch.tensor([0, 1, 2, 0, 1, 1], device=DEVICE).repeat(12)[: len(x)]
    members = torch.tensor([1, 1, 0, 1, 0, 1], device=DEVICE).bool().repeat(12)[: len(x)]
    slope = torch.randn(shape).to(DEVICE)
    found = []
    for used in (False, True):
        monkeypatch.setattr("bne.core.kernels._pay", lambda _, used=used: used)
        own = copy.deepcopy(layer)
        image = (x if used else x.double()).clone().requires_grad_()
        y = own.to(torch.float if used else torch.double).by_domain(image, domains, members)
        slopes = torch.autograd.grad(y, [image, *own.parameters()], slope.to(y.dtype))
        if used:
            assert (y.dtype, y.stride()) == (x.dtype, x.stride())
        found.append([value.float() for value in (y, *slopes, *own.buffers())])
    near = 1e-4 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found[1], found[0], rtol=near, atol=near)


@needs_kernels
def test_the_instance_pass_by_our_kernels_is_that_without(monkeypatch, batch):
    method = randomised().eval().to(DEVICE)
    found = []
    for used in (False, True):
        monkeypatch.setattr("bne.core.kernels._pay", lambda _, used=used: used)
        found.append(method.net.embed(batch[0].to(DEVICE)))
    torch.testing.assert_close(found[1].mean, found[0].mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1].var, found[0].var, rtol=1e-4, atol=1e-4)


def test_all_batch_statistics_make_it_bne_with_uniform_weights(batch):
    model = randomise_norms(small_cnn())
    method, bne = DSON(model, DOMAINS).train(), BNE(model, DOMAINS, distance="uniform").train()
    set_mixture(method, 40.0)
    bne.begin_epoch(0, warm_up=1)
    torch.testing.assert_close(method(*batch), bne(*batch))
    torch.testing.assert_close(method.eval().predict(batch[0]), bne.eval().predict(batch[0]))


def test_all_instance_statistics_make_it_instance_norm(batch):
    model = randomise_norms(small_cnn())
    method = DSON(model, DOMAINS).eval()
    set_mixture(method, -40.0)
    for place in (1, 4):
        norm = nn.InstanceNorm2d(model[place].num_features, affine=True)
        norm.load_state_dict({"weight": model[place].weight, "bias": model[place].bias})
        model[place] = norm
    torch.testing.assert_close(method.predict(batch[0]), model(batch[0]))


def test_dson_bne_weighs_the_branches_by_distance(batch):
    """Under a shared γ and β the instance pass, and so the weights, are plain BNE's."""
    images, _, _ = batch
    bne = BNE(small_cnn(), DOMAINS).eval()
    method = create("dson-bne", bne.net.to_plain("art"), DOMAINS, {"affine": "shared"}).eval()
    randomise_norms(bne.net)
    with torch.no_grad():
        for layer, other in zip(domain_layers(method.net), domain_layers(bne.net), strict=True):
            layer.running_mean.copy_(other.running_mean)
            layer.running_var.copy_(other.running_var)
            layer.scales.copy_(other.weight)
            layer.shifts.copy_(other.bias)
    weights = bne.explain(images).weights
    assert weights.std() > 0
    torch.testing.assert_close(method.explain(images).weights, weights)
    branches = torch.stack([by_definition(method, images, d) for d in range(3)], dim=1)
    expected = torch.einsum("nk,nkc->nc", weights, branches)
    torch.testing.assert_close(method.predict(images), expected)


def test_the_instance_pass_takes_the_mean_of_all_scales_and_shifts(batch):
    method = randomised().eval()
    shared = randomised(affine="shared").eval()
    shared.net.model[0].load_state_dict(method.net.model[0].state_dict())
    shared.net.model[3].load_state_dict(method.net.model[3].state_dict())
    with torch.no_grad():
        for layer, other in zip(domain_layers(method.net), domain_layers(shared.net), strict=True):
            other.scales.copy_(layer.scales.mean(0))
            other.shifts.copy_(layer.shifts.mean(0))
    points, expected = method.net.embed(batch[0]), shared.net.embed(batch[0])
    torch.testing.assert_close(points.mean, expected.mean)
    torch.testing.assert_close(points.var, expected.var)


def test_layers_with_one_value_a_channel_stay_batch_norm(batch):
    images, labels, domains = batch
    model = nn.Sequential(*small_cnn()[:-1], nn.BatchNorm1d(8), nn.Linear(8, 4))
    method = DSON(model, DOMAINS).train()
    set_mixture(method, 40.0)
    bne = BNE(model, DOMAINS, distance="uniform").train()
    with torch.no_grad():
        method.net.model[8].mixture.fill_(-40.0)  # plays no part
    torch.testing.assert_close(
        method(*batch), F.cross_entropy(bne.net(images, domains, own_branch=True), labels)
    )
    torch.testing.assert_close(method.eval().predict(images), bne.eval().predict(images))


def test_no_plain_network_does_the_same():
    method = DSON(small_cnn(), DOMAINS)
    with pytest.raises(ValueError, match="OptimisedNorm that stands for no plain layer"):
        copy.deepcopy(method).net.to_plain("art")
    with pytest.raises(ValueError, match="affine must be one of"):
        DSON(small_cnn(), DOMAINS, affine="none")
    with pytest.raises(ValueError, match="mix must be one of"):
        DSON(small_cnn(), DOMAINS, mix="statistics")
