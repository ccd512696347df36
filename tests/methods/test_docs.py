"""What docs/methods.md and docs/adding-a-method.md say, tried."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bne.methods import create, entries, registry
from tests.networks import DOMAINS, small_cnn

DOCS = Path(__file__).resolve().parents[2] / "docs"


def code(page):
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)
    return block


@pytest.fixture
def example():
    return code("adding-a-method.md")


def test_the_methods_page_runs():
    names = {}
    exec(code("methods.md"), names)
    assert names["logits"].shape == (6, 7)


def test_the_methods_page_names_every_method_and_option():
    text = (DOCS / "methods.md").read_text()
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


def test_the_example_is_a_command_line(example, tmp_path):
    (tmp_path / "worst.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "worst.py", "train", "--list-methods"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "worst-domain" in done.stdout


def test_the_example_is_short(example):
    lines = example.partition('if __name__ == "__main__"')[0].splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 30
