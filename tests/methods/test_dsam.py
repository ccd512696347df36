import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import DSAM
from tests.networks import DOMAINS, randomise_norms, small_cnn


def deeper(classes: int = 4) -> nn.Sequential:
    """A network with three stages."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1), small_cnn(classes)
    )


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
