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
