from collections import OrderedDict

import pytest
from torch import nn

from bne.methods.places import stages
from tests.networks import small_cnn


def named(**blocks: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(blocks))


def block(inside: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(inside), nn.BatchNorm2d(outputs))


def test_stages_of_resnets_are_their_blocks() -> None:
    blocks = {f"layer{number}": block(8, 8 * 2**number) for number in range(1, 5)}
    model = named(bn1=nn.BatchNorm2d(8), **blocks, fc=nn.Linear(128, 2))
    assert stages(model) == {"layer1": 16, "layer2": 32, "layer3": 64, "layer4": 128}


def test_stages_of_timms_networks_are_those_it_names() -> None:
    model = small_cnn()
    model.feature_info = [{"module": f"blocks.{n}", "num_chs": n} for n in range(6)]
    assert stages(model) == {f"blocks.{n}": n for n in range(2, 6)}


def test_other_stages_end_with_the_last_convolution_of_each_width() -> None:
    assert stages(small_cnn()) == {"0": 6, "3": 8}
    twice = named(a=small_cnn()[:6], b=nn.Conv2d(8, 8, 1), c=nn.BatchNorm2d(8))
    assert stages(twice) == {"a.0": 6, "b": 8}
    assert stages(named(norm=nn.BatchNorm2d(3), conv=nn.Conv2d(3, 5, 1))) == {"norm": 3}
    with pytest.raises(ValueError, match="no batch-norm layer"):
        stages(nn.Linear(2, 2))
