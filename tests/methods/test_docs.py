"""What docs/methods.md and docs/adding-a-method.md say, tried."""

import re

import pytest
import torch
import torch.nn.functional as F

from bne.methods import create, entries
from bne.methods import method as registry
from tests.docs.pages import ROOT, blocks
from tests.networks import DOMAINS, randomise_norms, small_cnn


@pytest.fixture
def example():
    (block,) = (b for b in blocks("docs/adding-a-method.md") if b.language == "python")
    return block.text


def test_the_methods_page_names_every_method_and_option():
    text = (ROOT / "docs" / "methods.md").read_text()
    named = set(re.findall(r"`([\w-]+)`", text))
    for entry in entries():
        assert {entry.name, *entry.options} <= named


def test_the_example_trains(example, batch, monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    exec(example, {"__name__": "worst"})
    images, labels, domains = batch
    method = create("worst-domain", small_cnn(), DOMAINS, {"share": 1.0}).train()
    logits = method.net(images)
    worst = max(F.cross_entropy(logits[domains == d], labels[domains == d]) for d in range(3))
    losses = [method(*batch)]
    torch.testing.assert_close(losses[0], worst)
    optimiser = torch.optim.SGD(method.parameters(), 0.1)
    for _ in range(20):
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
        losses.append(method(*batch))
    assert losses[-1] < 0.8 * losses[0]
    assert method.eval().predict(images).shape == (9, 4)
    meta = create("worst-domain", small_cnn(), DOMAINS).to("meta").train()
    meta(*(tensor.to("meta") for tensor in batch)).backward()  # so it can be recorded


def test_the_example_leans_as_deepall(example, batch, monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    exec(example, {"__name__": "worst"})
    for lean in (0.3, {"4": 0.7}, 0):
        told = []
        for name in ("worst-domain", "deepall"):
            torch.manual_seed(0)
            method = create(name, randomise_norms(small_cnn()), DOMAINS).eval()
            method.lean = 0.5
            method.lean = lean
            assert method.lean == lean
            told.append(method.predict(batch[0]))
        assert torch.equal(*told)


def test_the_example_is_short(example):
    lines = example.partition('if __name__ == "__main__"')[0].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 30
