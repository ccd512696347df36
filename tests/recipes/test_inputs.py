import csv
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bne.data.images import ImageFile, ImageSet
from bne.data.sources import open_images
from bne.errors import BneError, DataError, SettingsError
from bne.models.networks import small_cnn
from bne.recipes.checks import check_weights
from bne.recipes.files import load
from bne.recipes.inputs import Inputs, official_split
from tests.data.small import names, write

SMALL = {"backbone": "small_cnn", "weights": None, "resize": 32, "per_domain": 4}


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    """Ten images of each class in two domains, two in a third; not one can be decoded."""
    write(tmp_path, *names("art photo", "cat dog", 10), *names("sketch", "cat dog", 2))
    for path in tmp_path.glob("*/*/*"):
        path.write_bytes(b"no image")
    return open_images(tmp_path)


def check(
    images: ImageSet,
    split_file: Path | None = None,
    allow_gaps: bool = False,
    **overrides: object,
) -> Inputs:
    recipe = load("default", {**SMALL, "target": ["sketch"], **overrides})
    return Inputs.of(recipe, images, split_file, allow_gaps=allow_gaps)


def test_what_fits_the_data_passes_without_decoding_them(images: ImageSet) -> None:
    check(images, per_domain=18)
    check(images, target=["art"], sources=["photo"])
    check(images, validation=0.0, per_domain=20)


def test_a_class_that_only_the_target_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog", 10), *names("sketch", "cat elk", 2))
    with pytest.raises(DataError) as caught:
        check(open_images(tmp_path))
    assert "target sketch has the class 'elk', of which no source domain" in str(caught.value)
    with pytest.raises(DataError, match="'elk'"):
        check(open_images(tmp_path), allow_gaps=True)


def test_a_class_that_a_source_lacks_is_refused_unless_allowed(tmp_path: Path) -> None:
    write(tmp_path, *names("art", "cat dog elk", 10), *names("photo", "cat", 10))
    write(tmp_path, *names("quick", "cat elk", 10), *names("sketch", "cat dog", 2))
    images = open_images(tmp_path)
    with pytest.raises(DataError) as caught:
        check(images)
    assert str(caught.value) == (
        "photo has no images of dog, elk; quick has no images of dog to train on, though other "
        "source domains have; add some, or train with such gaps by allow_gaps=True (--allow-gaps)."
    )
    check(images, allow_gaps=True)
    check(images, target=["photo", "quick"], sources=["art"])  # what a target lacks is no matter


def test_a_class_that_a_source_has_only_to_validate_on_is_refused(tmp_path: Path) -> None:
    domains = "art_painting cartoon photo sketch"
    write(tmp_path, *names(domains, "cat dog", 10))
    table = tmp_path / "split.csv"
    lines = [
        f"{name.replace('/', ',', 1)},{'crossval' if name.startswith('photo/dog') else 'train'}"
        for name in names(domains, "cat dog", 10)
    ]
    table.write_text("\n".join(["domain,file,split", *lines]))
    images = open_images(tmp_path)
    with pytest.raises(DataError, match=r"^photo has no images of dog to train on, though"):
        check(images, table)
    check(images, table, validation=0.1)
    check(images, table, allow_gaps=True)


@pytest.mark.parametrize("target", ["art", "sketch"])
def test_a_single_domain_is_not_enough(tmp_path: Path, target: str) -> None:
    write(tmp_path, *names("art", "cat dog", 10))
    with pytest.raises(DataError, match="The data has one domain only, art; add at least one"):
        check(open_images(tmp_path), target=[target])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            {"target": ["skecth"]},
            "target has 'skecth', no domain of the data; the nearest is 'sketch'.",
        ),
        (
            {"target": ["zzz"]},
            "target has 'zzz', no domain of the data; there are art, photo, sketch.",
        ),
        ({"sources": ["arts"]}, "sources has 'arts', no domain of the data; the nearest is 'art'."),
        ({"target": ["art", "photo", "sketch"]}, "target holds out every domain"),
        ({"per_domain": 19}, "per_domain is 19, but art has 18 images to train on; choose a"),
        (
            {"target": ["art"], "validation": 0.3, "per_domain": 8},
            "per_domain is 8, but sketch has 2 images to train on",
        ),
        ({"target": ["art"]}, "sketch: 10% of its classes is not one image to validate on"),
        ({"validation": "official"}, "no official split lies with the data; set it to a share"),
    ],
)
def test_what_does_not_is_named(
    images: ImageSet, overrides: dict[str, object], expected: str
) -> None:
    with pytest.raises(BneError) as caught:
        check(images, **overrides)
    assert expected in str(caught.value)


def test_the_official_split_is_recognised_beside_the_data(tmp_path: Path) -> None:
    domains = "art_painting cartoon photo sketch"
    write(tmp_path, *names(domains, "cat dog", 3))
    images = open_images(tmp_path)
    assert official_split(images, tmp_path) is None
    parts = {"0": "train", "1": "train", "2": "crossval"}
    found = names(domains, "cat dog", 3)
    lines = [f"{name.replace('/', ',', 1)},{parts[name[-5]]}" for name in found]
    table = tmp_path / "split.csv"
    table.write_text("\n".join(["domain,file,split", *lines]))
    assert official_split(images, tmp_path) == table
    check(images, table, validation="official", per_domain=4)
    with pytest.raises(SettingsError, match="per_domain is 5, but art_painting has 4 images"):
        check(images, table, validation="official", per_domain=5)


def test_a_faulty_official_split_is_not_passed_over(tmp_path: Path) -> None:
    domains = "art_painting cartoon photo sketch"
    write(tmp_path, *names(domains, "cat dog", 5))
    images = open_images(tmp_path)
    table = tmp_path / "split.csv"
    lines = [f"{name.replace('/', ',', 1)},train" for name in names(domains, "cat dog", 5)]
    for content, message in {
        "\n".join(["domain,file,split", *lines[:10], *lines[20:]]): "10 images are not in it",
        "\n".join(["domain,file,split", *lines[:-11], *lines[-10:]]): "1 images are not in it",
        "a,b\n1,2": "split.csv.*or hold out a share with validation=0.1",
        "": "split.csv.*or hold out a share with validation=0.1",
    }.items():
        table.write_text(content)
        for validation in ("official", "auto"):
            with pytest.raises(DataError, match=message):
                check(images, official_split(images, tmp_path), validation=validation)
        check(images, official_split(images, tmp_path), validation=0.2)


def test_some_domains_of_a_benchmark_are_enough(tmp_path: Path) -> None:
    write(tmp_path, *names("cartoon photo", "cat dog", 5))
    table = tmp_path / "split.csv"
    lines = [
        f"{name.replace('/', ',', 1)},{'crossval' if name[-5] < '2' else 'train'}"
        for name in names("art_painting cartoon photo sketch", "cat dog", 5)
    ]
    table.write_text("\n".join(["domain,file,split", *lines]))
    images = open_images(tmp_path)
    assert official_split(images, tmp_path) == table
    check(images, table, target=["photo"], validation="official", per_domain=6)
    with pytest.raises(SettingsError, match="per_domain is 7, but cartoon has 6 images"):
        check(images, table, target=["photo"], per_domain=7)


def test_a_csv_beside_the_official_split_follows_it(tmp_path: Path) -> None:
    domains = "art_painting cartoon photo sketch"
    found = names(domains, "cat dog", 4)
    rows = [f"kfold/{name},{name.split('/')[1]},{name.split('/')[0]}" for name in found]
    (tmp_path / "images.csv").write_text("\n".join(["path,class,domain", *rows]))
    lines = [f"{n.replace('/', ',', 1)},{'crossval' if n[-5] < '2' else 'train'}" for n in found]
    (tmp_path / "split.csv").write_text("\n".join(["domain,file,split", *lines]))
    images = open_images(tmp_path / "images.csv")
    table = official_split(images, tmp_path / "images.csv")
    check(images, table, per_domain=4)
    with pytest.raises(SettingsError, match="has 4 images to train on"):
        check(images, table, per_domain=5)


def test_a_domain_without_images_is_refused(images: ImageSet) -> None:
    for domain, message in {
        "sketch": "^The target 'sketch' has no images; hold out another.$",
        "art": "^art has no images to train on; leave it out of sources.$",
    }.items():
        others = images.indices_of([name for name in images.domains if name != domain])
        with pytest.raises(DataError, match=message):
            check(images.select(others), allow_gaps=True)


def test_a_split_beside_other_data_is_not_taken_for_official(
    images: ImageSet, tmp_path: Path
) -> None:
    (tmp_path / "split.csv").write_text("domain,file,split\n")
    assert official_split(images, tmp_path) is None


def test_pacs_and_its_split(shared: Path) -> None:
    images = open_images(shared / "data" / "pacs")
    table = official_split(images, shared / "data" / "pacs")
    recipe = load("pacs-resnet18", {"target": ["sketch"], "weights": None})
    inputs = Inputs.of(recipe, images, table)
    with table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["domain"] != "sketch"]
    assert sum(map(len, inputs.validation.values())) == sum(r["split"] == "crossval" for r in rows)
    assert len(inputs.target["sketch"]) == 3929


def test_weights_are_tried_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "net.safetensors"
    save_file(small_cnn(num_classes=5).state_dict(), file)
    recipe = load("default", {**SMALL, "target": ["sketch"], "weights": str(file)})
    check_weights(recipe)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(SettingsError, match=r"weights: .* as weights: it is damaged"):
        check_weights(recipe)
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(SettingsError, match=r"weights: .* does not fit the network"):
        check_weights(recipe)

    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", offline)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    recipe = load("default", {"target": ["sketch"]})
    with pytest.raises(SettingsError, match="could not be had from torchvision"):
        check_weights(recipe)


DOMAINS = "art_painting cartoon photo sketch"


def notes(root: Path, split_file: Path | None = None, **overrides: object) -> list[str]:
    return list(check(open_images(root), split_file, allow_gaps=True, **overrides).notes())


def split_table(root: Path) -> Path:
    """Four of ten images of each class of PACS's domains validate."""
    write(root, *names(DOMAINS, "cat dog", 10))
    parts = (
        f"{name.replace('/', ',', 1)},{'crossval' if name[-5] < '4' else 'train'}"
        for name in names(DOMAINS, "cat dog", 10)
    )
    table = root / "split.csv"
    table.write_text("\n".join(["domain,file,split", *parts]))
    return table


def test_a_class_that_a_source_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *names("art cartoon photo", "cat dog", 10), *names("sketch", "cat dog", 2))
    assert notes(tmp_path) == []
    write(tmp_path, *names("art", "elk fox", 10))
    assert notes(tmp_path) == [
        "cartoon has no images of elk, fox to train on; others have.",
        "photo has no images of elk, fox to train on; others have.",
        "sketch, a target, has no images of elk, fox; its accuracy is that on the other classes.",
    ]
    # Neither has, so none is taught.
    assert notes(tmp_path, sources=["cartoon", "photo"]) == []


def test_a_class_that_a_target_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog elk", 10), *names("infograph", "cat elk", 9))
    write(tmp_path, *names("sketch", "cat", 2))
    assert notes(tmp_path, target=["infograph", "sketch"]) == [
        "infograph, a target, has no images of dog; its accuracy is that on the other classes.",
        "sketch, a target, has no images of dog, elk; its accuracy is that on the other classes.",
    ]


def test_an_official_split_that_is_not_followed_is_named(tmp_path: Path) -> None:
    table = split_table(tmp_path)
    (note,) = notes(tmp_path, table, validation=0.1)
    assert note.startswith(f"{table} is an official split, which validation=0.1 does not follow")
    assert "--set validation=official" in note
    assert notes(tmp_path, table, validation="official") == []
    assert notes(tmp_path, table, validation="auto") == []


def test_what_is_held_out_is_said_in_numbers(tmp_path: Path) -> None:
    table = split_table(tmp_path)
    images = open_images(tmp_path)

    def said(split_file: Path | None, **overrides: object) -> str:
        return check(images, split_file, **overrides).held_out()

    start = "Held out for validation:"
    by_table = f"{start} 24 of 60 source images, by the official split {table}."
    assert said(table) == by_table
    assert said(table, validation="official") == by_table
    assert said(None) == f"{start} 6 of 60 source images, 10 % of every class."
    assert said(table, validation=0.3) == f"{start} 18 of 60 source images, 30 % of every class."
    assert said(None, validation=0) == f"{start} 0 of 60 source images, 0 % of every class."


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, "1,600 images, 4 of each of 400 domains, in 641,600 image passes"),
        ({"options": {"nearest": 6}}, "in 11,200 image passes"),
        ({"options": {"nearest": 5}}, None),  # 9,600
        ({"options": {"clusters": 70}, "method": "bne-pseudo"}, "in 19,880 image passes"),
        ({"method": "bne-adapt"}, "4 of each of 401 domains, in 644,808 image passes"),
        ({"method": "dnet"}, "in 641,600 image passes; a smaller per_domain"),
        ({"method": "bne-a"}, None),
        ({"method": "deepall"}, None),
    ],
)
def test_what_many_domains_cost_is_said(changes: dict[str, object], passes: str | None) -> None:
    domains = tuple(map(str, range(401)))
    files = tuple(
        ImageFile(f"{domain}/{label}/{number}", label, domain, bytes, "")
        for domain, label, number in product(range(401), range(2), range(5))
    )
    images = ImageSet(domains, ("cat", "dog"), files)
    said = list(check(images, target=["0"], validation=0.2, **changes).notes())
    assert len(said) == (passes is not None)
    assert passes is None or passes in said[0]
    assert passes is None or changes.get("method") == "dnet" or "options.nearest" in said[0]
