import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bne.data.images import ImageFile, ImageSet
from bne.data.sources import open_images
from bne.data.splits import check_rows, hold_out, official
from bne.errors import DataError, SettingsError


def image_set(counts: dict[str, list[int]]) -> ImageSet:
    """Images with `counts[domain][class]` of each kind, without contents."""
    files = [
        ImageFile(f"{domain}/{label}/{i}", label, number, bytes, "")
        for number, (domain, by_class) in enumerate(counts.items())
        for label, count in enumerate(by_class)
        for i in range(count)
    ]
    classes = tuple(map(str, range(max(map(len, counts.values())))))
    return ImageSet(tuple(counts), classes, tuple(files))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5).filter(lambda sizes: max(sizes) > 1),
    fraction=st.floats(0.3, 0.99),
    seed=st.integers(0, 2**40),
)
def test_every_image_is_in_one_part_and_every_class_in_train(
    sizes: list[int], fraction: float, seed: int
) -> None:
    images = image_set({"a": sizes, "target": [5] * len(sizes), "b": sizes[::-1]})
    splits = hold_out(images, ["a", "b"], fraction, seed)
    assert list(splits) == ["a", "b"]
    for source, split in splits.items():
        assert sorted(split.train + split.validation) == images.indices_of([source])
        train = Counter(images.files[i].label for i in split.train)
        held = Counter(images.files[i].label for i in split.validation)
        for label, size in enumerate(sizes if source == "a" else sizes[::-1]):
            assert held[label] == min(round(fraction * size), max(size - 1, 0))
            assert train[label] == size - held[label]


def test_a_tenth_of_every_class_by_default() -> None:
    images = image_set({"a": [100, 50, 10], "b": [20, 20, 20]})
    split = hold_out(images, ["a"])["a"]
    assert Counter(images.files[i].label for i in split.validation) == {0: 10, 1: 5, 2: 1}


def test_the_seed_decides_and_nothing_else() -> None:
    images = image_set({"a": [60, 60], "b": [60, 60]})
    names = {images.files[i].name for i in hold_out(images, ["a"], seed=3)["a"].validation}
    assert hold_out(images, ["a"], seed=3) == hold_out(images, ["a"], seed=3)
    assert hold_out(images, ["a"], seed=4) != hold_out(images, ["a"], seed=3)
    backwards = images.select(range(len(images) - 1, -1, -1))
    split = hold_out(backwards, ["b", "a"], seed=3)["a"]
    assert {backwards.files[i].name for i in split.validation} == names


def test_the_split_of_a_seed_never_changes() -> None:
    images = image_set({"a": [20]})
    assert hold_out(images, ["a"], 0.2, seed=0)["a"].validation == (4, 8, 10, 15)


@pytest.mark.parametrize("largest", range(2, 5))
def test_the_share_that_is_advised_will_do(largest: int) -> None:
    images = image_set({"a": [1, largest]})
    with pytest.raises(DataError) as caught:
        hold_out(images, ["a"])
    (share,) = re.findall(r"validation=(0\.\d+) for instance", str(caught.value))
    assert len(hold_out(images, ["a"], float(share))["a"].validation) == 1


def test_impossible_wishes_are_refused() -> None:
    images = image_set({"a": [4, 4], "b": [20, 20]})
    with pytest.raises(DataError, match=r"^a: 10% of its classes is not one image"):
        hold_out(images, ["b", "a"])
    with pytest.raises(DataError, match=r"; add images, or hold none out with validation=0\.$"):
        hold_out(image_set({"a": [1, 1]}), ["a"], 0.3)
    assert hold_out(images, ["a"], 0)["a"].validation == ()
    with pytest.raises(SettingsError, match=r"fraction is 1\.0; it must be"):
        hold_out(images, ["b"], 1.0)
    with pytest.raises(SettingsError, match="no domain 'c'"):
        hold_out(images, ["c"])
    with pytest.raises(SettingsError, match="no source domain to train on"):
        hold_out(images, [])


def table(path: Path, rows: str) -> Path:
    path.write_text("domain,file,split\n" + rows)
    return path


def test_official_split(tmp_path: Path) -> None:
    images = image_set({"a": [3], "b": [2]})
    rows = "a,0/0,train\na,0/1,crossval\na,0/2,train\nb,0/9,train\n"
    split = official(images, ["a"], table(tmp_path / "split.csv", rows))["a"]
    assert (split.train, split.validation) == ((0, 2), (1,))
    with pytest.raises(SettingsError, match="no domain 'c'"):
        official(images, ["c"], tmp_path / "split.csv")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("domain,file,split\na,0/0,train\n", ": lacks 1 image, the first a/0/1"),
        ("domain,file,split\na,0/0,crossval\na,0/1,crossval\n", ": no image of a is in train"),
        (
            "domain,file,split\na,0/0,test\n",
            ", line 2: the split 'test' is neither train nor crossval",
        ),
        ("domain,file,split\na,0/0,\n", ", line 2: 'split' is empty; fill it in"),
        ("domain,file\na,0/0\n", ": needs the columns domain, file, split; found domain, file"),
        (
            "domain,file,split\na,0/0,train\na,0/1,train\na,0/0,crossval\n",
            ", lines 2 and 4: a/0/0 is in train and in crossval",
        ),
    ],
)
def test_a_faulty_table_is_refused_with_a_way_out(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "split.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        official(image_set({"a": [2]}), ["a"], path)
    way_out = "; mend the table, or hold out a share with validation=0.1."
    assert str(caught.value) == f"{path}{problem}{way_out}"
    path.unlink()
    with pytest.raises(DataError, match=r"cannot be read .*; mend the table, or hold out"):
        official(image_set({"a": [2]}), ["a"], path)


def test_a_row_may_be_there_twice(tmp_path: Path) -> None:
    images = image_set({"a": [2]})
    rows = "a,0/0,train\na,0/1,crossval\na,0/0,train\n"
    split = official(images, ["a"], str(table(tmp_path / "split.csv", rows)))["a"]
    assert (split.train, split.validation) == ((0,), (1,))


def test_a_domain_without_training_images_is_refused(tmp_path: Path) -> None:
    images = image_set({"a": [2], "b": [1]})
    rows = "a,0/0,crossval\na,0/1,crossval\nb,0/0,train\n"
    path = table(tmp_path / "split.csv", rows)
    with pytest.raises(DataError, match=r"split\.csv: no image of a is in train"):
        official(images, ["a", "b"], path)
    assert official(images, ["b"], path)["b"].train == (2,)


def test_images_that_a_csv_lists_are_found_by_their_file_names(tmp_path: Path) -> None:
    images = ("far/off/dog/1.png,dog,photo", "far/off/dog/2.png,dog,photo", "cat/1.png,cat,photo")
    (tmp_path / "images.csv").write_text("\n".join(["path,class,domain", *images]))
    rows = "photo,dog/1.png,train\nphoto,dog/2.png,crossval\nphoto,cat/1.png,train\n"
    listed = open_images(tmp_path / "images.csv")
    split = official(listed, ["photo"], table(tmp_path / "split.csv", rows))["photo"]
    assert [listed.files[i].name for i in split.validation] == ["photo/dog/far/off/dog/2.png"]
    assert len(split.train) == 2


def test_images_of_the_same_file_name_are_found_by_their_paths(tmp_path: Path) -> None:
    images = [f"{patient}/{n}.png,dog,photo" for patient in ("p1", "p2") for n in (1, 2)]
    (tmp_path / "images.csv").write_text("\n".join(["path,class,domain", *images]))
    listed = open_images(tmp_path / "images.csv")
    sides = {"p1": "train", "p2": "crossval"}
    rows = [f"photo,dog/{p}/{n}.png,{side}\n" for p, side in sides.items() for n in (1, 2)]
    path = table(tmp_path / "split.csv", "".join(rows))
    split = official(listed, ["photo"], path)["photo"]
    check_rows(listed, path)
    assert {listed.files[i].name.split("/")[2] for i in split.train} == {"p1"}
    assert {listed.files[i].name.split("/")[2] for i in split.validation} == {"p2"}
    path.write_text(path.read_text().replace("p2/2", "p3/2"))
    with pytest.raises(DataError, match="lacks 1 image, the first photo/dog/p2/2"):
        official(listed, ["photo"], path)
    with pytest.raises(DataError, match="line 5: there is no image photo/dog/p3/2"):
        check_rows(listed, path)


def test_a_source_without_images_is_to_be_left_out(tmp_path: Path) -> None:
    images = image_set({"a": [0], "b": [10]})
    message = r"^a has no images to train on; leave it out of sources\.$"
    for fraction in (0, 0.1):
        with pytest.raises(DataError, match=message):
            hold_out(images, ["b", "a"], fraction)
    with pytest.raises(DataError, match=message):
        official(images, ["a"], table(tmp_path / "split.csv", "b,0/0,train\n"))


def test_the_documented_way_to_make_the_split_of_pacs(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = shared / "data/pacs/split.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    classes = sorted({row["file"].partition("/")[0] for row in rows})
    for row in rows:
        label = classes.index(row["file"].partition("/")[0]) + 1
        with Path(f"{row['domain']}_{row['split']}_kfold.txt").open("a") as file:
            file.write(f"{row['domain']}/{row['file']} {label}\n")
        Path(f"{row['domain']}_test_kfold.txt").write_text("")  # of both parts, and not needed
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "kfold" in b)
    exec(block, {})
    made, ours = (set(p.read_text().splitlines()) for p in (Path("split.csv"), path))
    assert made == ours


def test_official_split_of_pacs(shared: Path) -> None:
    path = shared / "data/pacs/split.csv"
    images = open_images(path.parent)
    splits = official(images, ["art_painting", "cartoon", "sketch"], path)
    with path.open() as file:
        expected = Counter((row["domain"], row["split"]) for row in csv.DictReader(file))
    for domain, split in splits.items():
        assert len(split.train) == expected[domain, "train"]
        assert len(split.validation) == expected[domain, "crossval"]
        assert {images.files[i].domain for i in split.train} == {images.domains.index(domain)}
