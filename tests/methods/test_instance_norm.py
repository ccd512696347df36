import copy

import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import InstanceNorm
from tests.networks import DOMAINS, randomise_norms, small_cnn


def with_instance_norm(model):
    """The same network with torch's own instance norm, γ and β taken over."""
    other = copy.deepcopy(model)
    for name, layer in model.named_children():
        if isinstance(layer, nn.BatchNorm2d):
            norm = nn.InstanceNorm2d(layer.num_features, layer.eps, affine=True)
            norm.load_state_dict({"weight": layer.weight, "bias": layer.bias})
            setattr(other, name, norm)
    return other


def test_it_is_torchs_instance_norm_in_training_and_in_evaluation(batch):
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
