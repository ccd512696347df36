from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from bne.data.augment import Augmentation, Strength
from bne.data.batches import DomainBatches
from bne.data.cache import PreparedImages
from bne.data.feed import AHEAD, Feed, ahead, fits
from bne.data.images import ImageFile, ImageSet
from bne.data.mixing import AmplitudeMixing, mix_amplitudes
from bne.data.transform import normalise
from bne.models.registry import Preprocessing
from tests.devices import needs_gpu

SETS = {"art": range(10), "photo": range(10, 30)}
CROPS = Augmentation("paper", Preprocessing(4), seed=3)
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.fixture
def prepared() -> PreparedImages:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (30, 6, 6, 3), dtype=torch.uint8, generator=generator)
    files = tuple(ImageFile(str(i), i % 7, i // 10, bytes, "") for i in range(30))
    return PreparedImages(ImageSet(("a", "b", "c"), tuple("0123456"), files), pixels, Path())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_an_epoch_is_the_planned_images_augmented(
    prepared: PreparedImages, device: str, resident: bool
) -> None:
    batches = DomainBatches(SETS, 3, epoch=2 * AHEAD + 3)
    feed = Feed(prepared, device, resident=resident)
    for epoch in range(2):
        got = list(feed.epoch(batches, CROPS))
        assert [batch.step for batch in got] == [
            epoch * (2 * AHEAD + 3) + step for step in range(2 * AHEAD + 3)
        ]
        for batch in got:
            numbers = batches.batch(batch.step)
            expected = CROPS(prepared.pixels[numbers].permute(0, 3, 1, 2), batch.step)
            assert batch.images.device.type == device
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            torch.testing.assert_close(batch.images.cpu(), expected)
            assert batch.labels.tolist() == [int(n) % 7 for n in numbers]
            assert batch.domains.tolist() == [0, 0, 0, 1, 1, 1]


def test_two_processes_together_have_the_batches_of_one(prepared: PreparedImages) -> None:
    feed = Feed(prepared, "cpu")
    whole = DomainBatches(SETS, 4, epoch=3)
    shares = [DomainBatches(SETS, 4, epoch=3, rank=rank, world_size=2) for rank in (0, 1)]
    parts = [list(feed.epoch(share, CROPS)) for share in shares]
    for batch, *both in zip(feed.epoch(whole, CROPS), *parts, strict=True):
        for share, part in zip(shares, both, strict=True):
            assert torch.equal(part.images, batch.images[share.positions])
            assert torch.equal(part.labels, batch.labels[share.positions])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_the_state_counts_what_was_handed_out_not_what_was_made_ahead(
    prepared: PreparedImages, device: str, resident: bool
) -> None:
    feed = Feed(prepared, device, resident=resident)
    whole = DomainBatches(SETS, 3, epoch=20)
    expected = [batch.images for batch in feed.epoch(whole, CROPS)]
    first = DomainBatches(SETS, 3, epoch=20)
    for batch in feed.epoch(first, CROPS):
        if batch.step == 6:
            break
    assert first.step == 7
    second = DomainBatches(SETS, 3, epoch=20)
    second.step = first.step
    rest = [batch.images for batch in feed.epoch(second, CROPS)]
    assert len(rest) == 13
    assert all(map(torch.equal, rest, expected[7:]))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_all_in_order_for_evaluation(prepared: PreparedImages, device: str, resident: bool) -> None:
    feed = Feed(prepared, device, resident=resident)
    images, labels = zip(*feed.gather(torch.arange(30).split(8)), strict=True)
    assert [len(part) for part in images] == [8, 8, 8, 6]
    assert torch.equal(torch.cat(images).permute(0, 2, 3, 1).cpu(), prepared.pixels)
    assert torch.equal(torch.cat(labels).cpu(), prepared.labels)


def test_a_reader_that_fails_is_heard(prepared: PreparedImages) -> None:
    feed = Feed(prepared, "cpu", resident=False)
    with pytest.raises(IndexError):
        list(feed.gather([torch.tensor([99])]))


def test_without_a_stream_an_item_is_made_when_asked_for() -> None:
    made = []
    items = ahead(_noting(made, 3), None)
    assert made == []
    assert next(items) == 0
    assert made == [0]
    assert list(items) == [1, 2]


class _Stream:
    """Notes what it is told to wait for."""

    device = torch.device("cuda")

    def __init__(self, note: Callable[[str], None], waits: str) -> None:
        self.wait_stream = lambda other: note(waits)


def test_with_a_stream_one_item_is_made_ahead_and_no_step_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[object] = []
    main = _Stream(log.append, "the step waits for what is made")
    side = _Stream(log.append, "making waits for the step")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: main)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    for item in ahead(_noting(log, 3), side):  # type: ignore[arg-type]
        log.append(f"step {item}")
    wait, hold = "the step waits for what is made", "making waits for the step"
    assert log == [
        *(hold, 0),
        *(wait, hold, 1, "step 0"),
        *(wait, hold, 2, "step 1"),
        *(wait, hold, "step 2"),
    ]


@needs_gpu
@pytest.mark.parametrize("slow", ["making", "step"])
def test_streams_wait_for_each_other(slow: str) -> None:
    """A value read before it is written, or overwritten before it is read, would show."""

    def make() -> Iterator[torch.Tensor]:
        for i in range(20):
            if slow == "making":
                torch.cuda._sleep(5_000_000)
            yield torch.full((100_000,), i, device="cuda")

    seen = []
    for item in ahead(make(), torch.cuda.Stream()):
        if slow == "step":
            torch.cuda._sleep(5_000_000)
        seen.append(item.clone())
    for i, item in enumerate(seen):
        assert (item == i).all()


@needs_gpu
def test_on_a_gpu_a_batch_is_made_before_any_is_asked_for(
    prepared: PreparedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    batches = Feed._batches
    monkeypatch.setattr(Feed, "_batches", lambda *given: made.append(given) or batches(*given))
    Feed(prepared, "cuda", resident=True)
    assert len(made) == 1


def _noting(made: list[object], count: int) -> Iterator[int]:
    for i in range(count):
        made.append(i)
        yield i


def test_fits_is_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.zeros(100, dtype=torch.uint8)
    for free, expected in ((200, True), (199, False)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 10**6))
        assert fits(pixels, torch.device("cuda")) is expected
    assert fits(pixels, torch.device("cpu"))
    assert not fits(pixels, torch.device("mps"))


def test_on_the_cpu_nothing_is_copied(prepared: PreparedImages) -> None:
    feed = Feed(prepared, "cpu")
    assert feed.resident
    assert feed._images.data_ptr() == prepared.pixels.data_ptr()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("strength", ["paper", "strong"])
def test_amplitudes_are_mixed_across_processes_before_normalization(
    prepared: PreparedImages, device: str, strength: Strength, resident: bool
) -> None:
    feed, known = Feed(prepared, device, resident=resident), Preprocessing(4)
    plain = Augmentation(strength, Preprocessing(4, (0.0,) * 3, (1.0,) * 3), seed=3)
    mixing = AmplitudeMixing("other domain", 0.5, seed=3)
    mixed = Augmentation(strength, known, seed=3, mixing=mixing)
    whole = DomainBatches(SETS, 4, epoch=3)
    shares = [DomainBatches(SETS, 4, epoch=3, rank=rank, world_size=2) for rank in (0, 1)]
    parts = [list(feed.epoch(share, mixed)) for share in shares]
    untouched = list(feed.epoch(DomainBatches(SETS, 4, epoch=3), plain))
    for batch, before, *both in zip(feed.epoch(whole, mixed), untouched, *parts, strict=True):
        plan = mixing.plan(batch.step, whole.positions, before.domains.cpu())
        expected = normalise(mix_amplitudes(before.images, plan), known)
        torch.testing.assert_close(batch.images, expected)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch.labels, before.labels)
        assert torch.equal(batch.domains, before.domains)
        for share, part in zip(shares, both, strict=True):
            torch.testing.assert_close(part.images, batch.images[share.positions])
            assert torch.equal(part.labels, batch.labels[share.positions])
            assert torch.equal(part.domains, batch.domains[share.positions])
