import math

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import adjusted_rand_score

from bne.methods import MMLD
from tests.networks import DOMAINS, randomise_norms, small_cnn


def small(**options):
    return MMLD(randomise_norms(small_cnn()), DOMAINS, hidden=5, **options).double().train()


@pytest.mark.parametrize("epoch", [0, 3, 30, 50])
def test_the_loss_and_its_gradients_by_hand(batch, epoch) -> None:
    images, labels, domains = batch
    method = small(dropout=0.0, reversal=0.7, entropy_loss=0.4)
    method.begin_epoch(epoch, warm_up=2)
    loss = method(images.double(), labels, domains)
    loss.backward()
    strength = 2 / (1 + math.exp(-10 * min(epoch, 30) / 30)) - 1
    features = method.net[:-1](images.double())
    logits, told = method.net[-1](features), method.discriminator(features)
    classes = clusters = entropy = 0
    for n in range(9):
        classes += F.cross_entropy(logits[n], labels[n]) / 9
        clusters += F.cross_entropy(told[n], domains[n]) / 9
        entropy -= sum(p * p.log() for p in logits[n].softmax(0)) / 9
    torch.testing.assert_close(loss, classes + clusters + 0.4 * strength * entropy)
    body = list(method.net.parameters())
    forward = torch.autograd.grad(classes + 0.4 * strength * entropy, body, retain_graph=True)
    backward = torch.autograd.grad(clusters, body, retain_graph=True, allow_unused=True)
    for parameter, own, against in zip(body, forward, backward, strict=True):
        expected = own if against is None else own - 0.7 * strength * against
        torch.testing.assert_close(parameter.grad, expected)
    teller = list(method.discriminator.parameters())
    for parameter, expected in zip(teller, torch.autograd.grad(clusters, teller), strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_clusters_are_those_of_style(batch) -> None:
    truth = torch.arange(3).repeat(20)
    scale, shift = torch.tensor([1.0, 0.2, 3.0])[truth], torch.tensor([0.0, 2.0, -2.0])[truth]
    images = torch.randn(60, 3, 16, 16) * scale.view(-1, 1, 1, 1) + shift.view(-1, 1, 1, 1)
    method = MMLD(small_cnn(), DOMAINS, smallest=5).eval()

    def look(numbers):
        yield from images[torch.as_tensor(numbers)].split(7)

    found = method.members({"any": range(60)}, 0, look)
    labels = torch.empty(60)
    for cluster, numbers in enumerate(found.values()):
        labels[torch.as_tensor(numbers)] = cluster
    assert adjusted_rand_score(labels, truth) == 1
    with torch.no_grad():
        maps = [method.net[:1](images), method.net[:4](images)]
        styles = method.points(look(range(60)))
    expected = [v for x in maps for v in (x.mean((2, 3)), (x.var((2, 3)) + 1e-5).sqrt())]
    torch.testing.assert_close(styles, torch.cat(expected, 1))


@pytest.mark.parametrize(
    ("option", "value"),
    [("clusters", 0), ("refresh", 0), ("reversal", -1), ("entropy_loss", -1), ("ramp", 0)],
)
def test_impossible_options_are_refused(option, value) -> None:
    with pytest.raises(ValueError, match=f"{option} must be at least"):
        small(**{option: value})
