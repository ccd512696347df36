"""The peers of the speed benchmark compute what they stand for, so that comparing is fair."""

import copy
import sys
from dataclasses import replace
from inspect import getclosurevars
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import bne
from bne.models import build
from tests.networks import randomise_norms

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


@pytest.mark.parametrize(("backbone", "size"), [("small_cnn", 32), ("resnet18", 48)])
def test_algorithm_1_written_plainly_is_our_step(peers, timing, backbone, size):
    model = randomise_norms(build(backbone, 7)).double()
    images = torch.randn(6, 3, size, size, dtype=torch.double)
    images += torch.arange(3).repeat_interleave(2).view(-1, 1, 1, 1)
    labels = torch.arange(6)
    ours = bne.convert(model, list("abc"), branch_statistics="population").train()
    theirs = peers.AlgorithmOne(copy.deepcopy(model), 3).train()
    layers = [layer for layer in ours.modules() if isinstance(layer, bne.DomainBatchNorm)]
    for layer in layers:
        layer.num_batches_tracked.fill_(1000)  # past the start, from where on both remember alike

    expected = timing.forward(ours, images, timing.Case("training", 6, False, 3))()
    logits = theirs(images)
    torch.testing.assert_close(logits, expected)
    for layer, norm in zip(layers, theirs.norms, strict=True):
        torch.testing.assert_close(norm.mean, layer.running_mean)
        torch.testing.assert_close(norm.var, layer.running_var)

    F.cross_entropy(expected, labels).backward()
    F.cross_entropy(logits, labels).backward()
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(its.grad, mine.grad)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    (tmp_path / "domainbed").mkdir()
    (tmp_path / "domainbed" / "algorithms.py").write_text(CHECKOUT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("domainbed", "domainbed.algorithms"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_erm_trains_and_freezes_batch_norm_if_asked(peers, small, frozen, own, checkout):
    with mock.patch("torch.hub.load_state_dict_from_url", side_effect=OSError("a download")):
        step = peers.erm_step(small, frozen, checkout if own else None)
    assert [len(images) for images, _ in step.args[0]] == [2, 2, 2]
    network = step.func.__self__ if own else getclosurevars(step.func).nonlocals["network"]
    before = copy.deepcopy(network.state_dict())
    loss = step()["loss"] if own else step()
    after = network.state_dict().items()
    changed = {name.split(".", 1)[1] for name, value in after if not value.equal(before[name])}
    assert loss > 0
    assert {"conv1.weight", "fc.weight" if own else "weight"} <= changed
    assert ("bn1.running_mean" in changed) is not frozen


def test_frozen_erm_has_the_loss_of_the_network_in_evaluation(peers, small):
    step = peers.erm_step(small, True, None)
    network = copy.deepcopy(getclosurevars(step.func).nonlocals["network"]).eval()
    images, labels = (torch.cat(part) for part in zip(*step.args[0], strict=True))
    assert step() == pytest.approx(F.cross_entropy(network(images), labels).item(), rel=1e-4)


def test_every_peer_is_a_case_of_its_own(peers, small):
    gpu = replace(small, device=torch.device("cuda"), precision="bf16")
    found = list(peers.peers(gpu, None))
    assert (found[0].work, found[0].graph) == ("BNE, bf16", True)
    assert len({(case.work, case.graph) for case in found}) == 12
