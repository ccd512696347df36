import pytest
import torch
import torch.nn.functional as F

from bne.methods import Fusion
from tests.networks import DOMAINS, randomise_norms, small_cnn


@pytest.fixture
def method():
    method = Fusion(randomise_norms(small_cnn()), DOMAINS, agnostic=0.3, domain_loss=0.5).double()
    torch.nn.init.normal_(method.net[-1].classes.weight)
    return method


def answers(method, images):
    """Every domain's logits, and those of the domains, one layer after another."""
    head, features = method.net[-1], method.net[:-1](images)
    weights, biases = head.classes.weight.split(4), head.classes.bias.split(4)
    return [F.linear(features, w, b) for w, b in zip(weights, biases, strict=True)], head.domains(
        features
    )


def test_the_loss_by_hand(method, batch) -> None:
    images, labels, domains = batch
    loss = method.train()(images.double(), labels, domains)
    classes, told = answers(method, images.double())
    expected = 0
    for n in range(9):
        mean = sum(each[n] for each in classes) / 3
        mixed = 0.7 * classes[domains[n]][n] + 0.3 * mean
        expected += F.cross_entropy(mixed, labels[n]) / 9
        expected += 0.5 * F.cross_entropy(told[n], domains[n]) / 9
    torch.testing.assert_close(loss, expected)


def test_the_prediction_by_hand(method, batch) -> None:
    images = batch[0].double()
    logits = method.eval().predict(images)
    classes, told = answers(method, images)
    for n in range(9):
        probabilities = told[n].softmax(0)
        expected = sum((0.7 * probabilities[k] + 0.1) * classes[k][n] for k in range(3))
        torch.testing.assert_close(logits[n], expected)


@pytest.mark.parametrize("biased", [True, False])
def test_classifiers_start_as_the_networks_own(batch, biased: bool) -> None:
    model = randomise_norms(small_cnn()).eval()
    if not biased:
        model[-1].bias = None
    with torch.no_grad():
        before = model(batch[0])
        after = Fusion(model, DOMAINS).eval().predict(batch[0])
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize(("option", "value"), [("agnostic", 1.5), ("domain_loss", -1)])
def test_impossible_options_are_refused(option, value) -> None:
    with pytest.raises(ValueError, match=option):
        Fusion(small_cnn(), DOMAINS, **{option: value})
