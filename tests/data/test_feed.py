from pathlib import Path

import pytest
import torch

from bne.data.batches import DomainBatches
from bne.data.feed import AHEAD, Feed, fits
from bne.data.images import ImageFile, ImageSet
from bne.data.prepared import PreparedImages

SETS = {"art": range(10), "photo": range(10, 30)}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]


@pytest.fixture
def prepared() -> PreparedImages:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (30, 6, 6, 3), dtype=torch.uint8, generator=generator)
    files = tuple(ImageFile(str(i), i % 7, i // 10, bytes, "") for i in range(30))
    return PreparedImages(ImageSet(("a", "b", "c"), tuple("0123456"), files), pixels, Path())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("resident", [True, False])
def test_an_epoch_is_the_planned_images(
    prepared: PreparedImages, device: str, resident: bool
) -> None:
    batches = DomainBatches(SETS, 3, epoch=2 * AHEAD + 3)
    feed = Feed(prepared, device, resident=resident)
    for epoch in range(2):
        got = list(feed.epoch(batches))
        assert [batch.step for batch in got] == [
            epoch * (2 * AHEAD + 3) + step for step in range(2 * AHEAD + 3)
        ]
        for batch in got:
            numbers = batches.batch(batch.step)
            assert batch.images.device.type == device
            assert batch.images.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(batch.images.cpu(), prepared.pixels[numbers].permute(0, 3, 1, 2))
            assert batch.labels.tolist() == [int(n) % 7 for n in numbers]
            assert batch.domains.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("resident", [True, False])
def test_the_state_counts_what_was_handed_out_not_what_was_read_ahead(
    prepared: PreparedImages, resident: bool
) -> None:
    feed = Feed(prepared, "cpu", resident=resident)
    whole = DomainBatches(SETS, 3, epoch=20)
    expected = [batch.images for batch in feed.epoch(whole)]
    first = DomainBatches(SETS, 3, epoch=20)
    for batch in feed.epoch(first):
        if batch.step == 6:
            break
    assert first.step == 7
    second = DomainBatches(SETS, 3, epoch=20)
    second.load_state_dict(first.state_dict())
    rest = [batch.images for batch in feed.epoch(second)]
    assert len(rest) == 13
    assert all(map(torch.equal, rest, expected[7:]))


@pytest.mark.parametrize("resident", [True, False])
def test_all_in_order_for_evaluation(prepared: PreparedImages, resident: bool) -> None:
    feed = Feed(prepared, "cpu", resident=resident)
    images, labels = zip(*feed.gather(torch.arange(30).split(8)), strict=True)
    assert [len(part) for part in images] == [8, 8, 8, 6]
    assert torch.equal(torch.cat(images).permute(0, 2, 3, 1), prepared.pixels)
    assert torch.equal(torch.cat(labels), prepared.labels)


def test_a_reader_that_fails_is_heard(prepared: PreparedImages) -> None:
    feed = Feed(prepared, "cpu", resident=False)
    with pytest.raises(IndexError):
        list(feed.gather([torch.tensor([99])]))


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
    assert feed._pixels.data_ptr() == prepared.pixels.data_ptr()
