"""Conversion on all of torchvision's networks with batch norm and the smallest of each timm family.

`make zoo` checks all of timm and lists the result in docs/zoo.md.
"""

import importlib
from pathlib import Path

import pytest

import bne

NETWORKS = (Path(__file__).parent / "zoo_networks.txt").read_text().split()


@pytest.fixture(scope="session")
def zoo_check(_scripts):
    return importlib.import_module("zoo_check")


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore")
def test_conversion_keeps_its_promises(name, zoo_check):
    pytest.importorskip(name.split("/")[0])
    # torchvision's are large and alike: what tells domains apart shows on timm's small ones.
    assert zoo_check.check(name, domains=name.startswith("timm/"))["layers"] > 0


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_layer_is_noticed_behind_others_that_damp_it(monkeypatch, zoo_check):
    right = bne.DomainBatchNorm.by_domain

    def wrong(layer, *args, **kwargs):
        normalised = right(layer, *args, **kwargs)
        return normalised if layer.training or layer.name != "bn1" else 1.01 * normalised

    monkeypatch.setattr(bne.DomainBatchNorm, "by_domain", wrong)
    with pytest.raises(zoo_check.MismatchError, match="output of bn1"):
        zoo_check.check("timm/mobilenetv4_hybrid_medium")
