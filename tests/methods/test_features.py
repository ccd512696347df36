"""A network in two parts, against the parts themselves."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from bne.methods.features import classifier_name, with_features, with_new_classifier
from bne.models import build
from tests.networks import small_cnn


def test_features_are_what_the_classifier_sees(batch):
    model = small_cnn().eval()
    logits, features = with_features(model, batch[0])
    torch.testing.assert_close(features, model[:-1](batch[0]))
    torch.testing.assert_close(logits, model(batch[0]))
    assert not model[-1]._forward_pre_hooks


def test_other_parameters_take_the_place_of_its_own(batch):
    model, other = small_cnn().eval(), small_cnn().eval()
    found = with_features(model, batch[0], dict(other.named_parameters()))
    torch.testing.assert_close(found, with_features(other, batch[0]))


def test_threads_get_their_own_features():
    model = small_cnn().eval()
    images = [torch.randn(n, 3, 16, 16) for n in range(1, 9)] * 4
    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        found = list(pool.map(lambda part: with_features(model, part)[1], images))
    for part, features in zip(images, found, strict=True):
        torch.testing.assert_close(features, model[:-1](part), atol=1e-5, rtol=1e-4)


def test_a_new_classifier_leaves_the_old_network_alone(batch):
    model = small_cnn().double().eval()
    other = with_new_classifier(model, 3)
    assert (other(batch[0].double()).shape, model[-1].out_features) == ((9, 3), 4)
    torch.testing.assert_close(other[:-1].state_dict(), model[:-1].state_dict())
    assert not {*other.parameters()} & {*model.parameters()}


def test_what_has_no_single_linear_classifier_is_refused():
    assert classifier_name(build("small_cnn", 3)) == "fc"
    with pytest.raises(ValueError, match="not one linear layer"):
        classifier_name(nn.Conv2d(3, 2, 1))
