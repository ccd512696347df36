"""One network for all domains, against torch's own layers and figures by hand."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.data.batches import DomainBatches
from bne.methods import DeepAll, FreezeBatchNorm, InstanceNorm
from tests.networks import DOMAINS, randomise_norms, small_cnn


def test_deepalls_statistics_remember_as_they_are_told(batch):
    method = DeepAll(randomise_norms(small_cnn()), DOMAINS, momentum=0.01).train()
    first = next(layer for layer in method.modules() if isinstance(layer, nn.BatchNorm2d))
    before, seen = first.running_mean.clone(), []
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    method.loss(*batch)
    mean = seen[0].mean((0, 2, 3))
    torch.testing.assert_close(first.running_mean, 0.99 * before + 0.01 * mean)
    with pytest.raises(ValueError, match="momentum must be between 0 and 1"):
        DeepAll(small_cnn(), DOMAINS, momentum=2)


def test_deepall_may_draw_from_all_images_alike():
    members = {"large": range(90), "small": range(90, 100)}
    for balanced, share in ((True, 0.5), (False, 0.9)):
        method = DeepAll(small_cnn(), list(members), balanced=balanced)
        batches = DomainBatches(method.members(members, 0, None), 10)
        drawn = torch.cat([batches.whole(step) for step in range(50)])
        assert (drawn < 90).float().mean() == share


def test_frozen_training_is_that_of_a_network_whose_batch_norm_is_in_evaluation_mode(batch):
    images, labels, _ = batch
    model = randomise_norms(small_cnn())
    plain = copy.deepcopy(model).eval()  # without dropout, all that evaluation changes
    method = FreezeBatchNorm(model, DOMAINS).train()
    before = copy.deepcopy(dict(model.named_buffers()))
    optimisers = [torch.optim.SGD(net.parameters(), 0.1) for net in (model, plain)]
    for _ in range(3):
        losses = method(*batch), F.cross_entropy(plain(images), labels)
        torch.testing.assert_close(*losses)
        for loss, optimiser in zip(losses, optimisers, strict=True):
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.testing.assert_close(dict(model.named_parameters()), dict(plain.named_parameters()))
    torch.testing.assert_close(dict(model.named_buffers()), before, rtol=0, atol=0)
    torch.testing.assert_close(method.eval().predict(images), plain(images))


def test_only_frozen_batch_norm_stays_in_evaluation_mode():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    method = FreezeBatchNorm(model.eval(), DOMAINS)
    for mode in (True, False, True):
        assert method.train(mode) is method
        assert [module.training for module in model] == [mode, False, mode]


def with_instance_norm(model):
    """The same network with torch's own instance norm, γ and β taken over."""
    other = copy.deepcopy(model)
    for name, layer in model.named_children():
        if isinstance(layer, nn.BatchNorm2d):
            norm = nn.InstanceNorm2d(layer.num_features, layer.eps, affine=True)
            norm.load_state_dict({"weight": layer.weight, "bias": layer.bias})
            setattr(other, name, norm)
    return other


def test_instance_norm_is_torchs_in_training_and_in_evaluation(batch):
    images, labels, _ = batch
    model = randomise_norms(small_cnn())
    reference = with_instance_norm(model)
    method = InstanceNorm(model, DOMAINS).train()
    loss, expected = method(*batch), F.cross_entropy(reference(images), labels)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    gradients = [
        [parameter.grad for parameter in net.parameters()] for net in (method.net, reference)
    ]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(method.eval().predict(images), reference.eval()(images))


def test_layers_with_one_value_a_channel_stay_batch_norm(batch):
    images, labels, _ = batch
    model = nn.Sequential(*small_cnn()[:-1], nn.BatchNorm1d(8, momentum=0.3), nn.Linear(8, 4))
    reference = with_instance_norm(randomise_norms(model))
    method = InstanceNorm(model, DOMAINS).train()
    layer = method.net.model[8]
    layer.num_batches_tracked.fill_(1000)  # past the start, when all batches are averaged
    for _ in range(2):
        torch.testing.assert_close(method(*batch), F.cross_entropy(reference(images), labels))
    torch.testing.assert_close(layer.running_mean[0], reference[8].running_mean)
    # Ours keeps biased variances, so that evaluation is compared under the same statistics.
    reference[8].running_var.copy_(layer.running_var[0])
    torch.testing.assert_close(method.eval().predict(images), reference.eval()(images))
