import copy

import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import FreezeBatchNorm
from tests.networks import DOMAINS, randomise_norms, small_cnn


def test_training_is_that_of_a_network_whose_batch_norm_is_in_evaluation_mode(batch):
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


def test_only_batch_norm_stays_in_evaluation_mode():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    method = FreezeBatchNorm(model.eval(), DOMAINS)
    for mode in (True, False, True):
        assert method.train(mode) is method
        assert [module.training for module in model] == [mode, False, mode]
