"""CrossGrad against a transcription of its algorithm, image by image, in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import create
from tests.networks import DOMAINS, small_cnn


def method_of(**options):
    return create("crossgrad", small_cnn(), DOMAINS, options).double().train()


def moved(run, images, classes, epsilon, clip):
    """Each image along the gradient of its own loss, the images' only link being batch norm."""
    out = []
    for i in range(len(images)):
        x = images.clone().requires_grad_()
        logits = run(x).log_softmax(1)
        total = -sum(logits[j, classes[j]] for j in range(len(images)))
        slope = torch.autograd.grad(total, x)[0][i]
        out.append(images[i] + epsilon * slope.clamp(-clip, clip))
    return torch.stack(out)


@pytest.mark.parametrize("domain_features", [False, True])
def test_loss_and_gradients_against_the_algorithm(batch, domain_features):
    images, labels, domains = batch[0].double(), *batch[1:]
    method = method_of(epsilon=2.0, clip=0.01, share=0.3, domain_features=domain_features)
    label_net, domain_net = copy.deepcopy(method.net), copy.deepcopy(method.domain_net)
    more = copy.deepcopy(method.from_domain)

    def by_label(x):
        if not domain_features:
            return label_net(x)
        return label_net(x) + domain_net[:-1](x).detach() @ more.weight.T

    x_of_domains = moved(domain_net, images, domains, 2.0, 0.01)
    x_of_labels = moved(by_label, images, labels, 2.0, 0.01)
    expected = (
        0.7 * F.cross_entropy(by_label(images), labels)
        + 0.3 * F.cross_entropy(by_label(x_of_domains), labels)
        + 0.7 * F.cross_entropy(domain_net(images), domains)
        + 0.3 * F.cross_entropy(domain_net(x_of_labels), domains)
    )
    loss = method(images, labels, domains)
    torch.testing.assert_close(loss, expected)
    parts = [label_net, domain_net, *([more] if more else [])]
    known = [p for part in parts for p in part.parameters()]
    slopes = torch.autograd.grad(loss, list(method.parameters()))
    torch.testing.assert_close(slopes, torch.autograd.grad(expected, known))


def test_pixels_move_by_no_more_than_the_clip(batch):
    method = method_of(epsilon=3.0, clip=1e-4)
    images = batch[0].double().requires_grad_()
    total = F.cross_entropy(method.domain_net(images), batch[2], reduction="sum")
    apart = (method._moved(images, total) - images).abs()
    assert apart.max().item() == pytest.approx(3e-4)
    assert apart.min() < 3e-4


def test_domain_features_take_part_in_predictions(batch):
    method = method_of(domain_features=True).eval()
    images = batch[0].double()
    features = method.domain_net[:-1](images)
    expected = method.net(images) + method.from_domain(features)
    torch.testing.assert_close(method.predict(images), expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epsilon": -1}, "epsilon must be"),
        ({"clip": -1}, "clip must"),
        ({"share": 2}, "share must"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        create("crossgrad", small_cnn(), DOMAINS, options)
