"""Every method against the sentence it implements."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import BNE, DeepAll
from tests.networks import DOMAINS, small_cnn


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return torch.randn(9, 3, 16, 16), torch.randint(4, (9,)), torch.arange(3).repeat_interleave(3)


def test_deepall_merges_the_domains(batch):
    images, labels, _ = batch
    model = small_cnn()
    plain = copy.deepcopy(model)
    method = DeepAll(model, DOMAINS).train()
    torch.testing.assert_close(method.loss(*batch), F.cross_entropy(plain(images), labels))
    torch.testing.assert_close(model[1].running_mean, plain[1].running_mean)  # one batch of all
    torch.testing.assert_close(method.eval().predict(images), plain.eval()(images))


@pytest.mark.parametrize("distance_training", [False, True])
def test_bne_warms_up_or_trains_by_distance(batch, distance_training):
    images, labels, domains = batch
    method = BNE(small_cnn(), DOMAINS).train()
    reference = copy.deepcopy(method.net)
    method.begin_epoch(1, warm_up=1 if distance_training else 2)
    logits = (
        reference.explain(images, domains).logits
        if distance_training
        else reference(images, domains)
    )
    torch.testing.assert_close(method.loss(*batch), F.cross_entropy(logits, labels))
    torch.testing.assert_close(method.eval().predict(images), reference.eval()(images))
