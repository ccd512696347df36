import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from bne.data.datasets import as_picture
from bne.data.images import decode
from bne.data.sources import open_images
from bne.errors import DataError
from tests.data.small import pixels

PICTURES = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


class Items(Dataset[object]):
    def __init__(self, items: list[object], **attributes: object) -> None:
        self.items = items
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        return self.items[index]


def test_torch_dataset_with_named_labels_and_domains() -> None:
    tensors = torch.from_numpy(PICTURES).permute(0, 3, 1, 2)
    labels, domains = torch.tensor([2, 0, 0, 2]), [1, 1, 0, 0]
    dataset = Items(
        list(zip(tensors, labels, domains, strict=True)),
        classes=["cat", "cow", "dog"],
        domains=["photo", "art"],
    )
    images = open_images(dataset)
    assert images.classes == ("cat", "cow", "dog")
    assert images.domains == ("photo", "art")
    assert images.labels == [2, 0, 0, 2]
    assert images.domain_ids == [1, 1, 0, 0]
    found = [f.name for f in images.files]
    assert found == ["art/dog/0", "art/cat/1", "photo/cat/2", "photo/dog/3"]
    for file, expected in zip(images.files, PICTURES, strict=True):
        read = pickle.loads(pickle.dumps(file.read))
        assert (pixels(decode(read(), file.name)) == expected).all()


def test_stamp_follows_the_pixels() -> None:
    first = open_images(Items([(PICTURES[0], 0, 0), (PICTURES[1], 0, 0)])).files
    second = open_images(Items([(PICTURES[0], 0, 0), (PICTURES[2], 0, 0)])).files
    assert first[0].stamp == second[0].stamp
    assert first[1].stamp != second[1].stamp


def test_labels_without_names_and_names_as_labels() -> None:
    items = [(PICTURES[0], 7, "sea"), (PICTURES[1], 3, "land"), (PICTURES[2], 7, "sea")]
    images = open_images(Items(items))
    assert (images.classes, images.labels) == (("3", "7"), [1, 0, 1])
    assert (images.domains, images.domain_ids) == (("land", "sea"), [1, 0, 1])


def test_hugging_face_dataset() -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "domain": datasets.Value("string"),
            "more": datasets.Value("int64"),
        }
    )
    columns = {
        "image": [Image.fromarray(picture) for picture in PICTURES],
        "label": [1, 0, 1, 0],
        "domain": ["b", "a", "a", "b"],
        "more": [0, 0, 0, 0],
    }
    dataset = datasets.Dataset.from_dict(columns, features=features)
    images = open_images(dataset)
    assert (images.classes, images.labels) == (("cat", "dog"), [1, 0, 1, 0])
    assert (images.domains, images.domain_ids) == (("a", "b"), [1, 0, 0, 1])
    assert len({file.stamp for file in images.files}) == 4
    for file, expected in zip(images.files, PICTURES, strict=True):
        assert (pixels(decode(file.read(), file.name)) == expected).all()
    with pytest.raises(DataError, match="needs the columns image, label and domain; found image"):
        open_images(dataset.remove_columns("domain"))
    with pytest.raises(DataError, match=r"type DatasetDict; give .* one split of a Hugging Face"):
        open_images(datasets.DatasetDict({"train": dataset}))
    with pytest.raises(DataError, match="type IterableDataset"):
        open_images(dataset.to_iterable_dataset())


@pytest.mark.parametrize(
    "image",
    [
        PICTURES[0],
        Image.fromarray(PICTURES[0]),
        torch.from_numpy(PICTURES[0]).permute(2, 0, 1),
        torch.from_numpy(PICTURES[0]).permute(2, 0, 1) / 255,
        (torch.from_numpy(PICTURES[0]).permute(2, 0, 1) / 255).double().requires_grad_(),
        np.concatenate([PICTURES[0], np.full((6, 5, 1), 255, np.uint8)], axis=2),
    ],
)
def test_every_kind_of_image_gives_the_same_picture(image: object) -> None:
    assert (pixels(as_picture(image, "x")) == PICTURES[0]).all()


@pytest.mark.parametrize("image", [PICTURES[0, :, :, 0], PICTURES[0, :, :, :1]])
def test_grey_arrays(image: np.ndarray) -> None:
    assert (pixels(as_picture(image, "x")) == PICTURES[0, :, :, :1]).all()
    assert (pixels(as_picture(torch.from_numpy(image).movedim(-1, 0), "x")).shape[2]) == 3


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "holds no images"),
        ([(PICTURES[0], 0)], r"Item 0 of the dataset is not \(image, label, domain\)"),
        ([(PICTURES[0], 0.5, 0)], "Every label of the dataset must be a number or a name"),
        ([(PICTURES[0], 0, 0), (PICTURES[0], 0, "a")], "Every domain of the dataset must be"),
        ([(torch.randn(3, 4, 4) * 9, 0, 0)], "item 0: float pixels outside 0..1"),
        ([(torch.full((3, 4, 4), torch.nan), 0, 0)], "item 0: float pixels outside 0..1"),
        ([(torch.zeros(3, 4, 4).int(), 0, 0)], "item 0: an image of type int32"),
        ([("photo.png", 0, 0)], "item 0: an image of type str"),
        ([(torch.zeros(2, 4, 4), 0, 0)], r"item 0: the shape \(4, 4, 2\)"),
    ],
)
def test_bad_datasets_are_refused(items: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_images(Items(items))


def test_a_label_beyond_the_names_is_refused() -> None:
    with pytest.raises(DataError, match=r"A label of the dataset has no name: 0\.\.1 have one"):
        open_images(Items([(PICTURES[0], 2, 0)], classes=["cat", "dog"]))


def test_a_stream_is_refused() -> None:
    class Stream(IterableDataset[object]):
        def __iter__(self) -> Iterator[object]:
            return iter([])

    with pytest.raises(DataError, match="an object of type Stream"):
        open_images(Stream())


class Pictures(Dataset):
    """Of files, opened lazily, as datasets do."""

    def __init__(self, *paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return Image.open(self.paths[index]), 0, index % 2


def test_exif_rotation_of_pictures(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    Image.new("RGB", (8, 4)).save(tmp_path / "turned.jpg", exif=exif)
    images = open_images(Pictures(tmp_path / "turned.jpg"))
    assert decode(images.files[0].read(), "turned").size == (4, 8)


def test_unreadable_items_are_named(tmp_path) -> None:
    whole, cut = tmp_path / "whole.png", tmp_path / "cut.png"
    Image.effect_noise((32, 32), 50).save(whole)
    cut.write_bytes(whole.read_bytes()[:-200])
    images = open_images(Pictures(whole, cut))
    assert decode(images.files[0].read(), "whole").size == (32, 32)
    with pytest.raises(DataError, match="item 1: cannot be read"):
        images.files[1].read()
    cut.unlink()
    with pytest.raises(DataError, match="Item 1 of the dataset cannot be read"):
        open_images(Pictures(whole, cut))


class Alone(Items):
    """Of items of which only one may be asked for at a time, as with one open file for all."""

    busy = False

    def __getitem__(self, index: int) -> object:
        assert not self.busy
        self.busy = True
        time.sleep(0.002)
        self.busy = False
        return self.items[index]


def test_a_dataset_need_not_know_of_threads() -> None:
    images = open_images(Alone([(picture, 0, 0) for picture in PICTURES]))
    with ThreadPoolExecutor(4) as threads:
        read = list(threads.map(lambda file: file.read(), images.files * 4))
    assert read == [file.read() for file in images.files] * 4


def test_stamp_follows_the_shape() -> None:
    flat, tall = np.zeros((4, 8, 3), np.uint8), np.zeros((8, 4, 3), np.uint8)
    stamps = {open_images([(image, 0, 0)]).files[0].stamp for image in (flat, tall)}
    assert len(stamps) == 2
