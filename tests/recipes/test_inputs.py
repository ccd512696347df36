import csv
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bne.data.images import ImageFile, ImageSet
from bne.data.sources import open_images
from bne.data.splits import official_split
from bne.errors import BneError, DataError, SettingsError
from bne.models.networks import small_cnn
from bne.recipes.checks import check_weights
from bne.recipes.files import load
from bne.recipes.inputs import Inputs
from tests.data.small import names, write

SMALL = {"backbone": "small_cnn", "weights": None, "resize": 32, "per_domain": 4}
PACS = "art_painting cartoon photo sketch"


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    """Ten images of each class in two domains, two in a third; not one can be decoded."""
    write(tmp_path, *names("art photo", "cat dog", 10), *names("sketch", "cat dog", 2))
    for path in tmp_path.glob("*/*/*"):
        path.write_bytes(b"no image")
    return open_images(tmp_path)


def check(
    images: ImageSet, split_file: Path | None = None, allow_gaps: bool = False, **overrides: object
) -> Inputs:
    recipe = load("default", {**SMALL, "target": ["sketch"], **overrides})
    return Inputs.of(recipe, images, split_file, allow_gaps=allow_gaps)


def split_table(root: Path, count: int, *held_out: str) -> Path:
    """The split of PACS's cats and dogs; those whose names hold one of the texts validate."""
    lines = ["domain,file,split"]
    for name in names(PACS, "cat dog", count):
        part = "crossval" if any(text in name for text in held_out) else "train"
        lines.append(f"{name.replace('/', ',', 1)},{part}")
    (root / "split.csv").write_text("\n".join(lines))
    return root / "split.csv"


def pacs(root: Path, count: int) -> ImageSet:
    return open_images(write(root, *names(PACS, "cat dog", count)))


def test_what_fits_the_data_passes_without_decoding_them(images: ImageSet) -> None:
    check(images, per_domain=18)
    check(images, target=["art"], sources=["photo"])
    check(images, validation=0.0, per_domain=20)


def test_a_target_is_never_trained_on(images: ImageSet) -> None:
    recipe = load("default", {**SMALL, "target": ["sketch"], "sources": ["art", "photo"]})
    with pytest.raises(SettingsError, match="photo is in target and in sources"):
        Inputs.of(replace(recipe, target=("photo",)), images)  # as plans put in their targets


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_a_class_that_only_the_target_has_is_refused(tmp_path: Path, allow_gaps: bool) -> None:
    write(tmp_path, *names("art photo", "cat dog", 10), *names("sketch", "cat elk", 2))
    with pytest.raises(DataError, match=r"^target sketch has the class 'elk'"):
        check(open_images(tmp_path), allow_gaps=allow_gaps)


@pytest.mark.parametrize("domain", ["art", "sketch"])
def test_a_class_with_one_image_is_refused_by_its_name(tmp_path: Path, domain: str) -> None:
    write(tmp_path, *names("art photo sketch", "cat dog", 10), f"{domain}/elk/lone.png")
    message = rf"^There is one image only of elk \({domain}/elk/lone\.png\); add images, or"
    with pytest.raises(DataError, match=message):
        check(open_images(tmp_path), allow_gaps=True)


def test_a_class_that_a_source_lacks_is_refused_unless_allowed(tmp_path: Path) -> None:
    write(tmp_path, *names("art", "cat dog elk", 10), *names("photo", "cat", 10))
    write(tmp_path, *names("quick", "cat elk", 10), *names("sketch", "cat dog", 2))
    images = open_images(tmp_path)
    with pytest.raises(DataError, match=r"^photo .* dog and elk; quick .* dog .*--allow-gaps"):
        check(images)
    check(images, allow_gaps=True)
    check(images, target=["photo", "quick"], sources=["art"])  # what a target lacks is no matter


def test_a_class_that_a_source_has_only_to_validate_on_is_refused(tmp_path: Path) -> None:
    images, table = pacs(tmp_path, 10), split_table(tmp_path, 10, "photo/dog")
    with pytest.raises(DataError, match=r"^photo has no images of dog to train on"):
        check(images, table)
    check(images, table, validation=0.1)
    check(images, table, allow_gaps=True)


@pytest.mark.parametrize("target", ["art", "sketch"])
def test_a_single_domain_is_not_enough(tmp_path: Path, target: str) -> None:
    write(tmp_path, *names("art", "cat dog", 10))
    with pytest.raises(DataError, match="one domain only, art"):
        check(open_images(tmp_path), target=[target])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"target": ["skecth"]}, "target has 'skecth', .* the nearest is 'sketch'"),
        ({"target": ["zzz"]}, "target has 'zzz', .* there are art, photo, sketch"),
        ({"sources": ["arts"]}, "sources has 'arts', .* the nearest is 'art'"),
        ({"target": ["art", "photo", "sketch"]}, "target holds out every domain"),
        ({"per_domain": 19}, "per_domain is 19, but art has 18 images"),
        ({"target": ["art"], "validation": 0.3, "per_domain": 8}, "is 8, but sketch has 2 images"),
        ({"target": ["art"]}, "sketch: 10% of its classes is not one image to validate on"),
        ({"validation": "official"}, "no official split lies with the data"),
    ],
)
def test_what_does_not_is_named(images: ImageSet, overrides: dict, expected: str) -> None:
    with pytest.raises(BneError, match=expected):
        check(images, **overrides)


def test_the_official_split_is_recognised_beside_the_data(tmp_path: Path) -> None:
    images = pacs(tmp_path, 3)
    assert official_split(tmp_path) is None
    table = split_table(tmp_path, 3, "2.png")
    assert official_split(tmp_path) == table
    check(images, table, validation="official", per_domain=4)
    with pytest.raises(SettingsError, match="per_domain is 5, but art_painting has 4 images"):
        check(images, table, validation="official", per_domain=5)


def test_a_faulty_official_split_is_not_passed_over(tmp_path: Path) -> None:
    images, table = pacs(tmp_path, 5), split_table(tmp_path, 5)
    head, *lines = table.read_text().splitlines()
    for content, message in {
        "\n".join([head, *lines[:10], *lines[20:]]): "lacks 10 images",
        "\n".join([head, *lines[:-11], *lines[-10:]]): "lacks 1 image,",
        "a,b\n1,2": "split.csv.*validation=0.1",
        "": "split.csv.*validation=0.1",
    }.items():
        table.write_text(content)
        for validation in ("official", "auto"):
            with pytest.raises(DataError, match=message):
                check(images, official_split(tmp_path), validation=validation)
        check(images, official_split(tmp_path), validation=0.2)


def test_some_domains_of_a_benchmark_are_enough(tmp_path: Path) -> None:
    images = open_images(write(tmp_path, *names("cartoon photo", "cat dog", 5)))
    table = split_table(tmp_path, 5, "0.png", "1.png")
    assert official_split(tmp_path) == table
    check(images, table, target=["photo"], validation="official", per_domain=6)
    with pytest.raises(SettingsError, match="per_domain is 7, but cartoon has 6 images"):
        check(images, table, target=["photo"], per_domain=7)


def test_a_csv_beside_the_official_split_follows_it(tmp_path: Path) -> None:
    places = [(name, *name.split("/")) for name in names(PACS, "cat dog", 4)]
    rows = [f"kfold/{name},{label},{domain}" for name, domain, label, _ in places]
    (tmp_path / "images.csv").write_text("\n".join(["path,class,domain", *rows]))
    split_table(tmp_path, 4, "0.png", "1.png")
    images = open_images(tmp_path / "images.csv")
    table = official_split(tmp_path / "images.csv")
    check(images, table, per_domain=4)
    with pytest.raises(SettingsError, match="has 4 images to train on"):
        check(images, table, per_domain=5)


@pytest.mark.parametrize(
    ("domain", "message"),
    [("sketch", "^The target 'sketch' has no images"), ("art", "^art has no images to train on")],
)
def test_a_domain_without_images_is_refused(images: ImageSet, domain: str, message: str) -> None:
    others = images.indices_of([name for name in images.domains if name != domain])
    with pytest.raises(DataError, match=message):
        check(images.select(others), allow_gaps=True)


def test_a_split_beside_other_data_is_followed_too(images: ImageSet, tmp_path: Path) -> None:
    held_out = {"art/cat/0.png", "photo/dog/3.png"}
    rows = [(f.name, "crossval" if f.name in held_out else "train") for f in images.files]
    lines = [f"{name.replace('/', ',', 1)},{part}" for name, part in rows]
    (tmp_path / "split.csv").write_text("\n".join(["domain,file,split", *lines]))
    inputs = check(images, official_split(tmp_path))
    found = {images.files[n].name for numbers in inputs.validation.values() for n in numbers}
    assert (inputs.recipe.validation, found) == ("official", held_out)
    assert official_split(tmp_path / "split.csv") is None  # which would be the images themselves


def test_pacs_and_its_split(shared: Path) -> None:
    images = open_images(shared / "data" / "pacs")
    table = official_split(shared / "data" / "pacs")
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
    with pytest.raises(SettingsError, match=r"weights: .* damaged"):
        check_weights(recipe)
    save_file({"other": torch.zeros(1)}, file)
    with pytest.raises(SettingsError, match=r"weights: .* does not fit"):
        check_weights(recipe)

    def offline(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", offline)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(SettingsError, match="could not be had from torchvision"):
        check_weights(load("default", {"target": ["sketch"]}))


def notes(root: Path, split_file: Path | None = None, **overrides: object) -> list[str]:
    return list(check(open_images(root), split_file, allow_gaps=True, **overrides).notes())


def test_a_class_that_a_source_or_target_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *names("art cartoon photo", "cat dog", 10), *names("sketch", "cat dog", 2))
    assert notes(tmp_path) == []
    write(tmp_path, *names("art", "elk fox", 10))
    write(tmp_path, *names("infograph", "cat elk", 9))
    said = notes(tmp_path, target=["infograph", "sketch"])
    lacking = {"cartoon": "elk and fox", "photo": "elk and fox"}
    lacking |= {"infograph, a target,": "dog and fox", "sketch, a target,": "elk and fox"}
    for note, (domain, classes) in zip(said, lacking.items(), strict=True):
        assert note.startswith(f"{domain} has no images of {classes}")
    # Neither has, so none is taught.
    assert notes(tmp_path, sources=["cartoon", "photo"]) == []


def test_an_official_split_that_is_not_followed_is_named(tmp_path: Path) -> None:
    pacs(tmp_path, 10)
    table = split_table(tmp_path, 10, "0.png")
    (note,) = notes(tmp_path, table, validation=0.1)
    assert note.startswith(f"{table} is an official split, which validation=0.1 does not follow")
    assert "--set validation=official" in note
    assert notes(tmp_path, table, validation="official") == []
    assert notes(tmp_path, table, validation="auto") == []


def test_what_is_held_out_is_said_in_numbers(tmp_path: Path) -> None:
    images, table = pacs(tmp_path, 10), split_table(tmp_path, 10, *(f"{k}.png" for k in range(4)))
    for split_file, overrides, held_out, how in (
        (table, {}, 24, f"by the official split {table}"),
        (table, {"validation": "official"}, 24, f"by the official split {table}"),
        (None, {}, 6, "10 % of every class"),
        (table, {"validation": 0.3}, 18, "30 % of every class"),
        (None, {"validation": 0}, 0, "0 % of every class"),
    ):
        said = check(images, split_file, **overrides).held_out()
        assert said.endswith(f" {held_out} of 60 source images, {how}.")


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
    files = tuple(
        ImageFile(f"{domain}/{label}/{number}", label, domain, bytes, "")
        for domain, label, number in product(range(401), range(2), range(5))
    )
    images = ImageSet(tuple(map(str, range(401))), ("cat", "dog"), files)
    said = list(check(images, target=["0"], validation=0.2, **changes).notes())
    assert len(said) == (passes is not None)
    if passes:
        assert passes in said[0]
        assert ("options.nearest" in said[0]) == (changes.get("method") != "dnet")


@pytest.mark.parametrize(
    ("weights", "told"), [("torchvision", ["Initial weights: torchvision states no"]), (None, [])]
)
def test_the_license_of_downloaded_weights_is_told(
    images: ImageSet, weights: str | None, told: list[str]
) -> None:
    size = {"backbone": "resnet18", "resize": 256, "validation": 0.2}
    said = list(check(images, weights=weights, **size).notes())
    assert [note[: len(start)] for note, start in zip(said, told, strict=True)] == told
