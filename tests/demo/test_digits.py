import io
import pickle
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from bne.data.cache import PreparedImages
from bne.data.feed import Feed
from bne.demo import digits
from bne.errors import MissingLibraryError, SettingsError


@pytest.fixture(scope="module")
def whole() -> PreparedImages:
    return digits.load()


def of_domain(prepared: PreparedImages, domain: str) -> Tensor:
    """(N, 3, S, S) in [0, 1]."""
    pixels = prepared.pixels[prepared.images.indices_of([domain])]
    return pixels.permute(0, 3, 1, 2) / 255


def numbers(prepared: PreparedImages) -> list[int]:
    """Which of scikit-learn's digits the images show."""
    return [int(file.name.split("/")[2].removesuffix(".png")) for file in prepared.images.files]


def test_every_digit_is_shown_once_with_its_own_class(whole: PreparedImages) -> None:
    shown, truth = numbers(whole), load_digits().target
    assert sorted(shown) == list(range(len(truth)))
    assert whole.images.labels == [truth[number] for number in shown]
    for file in whole.images.files:
        domain, label, _ = file.name.split("/")
        assert domain == whole.images.domains[file.domain]
        assert label == whole.images.classes[file.label]


@pytest.mark.parametrize("per_domain", [None, 200, 73])
def test_classes_are_balanced_in_every_domain(per_domain: int | None) -> None:
    images = digits.load(per_domain=per_domain).images
    sizes = Counter(images.domain_ids)
    assert set(sizes.values()) <= ({449, 450} if per_domain is None else {per_domain})
    counts = Counter(zip(images.domain_ids, images.labels, strict=True))
    assert len(counts) == 40
    for (domain, _), count in counts.items():
        assert abs(count - sizes[domain] / 10) <= 2  # scikit-learn has 174 to 183 of each


def test_pixels_are_ready_to_be_fed(whole: PreparedImages) -> None:
    assert whole.pixels.dtype == torch.uint8
    assert whole.pixels.shape == (len(whole.images), digits.SIZE, digits.SIZE, 3)
    assert whole.pixels.is_contiguous()
    ((images, labels),) = Feed(whole, "cpu").gather([torch.tensor([3, 900])])
    assert images.shape == (2, 3, digits.SIZE, digits.SIZE)
    assert labels.tolist() == [whole.images.labels[3], whole.images.labels[900]]


def test_files_read_as_the_pixels_and_share_no_memory_with_them() -> None:
    """Torch moves a tensor's memory when it sends it to another process."""
    prepared = digits.load(per_domain=100)
    expected = prepared.pixels.clone()
    prepared.pixels.zero_()
    for index in (0, 150, len(prepared) - 1):
        file = pickle.loads(pickle.dumps(prepared.images.files[index]))
        with Image.open(io.BytesIO(file.read())) as picture:
            assert picture.format == "PNG"
            assert np.array_equal(np.asarray(picture), expected[index].numpy())


def test_the_seed_alone_decides(whole: PreparedImages) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again = digits.load()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(again.pixels, whole.pixels)
    stamps = [(file.name, file.stamp) for file in whole.images.files]
    assert [(file.name, file.stamp) for file in again.images.files] == stamps
    other = digits.load(seed=1)
    assert numbers(other) != numbers(whole)
    assert not {file.stamp for file in other.images.files} & {stamp for _, stamp in stamps}


def test_a_smaller_set_is_part_of_the_whole(whole: PreparedImages) -> None:
    stamps = {file.name: file.stamp for file in whole.images.files}
    small = digits.load(per_domain=50)
    assert len(small) == len(small.pixels) == 200
    assert all(stamps[file.name] == file.stamp for file in small.images.files)


def test_domains_differ_in_their_channel_statistics(whole: PreparedImages) -> None:
    """Domains lie further apart, in mean and deviation, than random halves of one domain do."""
    generator = torch.Generator().manual_seed(0)
    places, halves = [], []
    for domain in whole.images.domains:
        images = of_domain(whole, domain)
        places.append(statistics(images))
        one, two = images[torch.randperm(len(images), generator=generator)].chunk(2)
        halves.append((statistics(one) - statistics(two)).norm())
    apart = torch.pdist(torch.stack(places))
    assert apart.min() > 0.2
    assert apart.min() > 5 * max(halves)


def statistics(images: Tensor) -> Tensor:
    """(6,), the mean and the deviation of each channel."""
    return torch.cat([images.mean((0, 2, 3)), images.std((0, 2, 3))])


def test_images_show_the_digits_they_are_named_after(whole: PreparedImages) -> None:
    """Small again and untouched but for a tilt, an inked digit is like its original."""
    inked = 1 - of_domain(whole, "ink").mean(1)
    start = digits.SIZE // 8
    cropped = inked[:, None, start:-start, start:-start]
    small = torch.nn.functional.interpolate(cropped, size=8, mode="area").flatten(1)
    shown, count = numbers(whole), len(small)
    originals = load_digits().data[[shown[i] for i in whole.images.indices_of(["ink"])]]
    likeness = np.corrcoef(small.numpy(), originals)[:count, count:]
    assert (likeness.argmax(1) == np.arange(count)).mean() > 0.5


@pytest.mark.parametrize("per_domain", [0, -1, 450])
def test_impossible_sizes_are_refused(per_domain: int) -> None:
    with pytest.raises(SettingsError, match=f"per_domain is {per_domain}; choose from 1 to 449"):
        digits.load(per_domain=per_domain)


def test_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingLibraryError, match=r"scikit-learn.*pip install 'bne\[demo\]'"):
        digits.load()
