import csv
from collections import Counter
from pathlib import Path

import pytest
import torch

from bne.data.batches import DomainBatches
from bne.errors import DataError, SettingsError

SETS = {"art": range(10), "photo": range(10, 35), "sketch": range(35, 42)}


def seen(batches: DomainBatches, steps: int) -> list[list[int]]:
    return [batches.batch(step).tolist() for step in range(steps)]


def test_a_batch_is_as_many_of_each_domain_in_domain_order() -> None:
    batches = DomainBatches(SETS, 4)
    for numbers in seen(batches, 20):
        assert [n in images for images in SETS.values() for n in numbers] == [
            place // 4 == domain for domain in range(3) for place in range(12)
        ]
    assert batches.domains(7).tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert batches.positions.tolist() == list(range(12))


@pytest.mark.parametrize("per_domain", [1, 4, 5, 16])
def test_every_domain_is_an_endless_series_of_shuffles(per_domain: int) -> None:
    batches = DomainBatches(SETS, per_domain)
    steps = seen(batches, 100)
    for place, images in enumerate(SETS.values()):
        start = place * per_domain
        series = [n for numbers in steps for n in numbers[start : start + per_domain]]
        rounds = [
            tuple(series[i : i + len(images)])
            for i in range(0, len(series) - len(images) + 1, len(images))
        ]
        assert all(sorted(one) == list(images) for one in rounds)
        assert len(set(rounds)) > 0.9 * len(rounds)  # few images have few orders


@pytest.mark.parametrize("per_domain", [1, 4, 5, 16])
def test_classes_are_drawn_equally_often_and_all_their_images_too(per_domain: int) -> None:
    labels = {n: 0 if n % 5 else 1 + n % 2 for n in [*SETS["art"], *SETS["photo"]]}
    batches = DomainBatches(SETS, per_domain, labels=labels)
    steps = seen(batches, 90)
    for place, images in enumerate(SETS.values()):
        start = place * per_domain
        series = [n for numbers in steps for n in numbers[start : start + per_domain]]
        by_class = Counter(labels.get(n) for n in images)  # those of sketch are one class
        for first in range(0, len(series) - len(by_class), len(by_class)):
            drawn = [labels.get(n) for n in series[first : first + len(by_class)]]
            assert sorted(drawn, key=str) == sorted(by_class, key=str)
        for label, size in by_class.items():
            own = [n for n in series if labels.get(n) == label]
            for first in range(0, len(own) - size, size):
                assert len(set(own[first : first + size])) == size
    again = DomainBatches(SETS, per_domain, labels=labels)
    assert again.batch(77).tolist() == steps[77]  # whatever was drawn before
    assert batches.steps_per_epoch == DomainBatches(SETS, per_domain).steps_per_epoch


MANY = {f"d{d}": range(10 * d, 10 * d + 10) for d in range(7)}


@pytest.mark.parametrize("some", [1, 2, 3, 7])
def test_some_domains_a_step_come_equally_often_and_all_their_images_too(some: int) -> None:
    batches = DomainBatches(MANY, 5, seed=2, domains_per_step=some)
    assert batches.steps_per_epoch == 14 // some
    drawn, images = Counter(), Counter()
    for step in range(200 * (7 // some)):
        numbers, domains = batches.batch(step), batches.domains(step)
        assert torch.equal(numbers // 10, domains)
        assert sorted(set(domains.tolist())) == domains[::5].tolist()  # each once, in order
        assert len(domains) == 5 * some
        drawn.update(domains[::5].tolist())
        images.update(numbers.tolist())
    assert drawn.total() == 200 * (7 // some) * some
    if 7 % some == 0:  # nobody sits out
        assert set(drawn.values()) == {200}
        assert set(images.values()) == {100}
    assert min(drawn.values()) > 140
    assert min(images.values()) > 60


def test_domains_of_a_step_depend_on_the_seed_and_the_step_alone() -> None:
    one, same, other = (DomainBatches(MANY, 5, seed=s, domains_per_step=3) for s in (4, 4, 5))
    later = [one.batch(step).tolist() for step in (9, 3)]
    assert [same.batch(step).tolist() for step in (9, 3)] == later
    assert any(not torch.equal(one.domains(s), other.domains(s)) for s in range(5))


def test_another_domain_changes_no_order() -> None:
    few = seen(DomainBatches({"photo": SETS["photo"]}, 4, seed=3), 9)
    many = seen(DomainBatches(SETS, 4, seed=3), 9)
    assert few == [numbers[4:8] for numbers in many]


def test_domains_of_equal_size_and_seeds_differ() -> None:
    sets = {"a": range(50), "b": range(50)}
    numbers = DomainBatches(sets, 50).batch(0).view(2, 50)
    assert not torch.equal(numbers[0], numbers[1])
    assert not torch.equal(numbers, DomainBatches(sets, 50, seed=1).batch(0).view(2, 50))


def test_no_global_random_state_is_touched_or_used() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = seen(DomainBatches(SETS, 4), 5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert seen(DomainBatches(SETS, 4), 5) == first


@pytest.mark.parametrize(("epoch", "steps"), [("largest", 6), ("smallest", 1), (9, 9)])
def test_the_length_of_an_epoch(epoch: str | int, steps: int) -> None:
    batches = DomainBatches(SETS, 4, epoch=epoch)  # type: ignore[arg-type]
    assert batches.steps_per_epoch == steps
    assert batches.rest_of_epoch() == range(steps)
    batches.step = steps
    assert batches.rest_of_epoch() == range(steps, 2 * steps)


def test_pacs_has_220_steps_an_epoch(shared: Path) -> None:
    with (shared / "data/pacs/split.csv").open() as table:
        sizes = Counter(row["domain"] for row in csv.DictReader(table) if row["split"] == "train")
    for target, steps in {"art_painting": 220, "cartoon": 220, "photo": 220, "sketch": 131}.items():
        sources = {name: range(size) for name, size in sizes.items() if name != target}
        assert DomainBatches(sources, 16).steps_per_epoch == steps


def test_resumes_in_the_middle_of_an_epoch() -> None:
    whole = seen(DomainBatches(SETS, 4, seed=5), 12)
    resumed = DomainBatches(SETS, 4, seed=5)
    resumed.step = 8
    assert resumed.rest_of_epoch() == range(8, 12)
    assert [resumed.batch(step).tolist() for step in resumed.rest_of_epoch()] == whole[8:]


@pytest.mark.parametrize("some", [None, 2])
@pytest.mark.parametrize("world_size", [2, 4])
def test_processes_together_hold_the_batch_of_one(world_size: int, some: int | None) -> None:
    whole = DomainBatches(SETS, 4, domains_per_step=some)
    shares = [
        DomainBatches(SETS, 4, rank=rank, world_size=world_size, domains_per_step=some)
        for rank in range(world_size)
    ]
    size = 4 * (some or 3)
    for step in range(10):
        together = torch.full((size,), -1)
        domains = torch.full((size,), -1)
        for share in shares:
            assert len(share.batch(step)) == size // world_size
            together[share.positions] = share.batch(step)
            domains[share.positions] = share.domains(step)
        assert torch.equal(together, whole.batch(step))
        assert torch.equal(domains, whole.domains(step))
    assert {share.steps_per_epoch for share in shares} == {whole.steps_per_epoch}


@pytest.mark.parametrize(
    ("sets", "options", "error", "message"),
    [
        (SETS, {"world_size": 3}, SettingsError, "choose a multiple of 3"),
        (SETS, {"rank": 2, "world_size": 2}, SettingsError, "rank=2 is none of world_size=2"),
        (SETS, {"epoch": "longest"}, SettingsError, "epoch="),
        (SETS, {"epoch": 0}, SettingsError, "epoch="),
        (SETS, {"domains_per_step": 4}, SettingsError, "choose 1 to 3"),
        (SETS, {"domains_per_step": 0}, SettingsError, "choose 1 to 3"),
        ({}, {}, SettingsError, "no domain"),
        ({**SETS, "empty": []}, {}, DataError, "'empty' has no images"),
    ],
)
def test_what_makes_no_sense_is_refused(sets, options, error, message: str) -> None:
    with pytest.raises(error, match=message):
        DomainBatches(sets, 4, **options)
