"""The peers of the speed benchmark compute what they stand for, so that comparing is fair."""

import copy
import importlib.util
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import bne
from bne.core.surgery import domain_layers
from bne.models import build
from tests.networks import randomise_norms
from tests.speed.settings import settings

CHECKOUT = """
import torch
import torchvision.models
from torch.nn.functional import cross_entropy

class ERM(torch.nn.Module):
    def __init__(self, input_shape, num_classes, num_domains, hparams):
        super().__init__()
        assert (input_shape, num_classes, num_domains) == ((3, 32, 32), 7, 3)
        assert hparams["resnet18"] and not hparams["resnet50_augmix"] and not hparams["vit"]
        self.network = torchvision.models.resnet18(pretrained=True)
        self.network.fc = torch.nn.Linear(512, num_classes)
        self.freeze_bn = hparams["freeze_bn"]
        self.optimizer = torch.optim.SGD(self.network.parameters(), hparams["lr"])

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if self.freeze_bn and isinstance(module, torch.nn.BatchNorm2d):
                module.eval()

    def update(self, minibatches, unlabeled=None):
        assert [len(x) for x, y in minibatches] == [2, 2, 2]
        images, labels = map(torch.cat, zip(*minibatches))
        loss = cross_entropy(self.network(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item()}
"""  # as DomainBed has it, but for the imports

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "speed_peers.py"


@pytest.fixture(scope="module")
def peers():
    spec = importlib.util.spec_from_file_location("speed_peers", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["speed_peers"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["speed_peers"]


@pytest.mark.parametrize(("backbone", "size"), [("small_cnn", 32), ("resnet18", 48)])
def test_algorithm_1_written_plainly_is_our_step(peers, backbone, size):
    model = randomise_norms(build(backbone, 7)).double()
    images = torch.randn(6, 3, size, size, dtype=torch.double)
    images += torch.arange(3).repeat_interleave(2).view(-1, 1, 1, 1)
    labels, domains = torch.arange(6), torch.arange(3).repeat_interleave(2)
    ours = bne.convert(model, list("abc"), branch_statistics="population").train()
    theirs = peers.AlgorithmOne(copy.deepcopy(model), 3).train()

    out = ours.explain(images, domains)
    logits = theirs(images)
    torch.testing.assert_close(logits, out.logits)
    for layer, norm in zip(domain_layers(ours), theirs.norms, strict=True):
        torch.testing.assert_close(norm.mean, layer.running_mean)
        torch.testing.assert_close(norm.var, layer.running_var)

    F.cross_entropy(out.logits, labels).backward()
    F.cross_entropy(logits, labels).backward()
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(its.grad, mine.grad)


@pytest.mark.parametrize("frozen", [False, True])
def test_erm_trains_and_freezes_batch_norm_if_asked(peers, frozen):
    chosen = settings(size=32)
    step = peers.erm_step(chosen, frozen, None)
    update, minibatches = (cell.cell_contents for cell in reversed(step.__closure__))
    assert [len(images) for images, _ in minibatches] == [2, 2, 2]
    network = update.__closure__[-1].cell_contents
    before = copy.deepcopy(network.state_dict())
    network.eval()
    images, labels = (torch.cat(part) for part in zip(*minibatches, strict=True))
    if frozen:  # then its first loss is that of the network in evaluation
        expected = F.cross_entropy(network(images), labels).item()
        network.train()
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eval()
        assert step() == pytest.approx(expected, rel=1e-4)
    else:
        network.train()
        step()
    changed = {
        name for name, value in network.state_dict().items() if not value.equal(before[name])
    }
    assert {"1.weight", "0.conv1.weight"} <= changed
    assert ("0.bn1.running_mean" in changed) is not frozen


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    package = tmp_path / "domainbed"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "algorithms.py").write_text(CHECKOUT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("domainbed", "domainbed.algorithms"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_checkout_of_domainbed_runs_its_own_step(peers, frozen, checkout):
    with mock.patch("torch.hub.load_state_dict_from_url", side_effect=OSError("a download")):
        step = peers.erm_step(settings(size=32), frozen, checkout)
    update = dict(zip(step.__code__.co_freevars, step.__closure__, strict=True))["update"]
    erm = update.cell_contents.__self__
    before = copy.deepcopy(erm.state_dict())
    assert step()["loss"] > 0
    changed = {name for name, value in erm.state_dict().items() if not value.equal(before[name])}
    assert {"network.conv1.weight", "network.fc.weight"} <= changed
    assert ("network.bn1.running_mean" in changed) is not frozen


def test_the_first_line_is_what_all_are_compared_with(peers):
    chosen = settings("cuda", precision="bf16")
    found = peers.peers(chosen, None)
    assert (found[0].name, found[0].graph) == ("BNE, bf16", True)
    assert len({(peer.name, peer.graph) for peer in found}) == len(found) == 12
    timing = peers.Timing((30.0, 20.0, 10.0))
    line = peers.measured(found[1], timing, 10.0, 48)
    assert (line.ratio, line.low, line.high, line.images_per_s) == (2, 10, 30, 2400)
    assert peers.measured(found[1], None, 10.0, 48).note
