from itertools import product
from pathlib import Path

import pytest

from bne.data.images import ImageFile, ImageSet
from bne.data.sources import open_images
from bne.recipes.checks import held_out, notes
from bne.recipes.files import load
from tests.data.small import names, write

DOMAINS = "art_painting cartoon photo sketch"
SMALL = {"backbone": "small_cnn", "weights": None, "resize": 32, "target": ["sketch"]}


def found(root: Path, split_file: Path | None = None, **overrides: object) -> list[str]:
    return list(notes(load("default", {**SMALL, **overrides}), open_images(root), split_file))


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
    assert found(tmp_path) == []
    write(tmp_path, *names("art sketch", "elk fox", 10))
    assert found(tmp_path) == [
        "cartoon has no images of elk and fox to train on; others have.",
        "photo has no images of elk and fox to train on; others have.",
    ]
    # Neither has, so none is taught.
    assert found(tmp_path, sources=["cartoon", "photo"]) == []


def test_a_class_that_a_target_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog elk", 10), *names("infograph", "cat elk", 9))
    write(tmp_path, *names("sketch", "cat", 2))
    assert found(tmp_path, target=["infograph", "sketch"]) == [
        "infograph, a target, has no images of dog; its accuracy is that on the other classes.",
        "sketch, a target, has no images of dog and elk; its accuracy is that on the other "
        "classes.",
    ]


def test_an_official_split_that_is_not_followed_is_named(tmp_path: Path) -> None:
    table = split_table(tmp_path)
    (note,) = found(tmp_path, table, validation=0.1)
    assert note.startswith(f"{table} is an official split, which validation=0.1 does not follow")
    assert "--set validation=official" in note
    assert found(tmp_path, table, validation="official") == []
    assert found(tmp_path, table, validation="auto") == []


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
    recipe = load(
        "default", {**SMALL, "target": ["0"], "per_domain": 4, "validation": 0.2, **changes}
    )
    said = list(notes(recipe, ImageSet(domains, ("cat", "dog"), files), None))
    assert len(said) == (passes is not None)
    assert passes is None or passes in said[0]
    assert passes is None or recipe.method == "dnet" or "options.nearest" in said[0]


def test_what_is_held_out_is_said_in_numbers(tmp_path: Path) -> None:
    table = split_table(tmp_path)
    images = open_images(tmp_path)

    def said(split_file: Path | None, **overrides: object) -> str:
        return held_out(load("default", {**SMALL, **overrides}), images, split_file)

    start = "Held out for validation:"
    by_table = f"{start} 24 of 60 source images, by the official split {table}."
    assert said(table) == by_table
    assert said(table, validation="official") == by_table
    assert said(None) == f"{start} 6 of 60 source images, 10 % of every class."
    assert said(table, validation=0.3) == f"{start} 18 of 60 source images, 30 % of every class."
    assert said(None, validation=0) == f"{start} 0 of 60 source images, 0 % of every class."
