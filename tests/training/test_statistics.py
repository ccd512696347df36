"""Exact statistics against one giant batch, and against a plain loop."""

import copy
from contextlib import nullcontext

import torch

from bne.core.norm import domain_layers
from bne.data.batches import draw
from bne.methods import create
from bne.training.runtime import recompute
from tests.networks import small_cnn

MEMBERS = {"art": range(9), "photo": range(9, 14), "sketch": range(14, 23)}
CPU = torch.device("cpu")


def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(23, 3, 12, 12, generator=generator)
    return images + torch.arange(23).view(-1, 1, 1, 1) / 10


def recomputed(method, members, per_domain, images=None, seed=0):
    images = pictures() if images is None else images
    method = copy.deepcopy(method)
    look = lambda batches: (images[numbers] for numbers in batches)  # noqa: E731
    recompute(method, list(draw(members, per_domain, seed)), look, CPU, nullcontext)
    return method


def giant_batch(method, members):
    """The method after one batch of everything, whose statistics replace the running ones."""
    method = copy.deepcopy(method).train()
    for layer in method.modules():
        if hasattr(layer, "momentum"):
            layer.momentum = 1.0
    numbers = [n for images in members.values() for n in images]
    ids = [i for i, images in enumerate(members.values()) for _ in images]
    method.observe(pictures()[numbers], torch.tensor(ids))
    return method


def statistics(method) -> dict[str, torch.Tensor]:
    return {k: v for k, v in method.state_dict().items() if "running" in k}


def test_every_image_counts_once_and_every_batch_is_balanced() -> None:
    batches = list(draw(MEMBERS, per_domain=2, seed=0))
    counted = torch.cat([batch.numbers[batch.counts] for batch in batches])
    assert sorted(counted.tolist()) == list(range(23))
    for batch in batches:
        assert batch.domains.tolist() == [0, 0, 1, 1, 2, 2]
    fewer = draw(MEMBERS, per_domain=2, seed=0, steps=3)
    assert sum(int(batch.counts.sum()) for batch in fewer) == 2 * 3 * 3 - 1


def test_the_order_of_the_files_does_not_matter() -> None:
    """Files are sorted by class, and what a later layer sees depends on a batch's classes."""
    images = torch.randn(120, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images[:40] *= 5
    images[40:80, 1] += 6
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1)).tolist()
    torch.manual_seed(0)
    method = create("bne", small_cnn(), ["all"])

    def last_layer(members, seed):
        *_, layer = domain_layers(recomputed(method, {"all": members}, 8, images, seed))
        return torch.cat([layer.running_mean[0], layer.running_var[0].sqrt()])

    shuffles = [last_layer(order, seed) for seed in range(2, 8)]
    spread = max(float((a - b).norm()) for a in shuffles for b in shuffles)
    assert (last_layer(range(120), 0) - shuffles[0]).norm() <= 1.5 * spread


def test_one_batch_of_everything_gives_its_own_statistics() -> None:
    even = {"art": range(9), "sketch": range(14, 23)}
    for name in ("deepall", "bne"):
        torch.manual_seed(0)
        method = create(name, small_cnn(), list(even))
        expected = statistics(giant_batch(method, even))
        torch.testing.assert_close(statistics(recomputed(method, even, per_domain=9)), expected)


def test_batches_are_pooled_exactly_where_their_cut_changes_no_input() -> None:
    """The first layer's input is the same in any batch."""
    torch.manual_seed(0)
    bne = create("bne", small_cnn(), list(MEMBERS))
    first = next(domain_layers(recomputed(bne, MEMBERS, per_domain=2)))
    expected = next(domain_layers(giant_batch(bne, MEMBERS)))
    torch.testing.assert_close(first.running_mean, expected.running_mean)
    torch.testing.assert_close(first.running_var, expected.running_var)

    deepall = create("deepall", small_cnn(), list(MEMBERS))
    layer = recomputed(deepall, MEMBERS, per_domain=2).net[1]
    inputs = deepall.net[0](pictures()).detach().double().transpose(0, 1).flatten(2)
    domains = [inputs[:, list(images)].flatten(1) for images in MEMBERS.values()]
    mean = torch.stack([x.mean(1) for x in domains]).mean(0)  # domains count alike, as in training
    second = torch.stack([x.square().mean(1) for x in domains]).mean(0)
    count = sum(x.shape[1] for x in domains)
    torch.testing.assert_close(layer.running_mean, mean.float())
    variance = (second - mean.square()) * count / (count - 1)
    torch.testing.assert_close(layer.running_var, variance.float())


def test_frozen_layers_weights_and_modes_stay() -> None:
    torch.manual_seed(0)
    frozen = create("freeze-bn", small_cnn(), list(MEMBERS)).eval()
    after = recomputed(frozen, MEMBERS, per_domain=2)
    torch.testing.assert_close(dict(after.state_dict()), dict(frozen.state_dict()), rtol=0, atol=0)
    assert not after.training

    method = create("bne", small_cnn(), list(MEMBERS)).eval()
    after = recomputed(method, MEMBERS, per_domain=2)
    for key, value in method.named_parameters():
        assert torch.equal(dict(after.named_parameters())[key], value)
    tracked = [k for k in method.state_dict() if "num_batches" in k]
    assert tracked
    assert all(torch.equal(after.state_dict()[k], method.state_dict()[k]) for k in tracked)
    assert not any(m._forward_pre_hooks for m in after.modules())
