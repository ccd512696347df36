import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne import models


def test_takes_the_images_it_says_and_gives_logits() -> None:
    model = models.build("small_cnn", num_classes=7)
    size = models.preprocessing(model).size
    assert model(torch.randn(4, 3, size, size)).shape == (4, 7)
    assert isinstance(model.fc, nn.Linear)


def test_every_convolution_is_normalised() -> None:
    kinds = [type(layer) for layer in models.build("small_cnn", num_classes=10)]
    convolutions = [place for place, kind in enumerate(kinds) if kind is nn.Conv2d]
    assert len(convolutions) == 4
    for place in convolutions:
        assert kinds[place + 1 : place + 3] == [nn.BatchNorm2d, nn.ReLU]


def test_every_batch_norm_layer_is_in_the_embedding() -> None:
    net = bne.convert(models.build("small_cnn", num_classes=10), ["a", "b", "c"]).eval()
    prediction = net(torch.randn(5, 3, 32, 32), details=True)
    assert prediction.branch_logits.shape == (5, 3, 10)
    assert list(prediction.embedding.layers) == ["bn1", "bn2", "bn3", "bn4"]


def test_learns() -> None:
    """Which corner of an image is bright: the mean over places alone would not tell."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(12)
    images = torch.randn(48, 3, 32, 32, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = 16 * (label // 2), 16 * (label % 2)
        image[:, top : top + 16, left : left + 16] += 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.build("small_cnn", num_classes=4)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()
    assert (model(images).argmax(1) == labels).float().mean() > 0.95
