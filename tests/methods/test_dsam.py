import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import DSAM
from bne.methods.dsam import Aggregation
from bne.models import build
from tests.networks import DOMAINS, randomise_norms, small_cnn


def deeper() -> nn.Sequential:
    """A network with three stages."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1), small_cnn(4))


@pytest.fixture
def method():
    return DSAM(randomise_norms(deeper()), DOMAINS).double()


def module_by_hand(module, maps, features):
    """One image and one place at a time."""
    rows = []
    for n in range(len(features)):
        joined = None
        for node, own in zip(module.nodes, maps, strict=True):
            given = own[n]
            if joined is not None:
                smaller = F.adaptive_avg_pool2d(joined, own.shape[2:])
                given = torch.cat([smaller, own[n]])
            weight = node.weight[:, :, 0, 0]
            joined = torch.empty(len(weight), *own.shape[2:], dtype=own.dtype)
            for y in range(own.shape[2]):
                for x in range(own.shape[3]):
                    joined[:, y, x] = (weight @ given[:, y, x] + node.bias).relu()
        both = torch.cat([joined.mean((1, 2)), features[n]])
        rows.append(module.classifier(module.last(both).relu()))
    return torch.stack(rows)


def by_hand(method, images):
    net = method.net
    first = net[0](images)
    second = net[3][0](net[2](net[1](first)))
    features = net[3][1:-1](second)
    return [module_by_hand(module, [first, second], features) for module in net[3][-1]]


def test_an_image_trains_its_own_module_alone(method, batch) -> None:
    images, labels, domains = batch
    loss = method.train()(images.double(), labels, domains)
    answers = by_hand(method, images.double())
    expected = sum(F.cross_entropy(answers[domains[n]][n], labels[n]) for n in range(9)) / 9
    torch.testing.assert_close(loss, expected)
    method.zero_grad()
    only = domains == 1
    method(images[only].double(), labels[only], domains[only]).backward()
    modules = method.net[3][-1]
    assert all(p.grad.any() for p in modules[1].parameters())
    assert not any(p.grad.any() for other in (0, 2) for p in modules[other].parameters())
    assert method.net[0].weight.grad.any()


def test_the_mean_of_all_decides(method, batch) -> None:
    images = batch[0].double()
    with torch.no_grad():
        logits = method.eval().predict(images)
        torch.testing.assert_close(logits, sum(by_hand(method, images)) / 3)


def test_it_predicts_in_several_threads(method, batch) -> None:
    images = batch[0].double()
    expected = method.eval().predict(images)

    def run_another(*_):
        hook.remove()
        thread = threading.Thread(target=method.predict, args=(images[:1],))
        thread.start()
        thread.join()

    hook = method.net[1].register_forward_hook(run_another)
    assert torch.equal(method.predict(images), expected)


class TinyResNet(nn.Module):
    """Four stages of one or two blocks, which halve the map, rounded up, but for the first."""

    def __init__(self) -> None:
        super().__init__()
        inside = 3
        for number, (width, count) in enumerate([(2, 2), (3, 1), (4, 2), (5, 1)], 1):
            blocks = []
            for n in range(count):
                stride = 2 if number > 1 and n == 0 else 1
                convolution = nn.Conv2d(inside, width, 3, stride, padding=1)
                blocks.append(nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU()))
                inside = width
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(5, 4)

    def maps(self, images):
        """Of every block."""
        stages = (self.layer1, self.layer2, self.layer3, self.layer4)
        return [images := block(images) for stage in stages for block in stage]

    def forward(self, images):
        return self.fc(self.maps(images)[-1].mean((2, 3)))


def block_module_by_hand(module, maps):
    """One image and one place at a time; (width, starts a stage) of blocks is told here again."""
    count, joined = len(maps[0]), maps[0]
    starts = [False, True, True, False, True]
    for node, own, first in zip(module.nodes, maps[1:], starts, strict=True):
        height, width = own.shape[2:]
        channels = joined.shape[1] + own.shape[1]
        kept = torch.ones(count, channels, 1, 1, dtype=own.dtype)
        kept = F.dropout2d(kept, 0.5, module.training)  # whole channels, or none
        weight, bias = node.join[1].weight[:, :, 0, 0], node.join[1].bias
        assert weight.shape == (2 * own.shape[1], channels)
        found = torch.empty(count, len(weight), height, width, dtype=own.dtype)
        for n in range(count):
            for y in range(height):
                for x in range(width):
                    before = joined[n, :, y, x]
                    if first:
                        before = node.smaller.weight[:, :, 0, 0] @ joined[n, :, 2 * y, 2 * x]
                        before = (before + node.smaller.bias).relu()
                    given = torch.cat([before, own[n, :, y, x]]) * kept[n, :, 0, 0]
                    found[n, :, y, x] = (weight @ given + bias).relu()
        joined = found
    means = joined.mean((2, 3))
    means = means * F.dropout(torch.ones_like(means), 0.5, module.training)
    return means @ module.classifier[1].weight.T + module.classifier[1].bias


@pytest.mark.parametrize("size", [16, 9])
@pytest.mark.parametrize("training", [True, False])
def test_modules_of_resnets_join_the_maps_of_all_blocks(batch, size, training) -> None:
    images, labels, domains = batch
    images = images[:, :, :size, :size].double()
    method = DSAM(randomise_norms(TinyResNet()), DOMAINS).double().train(training)
    torch.manual_seed(5)
    loss = method.loss(images, labels, domains)
    torch.manual_seed(5)
    maps = method.net.maps(images)
    answers = [block_module_by_hand(module, maps) for module in method.net.fc]
    expected = sum(F.cross_entropy(answers[domains[n]][n], labels[n]) for n in range(9)) / 9
    torch.testing.assert_close(loss, expected)
    slopes = (torch.autograd.grad(x, list(method.parameters())) for x in (loss, expected))
    for found, known in zip(*slopes, strict=True):
        torch.testing.assert_close(found, known)
    if not training:
        torch.testing.assert_close(method.predict(images), sum(answers) / 3)


def test_resnet18_has_the_authors_modules() -> None:
    module = DSAM(build("resnet18", 7), DOMAINS).net.fc[0]
    joins = [node.join[1] for node in module.nodes]
    assert [join.in_channels for join in joins] == [128, 256, 384, 512, 768, 1024, 1536]
    assert [join.out_channels for join in joins] == [128, 256, 256, 512, 512, 1024, 1024]
    made_smaller = [node.smaller is not None for node in module.nodes]
    assert made_smaller == [False, True, False, True, False, True, False]
    assert (module.classifier[0].p, module.classifier[1].in_features) == (0.5, 1024)


def test_networks_without_blocks_have_plain_modules() -> None:
    flat = TinyResNet()
    flat.layer2 = flat.layer2[0]
    for model in (small_cnn(), build("small_cnn", 4), flat):
        DSAM(model, DOMAINS)
        assert any(isinstance(layer, Aggregation) for layer in model.modules())
