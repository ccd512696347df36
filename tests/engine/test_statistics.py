"""Exact statistics against one giant batch, and against a plain loop."""

import copy
from contextlib import nullcontext

import torch

from bne.engine.statistics import plan, recompute
from bne.methods import create
from bne.surgery import domain_layers
from tests.networks import small_cnn

MEMBERS = {"art": range(9), "photo": range(9, 14), "sketch": range(14, 23)}
CPU = torch.device("cpu")


def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(23, 3, 12, 12, generator=generator)
    return images + torch.arange(23).view(-1, 1, 1, 1) / 10


def recomputed(method, members, size):
    images = pictures()
    method = copy.deepcopy(method)
    look = lambda batches: (images[numbers] for numbers in batches)  # noqa: E731
    recompute(method, members, look, CPU, nullcontext, size)
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
    batches = list(plan(MEMBERS, size=6))
    counted = torch.cat([batch.numbers[batch.counts] for batch in batches])
    assert sorted(counted.tolist()) == list(range(23))
    for batch in batches:
        assert batch.domains.tolist() == [0, 0, 1, 1, 2, 2]


def test_one_batch_of_everything_gives_its_own_statistics() -> None:
    even = {"art": range(9), "sketch": range(14, 23)}
    for name in ("deepall", "bne"):
        torch.manual_seed(0)
        method = create(name, small_cnn(), list(even))
        expected = statistics(giant_batch(method, even))
        actual = statistics(recomputed(method, even, size=100))
        assert expected.keys() == actual.keys()
        for key, value in expected.items():
            torch.testing.assert_close(actual[key], value, msg=key)


def test_batches_are_pooled_exactly_where_their_cut_changes_no_input() -> None:
    """The first layer's input is the same in any batch."""
    torch.manual_seed(0)
    bne = create("bne", small_cnn(), list(MEMBERS))
    first = next(domain_layers(recomputed(bne, MEMBERS, size=7)))
    expected = next(domain_layers(giant_batch(bne, MEMBERS)))
    torch.testing.assert_close(first.running_mean, expected.running_mean)
    torch.testing.assert_close(first.running_var, expected.running_var)

    deepall = create("deepall", small_cnn(), list(MEMBERS))
    layer = recomputed(deepall, MEMBERS, size=7).net[1]
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
    after = recomputed(frozen, MEMBERS, size=7)
    for key, value in frozen.state_dict().items():
        assert torch.equal(after.state_dict()[key], value)
    assert not after.training

    method = create("bne", small_cnn(), list(MEMBERS)).eval()
    after = recomputed(method, MEMBERS, size=7)
    for key, value in method.named_parameters():
        assert torch.equal(dict(after.named_parameters())[key], value)
    tracked = [k for k in method.state_dict() if "num_batches" in k]
    assert tracked
    assert all(torch.equal(after.state_dict()[k], method.state_dict()[k]) for k in tracked)
    assert not any(m._forward_pre_hooks for m in after.modules())
