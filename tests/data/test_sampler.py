"""Batches for torch's own loader."""

from itertools import pairwise

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bne
from bne.errors import SettingsError

DOMAINS = torch.tensor([0] * 10 + [1] * 25 + [2] * 7)[torch.randperm(42).argsort()]


def loader(sampler: bne.DomainBatchSampler) -> DataLoader[tuple[torch.Tensor]]:
    data = TensorDataset(torch.arange(len(DOMAINS)), DOMAINS)
    return DataLoader(data, batch_sampler=sampler)


def epoch(sampler: bne.DomainBatchSampler, number: int, skip: int = 0) -> list[list[int]]:
    sampler.set_epoch(number, skip)
    return [images.tolist() for images, _ in loader(sampler)]


def test_every_batch_has_as_many_of_each_domain_and_an_epoch_all_of_the_largest() -> None:
    sampler = bne.DomainBatchSampler(DOMAINS, 5)
    batches = list(loader(sampler))
    assert len(batches) == len(sampler) == len(loader(sampler)) == 5
    for images, domains in batches:
        assert torch.equal(domains, DOMAINS[images])
        assert domains.bincount().tolist() == [5, 5, 5]
    largest = torch.cat([images[domains == 1] for images, domains in batches])
    assert sorted(largest.tolist()) == (DOMAINS == 1).nonzero().flatten().tolist()


def test_epochs_differ_and_follow_from_the_seed_alone() -> None:
    sampler = bne.DomainBatchSampler(DOMAINS, 5, seed=1)
    epochs = [epoch(sampler, number) for number in range(4)]
    assert all(one != other for one, other in pairwise(epochs))
    again = bne.DomainBatchSampler([f"d{d}" for d in DOMAINS.tolist()], 5, seed=1)
    assert epoch(again, 2) != epochs[2]  # the names of domains count, as in DomainBatches
    assert epoch(bne.DomainBatchSampler(DOMAINS.tolist(), 5, seed=1), 2) == epochs[2]


def test_resumes_in_the_middle_of_an_epoch() -> None:
    whole = epoch(bne.DomainBatchSampler(DOMAINS, 5), 3)
    resumed = bne.DomainBatchSampler(DOMAINS, 5)
    assert epoch(resumed, 3, skip=2) == whole[2:]
    assert len(resumed) == 3


def test_processes_share_each_domain() -> None:
    whole = bne.DomainBatchSampler(DOMAINS, 4, domains_per_step=2)
    parts = [
        bne.DomainBatchSampler(DOMAINS, 4, domains_per_step=2, rank=rank, world_size=2)
        for rank in range(2)
    ]
    for all_, *some in zip(epoch(whole, 1), *(epoch(part, 1) for part in parts), strict=True):
        assert sorted(all_) == sorted(n for part in some for n in part)
        for part in some:
            assert sorted(DOMAINS[part].bincount().tolist())[-2:] == [2, 2]


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(SettingsError, match="choose a multiple of 2"):
        bne.DomainBatchSampler(DOMAINS, 3, rank=0, world_size=2)
    with pytest.raises(SettingsError, match="no domain"):
        bne.DomainBatchSampler([], 3)
