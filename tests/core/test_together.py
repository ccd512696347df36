"""Images of one unknown domain, against plain loops over the definition in float64."""

import pytest
import torch

import bne
from bne.core.together import Together
from tests.core.test_leaning import IMAGES, converted
from tests.networks import DOMAINS, small_cnn

WAYS = [
    {},
    {"lean": 0.3},
    {"lean": {"4": 0.5}, "mix": "probabilities", "max_branches": 1},
    {"lean": 0.3, "nearest": 1},
    {"lean": 0.3, "mix": "statistics"},
    {"lean": 0.3, "mix": "centre"},
    {"lean": 0.3, "distance": "uniform"},
]


def normalised(layer, x, mean, var):
    shape = (-1, len(layer.weight), 1, 1)
    deviation = (var + layer.eps).sqrt().view(shape)
    out = (x - mean.view(shape)) / deviation
    return out * layer.weight.view(shape) + layer.bias.view(shape)


def point(images, known, layer, share):
    """Mean and variance so far on the way from known ones to those of all images as one."""
    mean, start = known[0], (known[1] + layer.eps).sqrt()
    end = (images.var((0, 2, 3), correction=0) + layer.eps).sqrt()
    deviation = start + share * (end - start)
    return mean + share * (images.mean((0, 2, 3)) - mean), deviation.square() - layer.eps


def instance_pass(net, images):
    """What the two layers see if each image is normalized by its own statistics."""
    first, norm, relu, second = net.model[:4]
    x = first(images)
    own = x.mean((2, 3)), x.var((2, 3), correction=0)
    return {"1": x, "4": second(relu(normalised(norm, x, *own)))}


def weights_of(net, images):
    if net.distance is bne.uniform:
        return torch.full((3,), 1 / 3).double()
    distances = torch.zeros(3).double()
    for name, x in instance_pass(net, images).items():
        layer = net.model[int(name)]
        mean, std = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0).sqrt()
        for k in range(3):
            distances[k] += (mean - layer.running_mean[k]).square().sum()
            distances[k] += (std - layer.running_var[k].sqrt()).square().sum()
    weights = 1 / distances
    if net.nearest is not None:
        weights = torch.where(distances <= distances.sort()[0][net.nearest - 1], weights, 0)
    return weights / weights.sum()


def under(net, images, mixed):
    """The network, leaning on what all images had in common when each leaned on itself.

    Args:
        mixed: the domains' weights, (N or 1, 3) in the first pass and (1, 3) in the second.
    """
    each, every = images, images
    for place, module in enumerate(net.model):
        if not isinstance(module, bne.DomainBatchNorm):
            each, every = module(each), module(every)
            continue
        share = net.lean.get(str(place), 0) if isinstance(net.lean, dict) else net.lean
        first, second = (_mixed(module, weights) for weights in mixed)
        target = point(each, second, module, share)
        alone = [
            normalised(module, one[None], *point(one[None], _row(first, n), module, share))
            for n, one in enumerate(each)
        ]
        each, every = torch.cat(alone), normalised(module, every, *target)
    return every


def _row(moments, n):
    return tuple(own[n if len(own) > 1 else 0][None] for own in moments)


def _mixed(layer, weights):
    mean = weights @ layer.running_mean
    return mean, weights @ (layer.running_var + layer.running_mean.square()) - mean.square()


def by_definition(net, images):
    weights = weights_of(net, images)
    if net.mix == "statistics":
        own = torch.stack([weights_of(net, image[None]) for image in images])
        return under(net, images, (own, weights[None]))
    if net.mix == "centre":
        even = torch.full((1, 3), 1 / 3).double()
        return under(net, images, (even, even))
    each = torch.eye(3).double()
    branches = torch.stack([under(net, images, (each[[k]], each[[k]])) for k in range(3)])
    weights = weights.view(3, 1, 1)
    if net.mix == "probabilities":
        return (weights * branches.softmax(2)).sum(0).log()
    return (weights * branches).sum(0)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_all_images_are_one_domain(options):
    net, images = converted(**options), IMAGES.double()
    together = Together(net)
    for part in images.split([2, 1, 2]):
        together.add(part)
    with torch.no_grad(), together:
        found = net(images)
        said = net(images[:2], details=True)
    torch.testing.assert_close(found, by_definition(net, images))
    torch.testing.assert_close(said.logits, found[:2])
    assert torch.equal(said.weights[0], said.weights[1])
    alone = net(images)
    assert not torch.allclose(found, alone, rtol=1e-3)  # and outside it images are on their own


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_one_image_alone_is_answered_as_always(options):
    net, image = converted(**options), IMAGES[:1].double()
    together, expected = Together(net), net(image)
    together.add(image)
    with together:
        torch.testing.assert_close(net(image), expected)


def test_images_that_could_not_be_added_leave_nothing_behind():
    net = converted()
    together, images = Together(net), IMAGES.double()
    with pytest.raises(RuntimeError):
        together.add(images[:, :2])  # channels that the network does not take
    with together, pytest.raises(ValueError, match="call add before"):
        net(images)


def test_images_must_be_added_before():
    net = bne.convert(small_cnn(), DOMAINS, lean=0.1).eval()
    with Together(net), pytest.raises(ValueError, match="call add before"):
        net(IMAGES)
    net(IMAGES)  # which is over with the context
