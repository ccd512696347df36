"""The code in docs/domainbed.md runs."""

import torch

from tests.test_readme import ROOT, run_blocks


def test_domainbed_page() -> None:
    names = run_blocks(ROOT / "docs" / "domainbed.md", 1)
    hparams = {"lr": 1e-4, "weight_decay": 0.0}
    batches = [(torch.randn(2, 3, 64, 64), torch.tensor([0, 1])) for _ in range(2)]
    for name in ("BNE", "DeepAll"):
        algorithm = names[name]((3, 64, 64), 2, 2, hparams)
        assert algorithm.update(batches)["loss"] > 0
