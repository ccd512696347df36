"""Two processes against one, on the same global batch."""

from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import bne
from bne.core.norm import domain_layers
from tests.networks import DOMAINS, randomise_norms, small_cnn

IDS = [0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 0, 2]  # the second half has one of domain 1, three of domain 0
TRAININGS = ["warm-up", "compiled warm-up", "distance", "several passes"]


def ensemble(before=True):
    """Synchronised before the conversion, or by it."""
    torch.manual_seed(0)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(small_cnn()) if before else small_cnn()
    net = bne.convert(model, DOMAINS, synchronised=None if before else True)
    return randomise_norms(net).double().train()


def batch():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(len(IDS), 3, 12, 12, dtype=torch.double, generator=generator)
    return images, torch.randint(4, (len(IDS),), generator=generator), torch.tensor(IDS)


def step(model, training, half=slice(None)):
    images, labels, domains = batch()
    loss = 0
    for n in range(2 if training == "several passes" else 1):  # before one backward
        own_branch = "warm-up" in training
        logits = model(images[half] * (n + 1), domains[half], own_branch=own_branch)
        loss += F.cross_entropy(logits, labels[half])
    if training == "several passes":
        with (  # the same draw for an image wherever it is
            mock.patch("bne.core.points.another", lambda own, count: (own + 1) % count),
            mock.patch("torch.rand", lambda size, device: torch.full(size, 0.7)),
        ):
            logits = model(images[half], domains[half], max_lean=0.5)
        loss += F.cross_entropy(logits, labels[half].repeat(2))
    loss.backward()


def state(net):
    gradients = {f"{name}.grad": p.grad for name, p in net.named_parameters()}
    return {name: value.clone() for name, value in {**net.state_dict(), **gradients}.items()}


def work(rank, folder):
    """All that two processes do here: starting them takes longer than any of it."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    done = {training: trained(rank, training) for training in TRAININGS}
    done |= {"unequal": unequal(rank), "own statistics": own_statistics(rank)}
    done |= {"measured": measured(slice(6 * rank, 6 * rank + 6))}
    torch.save(done, folder / f"{rank}.pt")
    dist.destroy_process_group()


def trained(rank, training):
    net = ensemble(before=training != "distance")
    compiled = training == "compiled warm-up"
    forward = torch.compile(net, fullgraph=True, backend="aot_eager") if compiled else net
    model = DistributedDataParallel(forward)
    for _ in range(2):
        net.zero_grad()
        step(model, training, slice(6 * rank, 6 * rank + 6))
    return state(net)


def unequal(rank):
    layer = bne.DomainBatchNorm(2, 1, momentum=1.0)
    layer.synchronised = True
    ids = torch.zeros(3, dtype=torch.long)
    layer.by_domain(maps(rank), ids, torch.ones(3, dtype=torch.bool))
    broken = maps(rank)
    broken[:rank, 1] = torch.nan  # in one process, and tracked in none
    layer.by_domain(broken, ids, torch.ones(3, dtype=torch.bool))
    return layer.state_dict()


def maps(rank):
    """Large maps in one process, small ones in the other."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(3, 2, *((8, 8), (2, 2))[rank], generator=generator) + 5 * rank


def own_statistics(rank):
    half, own = slice(6 * rank, 6 * rank + 6), bne.convert(small_cnn(), DOMAINS, synchronised=False)
    step(own.double().train(), "warm-up", half)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(bne.convert(small_cnn(), DOMAINS)).double()
    with pytest.raises(RuntimeError, match="synchronised=True"):
        step(net.train(), "warm-up", half)
    assert net.eval()(batch()[0]).isfinite().all()
    return own.state_dict()


def measured(half=slice(None)):
    net, (images, _, domains) = ensemble(), batch()
    bne.recompute_statistics(
        net, [(images[half], domains[half]), (2 * images[half], domains[half])]
    )
    return net.state_dict()


@pytest.fixture(scope="module")
def done(made_once):
    """What each of the two processes did, by its name."""
    folder = made_once(
        "core-processes", lambda folder: torch.multiprocessing.spawn(work, (folder,), nprocs=2)
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("training", TRAININGS)
def test_two_processes_equal_one(done, training):
    alone = ensemble()
    for _ in range(2):
        alone.zero_grad()
        step(alone, training)
    for actual in done:
        for name, value in state(alone).items():
            found = actual[training][name]
            torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-9, msg=name)


def test_images_of_all_processes_are_measured(done):
    for name, value in measured().items():
        for actual in done:
            torch.testing.assert_close(actual["measured"][name], value, msg=name)


def test_every_value_weighs_the_same(done):
    values = torch.cat([maps(rank).transpose(0, 1).flatten(1) for rank in range(2)], dim=1)
    for state in (actual["unequal"] for actual in done):
        assert state["num_batches_tracked"].tolist() == [1]
        torch.testing.assert_close(state["running_mean"][0], values.mean(1))
        torch.testing.assert_close(state["running_var"][0], values.var(1, correction=0))


def test_several_processes_train_only_if_it_is_said_whose_statistics_count(done):
    one, other = (actual["own statistics"]["model.1.running_mean"] for actual in done)
    assert not torch.equal(one, other)


def test_a_lone_process_needs_no_process_group():
    synchronised, plain = ensemble(), ensemble()
    for layer in domain_layers(plain):
        layer.synchronised = False
    for net in (synchronised, plain):
        step(net, "warm-up")
    for one, other in zip(state(synchronised).values(), state(plain).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
