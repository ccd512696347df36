import copy

import pytest
from torch import nn

from bne import models
from bne.models import Preprocessing


def test_input_needs_travel_with_the_network() -> None:
    network = models.build("resnet18", num_classes=2)
    expected = Preprocessing(size=224)
    assert models.preprocessing("resnet18") == expected
    assert models.preprocessing(network) == expected
    assert models.preprocessing(nn.Sequential(copy.deepcopy(network))) == expected


def test_each_backbone_has_its_own_needs() -> None:
    assert models.preprocessing("alexnet_bn") == Preprocessing(size=227)
    caffe = models.preprocessing("alexnet_cvgj")
    assert (caffe.size, caffe.mean, caffe.std) == (227, (0, 0, 0), (1 / 255,) * 3)


def test_random_weights_are_all_fresh() -> None:
    network = models.build("resnet18", num_classes=2)
    origin = models.origin(network)
    assert (origin.backbone, origin.weights, origin.unused) == ("resnet18", None, ())
    assert set(origin.fresh) == set(network.state_dict())


def test_other_networks_have_no_origin() -> None:
    with pytest.raises(ValueError, match=r"not built by bne\.models\.build"):
        models.preprocessing(nn.Linear(1, 1))
