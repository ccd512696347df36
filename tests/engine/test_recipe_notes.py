from pathlib import Path

from bne.data.sources import open_images
from bne.engine.recipe_files import load
from bne.engine.recipe_notes import notes
from tests.data.small import names, write

SMALL = {"backbone": "small_cnn", "weights": None, "resize": 32, "target": ["sketch"]}


def found(root: Path, split_file: Path | None = None, **overrides: object) -> list[str]:
    return list(notes(load("default", {**SMALL, **overrides}), open_images(root), split_file))


def test_a_class_that_a_source_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path, *names("art cartoon photo", "cat dog", 10), *names("sketch", "cat", 2))
    assert found(tmp_path) == []  # what the target lacks is no matter
    write(tmp_path, *names("art", "elk fox", 10))
    assert found(tmp_path) == [
        "cartoon has no images of elk, fox to train on; others have.",
        "photo has no images of elk, fox to train on; others have.",
    ]
    assert found(tmp_path, sources=["cartoon", "photo"]) == []  # neither has, so none is taught


def test_an_official_split_that_is_not_followed_is_named(tmp_path: Path) -> None:
    domains = "art_painting cartoon photo sketch"
    write(tmp_path, *names(domains, "cat dog", 10))
    parts = (f"{name.replace('/', ',', 1)},train" for name in names(domains, "cat dog", 10))
    table = tmp_path / "split.csv"
    table.write_text("\n".join(["domain,file,split", *parts]))
    (note,) = found(tmp_path, table)
    assert note.startswith(f"{table} is an official split, which validation=0.1 does not follow")
    assert "--set validation=official" in note
    assert found(tmp_path, table, validation="official") == []
