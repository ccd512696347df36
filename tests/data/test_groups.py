"""Images that belong together, against scikit-learn's splits by group."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GroupShuffleSplit, StratifiedGroupKFold

from bne.data.images import ImageFile, ImageSet
from bne.data.sources import open_images
from bne.data.splits import check_apart, check_rows, groups_of, hold_out, official
from bne.errors import DataError, SettingsError


def patients(sizes: list[list[int]], domain: str = "a") -> ImageSet:
    """Images of one domain, `sizes[patient][class]` of each kind, named after their patient."""
    files = [
        ImageFile(f"{domain}/{label}/patient{p:03}_{i}.png", label, 0, bytes, "")
        for p, by_class in enumerate(sizes)
        for label, count in enumerate(by_class)
        for i in range(count)
    ]
    return ImageSet((domain,), tuple(map(str, range(len(sizes[0])))), tuple(files))


def many(seed: int, count: int = 60, classes: int = 3) -> ImageSet:
    """Patients of very different sizes, each mostly of one class."""
    generator = np.random.default_rng(seed)
    sizes = generator.poisson(1, (count, classes))
    sizes[np.arange(count), generator.integers(classes, size=count)] += generator.integers(
        1, 12, count
    )
    return patients(sizes.tolist())


def shares(images: ImageSet, chosen) -> np.ndarray:
    """The part of each class that is held out."""
    labels = np.array(images.labels)
    held = np.bincount(labels[list(chosen)], minlength=len(images.classes))
    return held / np.bincount(labels)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_whole_groups_are_held_out_as_evenly_as_scikit_learn_does(
    fraction: float, seed: int
) -> None:
    images = many(seed)
    groups = np.array(groups_of(images, r"patient(\d+)"))
    split = hold_out(images, ["a"], fraction, seed, tuple(groups))["a"]
    assert sorted(split.train + split.validation) == list(range(len(images)))
    assert not set(groups[list(split.train)]) & set(groups[list(split.validation)])
    ours = np.abs(shares(images, split.validation) - fraction).max()
    labels, empty = images.labels, np.zeros(len(images))
    folds = StratifiedGroupKFold(round(1 / fraction), shuffle=True, random_state=seed)
    stratified = [
        np.abs(shares(images, test) - fraction).max()
        for _, test in folds.split(empty, labels, groups)
    ]
    shuffled = [
        np.abs(shares(images, test) - fraction).max()
        for _, test in GroupShuffleSplit(10, test_size=fraction, random_state=seed).split(
            empty, labels, groups
        )
    ]
    assert ours <= np.mean(stratified) + 0.01
    assert ours <= np.mean(shuffled)


def test_the_seed_decides_and_not_the_order_of_files() -> None:
    images = many(0)
    groups = groups_of(images, r"patient(\d+)")
    held = hold_out(images, ["a"], 0.2, 1, groups)["a"].validation
    assert held != hold_out(images, ["a"], 0.2, 2, groups)["a"].validation
    backwards = images.select(range(len(images) - 1, -1, -1))
    again = hold_out(backwards, ["a"], 0.2, 1, groups[::-1])["a"].validation
    names = {images.files[i].name for i in held}
    assert {backwards.files[i].name for i in again} == names


def test_every_class_keeps_images_to_train_on_and_something_is_held_out() -> None:
    images = patients([[10, 0], [10, 0], [10, 0], [0, 8]])  # one patient has the second class
    groups = groups_of(images, r"patient(\d+)")
    for seed in range(5):
        split = hold_out(images, ["a"], 0.1, seed, groups)["a"]
        counts = Counter(images.files[i].label for i in split.validation)
        assert counts == {0: 10}  # one patient, though that is more than a tenth
    alone = patients([[10, 10]])
    with pytest.raises(DataError, match="all its images are of the group p"):
        hold_out(alone, ["a"], 0.1, 0, ("p",) * 20)


def table(root: Path, rows: list[str]) -> Path:
    file = root / "images.csv"
    file.write_text("\n".join(["path,class,domain,group", *rows]))
    return file


def test_a_column_names_groups_which_are_the_same_in_all_domains(tmp_path: Path) -> None:
    rows = [
        f"{domain}{p}_{i}.png,{name},{domain},p{p}"
        for domain in "ab"
        for p in range(20)
        for name in ("cat", "dog")
        for i in range(3)
    ]
    images = open_images(
        table(tmp_path, [r.replace(".png", f"{n}.png") for n, r in enumerate(rows)])
    )
    groups = groups_of(images)
    assert set(groups) == {f"p{p}" for p in range(20)}
    splits = hold_out(images, ["b", "a"], 0.2, 0, groups)
    assert list(splits) == ["b", "a"]
    train, held = (
        {groups[i] for split in splits.values() for i in getattr(split, part)}
        for part in ("train", "validation")
    )
    assert not train & held
    assert len(held) == 4
    with pytest.raises(SettingsError, match="the table has a column group"):
        groups_of(images, "(.)")
    with pytest.raises(DataError, match=r"The group p0 is on both sides of the split, with a/cat"):
        check_apart(groups, images, images.indices_of(["a"]), images.indices_of(["b"]))


def test_a_row_without_a_group_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 3: 'group' is empty"):
        open_images(table(tmp_path, ["0.png,cat,a,p1", "1.png,cat,a,"]))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("case(.)", "'case(.)' matches no file name, not that of a/0/patient000_0.png"),
        ("patient00(0)", "matches 4 of 8 file names, not that of a/0/patient001_0.png"),
        ("patient", "puts all images of a into one group"),
        (".*", "puts every image into a group of its own"),
        ("patient(", "is no regular expression"),
    ],
)
def test_a_pattern_that_tells_no_groups_apart_is_refused(pattern: str, message: str) -> None:
    images = patients([[2, 2], [2, 2]])
    # A name that both classes have is not enough to make two images one.
    named = [
        replace(f, name=f.name.replace(".png", f"{n}.png")) for n, f in enumerate(images.files)
    ]
    images = replace(images, files=tuple(named)) if pattern == ".*" else images
    with pytest.raises(SettingsError, match=re.escape(message)) as caught:
        groups_of(images, pattern)
    assert "\n" not in str(caught.value)


def test_patterns_count_within_a_domain() -> None:
    one, other = patients([[2, 2], [2, 2]], "a"), patients([[2, 2], [2, 2]], "b")
    moved = tuple(replace(file, domain=1) for file in other.files)
    images = ImageSet(("a", "b"), one.classes, (*one.files, *moved))
    assert set(groups_of(images, r"patient(\d+)")) == {"a/000", "a/001", "b/000", "b/001"}
    assert set(groups_of(images, r"pat(i)ent(\d+)")) >= {"a/i/000"}
    assert groups_of(images) == ()


def test_a_split_file_that_parts_a_group_is_refused(tmp_path: Path) -> None:
    images = patients([[2, 2], [2, 2]])
    file = tmp_path / "split.csv"

    def split_by(held_out: str) -> None:
        lines = [
            f"{f.name.replace('/', ',', 1)},{'crossval' if held_out in f.name else 'train'}"
            for f in images.files
        ]
        file.write_text("\n".join(["domain,file,split", *lines]))

    groups = groups_of(images, r"patient(\d+)")
    split_by("patient001")
    assert len(official(images, ["a"], file, groups)["a"].validation) == 4
    split_by("_1.png")
    message = r"split\.csv, lines 2 and 3: the group a/000 is on both sides of the split"
    with pytest.raises(DataError, match=message):
        official(images, ["a"], file, groups)
    assert len(official(images, ["a"], file)["a"].validation) == 4


def test_a_split_file_with_unknown_images_is_refused_by_line(tmp_path: Path) -> None:
    images = patients([[2, 2], [2, 2]])
    file = tmp_path / "split.csv"
    rows = [f"{f.name.replace('/', ',', 1)},train" for f in images.files]
    # Of a domain that is not there nothing is asked: a subset of the domains is enough.
    file.write_text("\n".join(["domain,file,split", "elsewhere,0/x.png,train", *rows]))
    check_rows(images, file)
    file.write_text("\n".join(["domain,file,split", *rows, "a,0/lost.png,train"]))
    message = rf"split\.csv, line {len(rows) + 2}: there is no image a/0/lost\.png; mend the table"
    with pytest.raises(DataError, match=message):
        check_rows(images, file)
