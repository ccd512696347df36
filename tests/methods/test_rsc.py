import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import RSC
from bne.methods.places import at_input
from tests.networks import DOMAINS, randomise_norms, small_cnn


def defined(model, x, labels, share, images, *, spatial):
    """The mask by its definition, image by image, with the gradient found by autograd."""

    def answers(features):
        return model[-1](features.mean((2, 3)))

    count = len(x)
    x = x.clone().requires_grad_()
    logits = answers(x)
    (gradient,) = torch.autograd.grad(logits[torch.arange(count), labels].sum(), x)
    mask = torch.ones_like(x)
    for n in range(count):
        weights = gradient[n].mean((1, 2))
        if spatial:
            scores = sum(weights[c] * x[n, c] for c in range(x.shape[1])).flatten()
            for place in scores.argsort(descending=True)[: math.ceil(share * scores.numel())]:
                mask[n, :, place // x.shape[3], place % x.shape[3]] = 0
        else:
            mask[n, weights.argsort(descending=True)[: math.ceil(share * len(weights))]] = 0
    before, after = (
        each.softmax(1)[torch.arange(count), labels] for each in (logits, answers(x * mask))
    )
    change = before - after
    most = set(change.argsort(descending=True)[: math.ceil(images * count)].tolist())
    for n in range(count):
        if n not in most or change[n] <= 1e-4:
            mask[n] = 1
    return mask.detach()


@pytest.mark.parametrize("spatial", [0.0, 1.0])
@pytest.mark.parametrize(("muted", "images"), [(1 / 3, 1 / 3), (0.5, 1.0), (0.0, 1.0)])
def test_the_mask_is_its_definition(spatial, muted, images) -> None:
    model = small_cnn().double()
    nn.init.normal_(model[-1].weight)
    method = RSC(model, DOMAINS, muted=muted, images=images, spatial=spatial)
    x, labels = torch.randn(9, 8, 5, 5, dtype=torch.double).relu(), torch.randint(4, (9,))
    expected = defined(model, x, labels, muted, images, spatial=bool(spatial))
    torch.testing.assert_close(method.mask(x, labels), expected, rtol=0, atol=0)
    assert (expected == 0).any() == bool(muted)


def test_the_loss_is_that_of_the_masked_map(batch) -> None:
    images, labels, _ = batch
    model = randomise_norms(small_cnn())
    method = RSC(model, DOMAINS).train()
    torch.manual_seed(3)
    loss = method(*batch)
    torch.manual_seed(3)
    x = model[:6](images)
    logits = model[6:](x * method.mask(x, labels))
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))
    assert not torch.equal(loss, F.cross_entropy(model(images), labels))
    seen = []
    with at_input(model, "6", seen.append), torch.no_grad():
        method.eval().predict(images)
    torch.testing.assert_close(model.eval()[:6](images), seen[0])  # nothing is muted in use


def test_channels_and_places_both_come_up() -> None:
    method = RSC(small_cnn(), DOMAINS, images=1.0)
    x, labels = torch.rand(4, 8, 5, 5), torch.arange(4)
    kinds = {bool((method.mask(x, labels).mean((2, 3)) % 1 == 0).all()) for _ in range(20)}
    assert kinds == {True, False}


def test_where_the_classifier_sees_no_mean_of_a_map_its_inputs_are_muted(batch) -> None:
    model = nn.Sequential(small_cnn()[:-1], nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 4))
    method = RSC(model, DOMAINS, muted=0.5, images=1.0).train()
    features = torch.rand(9, 10)
    mask = method.mask(features, batch[1])
    weights = model[-1].weight[batch[1]]
    muted = mask == 0
    assert muted.sum(1).unique().tolist() in ([5], [0, 5])
    for own, row in zip(muted, weights, strict=True):
        if own.any():
            assert row[own].min() > row[~own].max()
    method(*batch).backward()


@pytest.mark.parametrize(
    "last",
    [
        (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()),  # as in MobileNetV4
        (nn.Flatten(), nn.BatchNorm1d(8)),
    ],
)
def test_layers_between_pooling_and_classifier_take_the_gradient_from_the_map(batch, last) -> None:
    images, labels, _ = batch
    model = nn.Sequential(*small_cnn()[:7], *last, nn.Linear(8, 4))
    method = RSC(model, DOMAINS, muted=0.5, images=1.0).train()
    features = model[:-1](images)
    logits = model[-1](features * method.mask(features, labels))
    torch.testing.assert_close(method(*batch), F.cross_entropy(logits, labels))


@pytest.mark.parametrize("option", ["muted", "images", "spatial"])
def test_what_is_no_share_is_refused(option) -> None:
    with pytest.raises(ValueError, match=f"{option} must be a share"):
        RSC(small_cnn(), DOMAINS, **{option: 1.5})
