"""Conversion on all of torchvision's networks with batch norm and the smallest of each timm family.

`make zoo` checks all of timm and lists the result in docs/zoo.md.
"""

from pathlib import Path

import pytest

NETWORKS = (Path(__file__).parent / "networks.txt").read_text().split()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore")
def test_conversion_keeps_its_promises(name):
    pytest.importorskip(name.split("/")[0])
    from tests.zoo.check import check

    # torchvision's are large and alike: what tells domains apart shows on timm's small ones.
    assert check(name, domains=name.startswith("timm/"))["layers"] > 0


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_layer_is_noticed_behind_others_that_damp_it(monkeypatch):
    import bne
    from tests.zoo.check import MismatchError, check

    right = bne.DomainBatchNorm.by_domain

    def wrong(layer, *args, **kwargs):
        normalised = right(layer, *args, **kwargs)
        return normalised if layer.training or layer.name != "bn1" else 1.01 * normalised

    monkeypatch.setattr(bne.DomainBatchNorm, "by_domain", wrong)
    with pytest.raises(MismatchError, match="output of bn1"):
        check("timm/mobilenetv4_hybrid_medium")
