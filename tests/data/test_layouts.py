"""Small copies of other projects' folders, made here, read in place."""

import csv
import io
import json
import shutil
from pathlib import Path

import datasets
import pytest
from PIL import Image

from bne.data.check import check_path
from bne.data.images import ImageSet
from bne.data.sources import open_images
from bne.errors import DataError, SettingsError
from bne.recipes.inputs import Inputs
from tests.data.small import png
from tests.training import small


def table(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png())


def camelyon(root: Path) -> Path:
    """As WILDS unpacks it: an index without a name, patches by patient and node."""
    rows = []
    for center in range(5):
        for tumor in (0, 1):
            for number in range(6):
                patient, node = f"{10 * center + number % 2:03}", number % 2
                name = f"patient_{patient}_node_{node}"
                x, y = 32 * number, 32 * tumor
                picture(root / f"patches/{name}/patch_{name}_x_{x}_y_{y}.png")
                row = {"": len(rows), "patient": patient, "node": node, "x_coord": x, "y_coord": y}
                split = int(number == 5)
                rows.append(row | {"tumor": tumor, "slide": 3, "center": center, "split": split})
    table(root / "metadata.csv", rows)
    return root


def iwildcam(root: Path) -> Path:
    places = {1: ("train", "id_val", "id_test"), 2: ("train", "id_val"), 3: ("val",), 4: ("test",)}
    rows = []
    for place, parts in places.items():
        for y in (0, 7):
            for part in parts:
                for number in range(4):
                    name = f"{place}-{y}-{part}-{number}.png"
                    picture(root / "train" / name)
                    row = {"split": part, "filename": name, "location_remapped": place, "y": y}
                    rows.append(row | {"sequence_remapped": f"{place}{y}{part}", "datetime": "x"})
    table(root / "metadata.csv", rows)
    table(root / "categories.csv", [{"y": 0, "name": "empty"}, {"y": 7, "name": "ocelot"}])
    return root


def fmow(root: Path) -> Path:
    rows = []
    for year in (2010, 2012, 2014, 2017):
        for category in ("airport", "zoo"):
            for split in ("train", "train", "train", "train", "val", "test", "seq"):
                if split != "seq":
                    picture(root / f"images/rgb_img_{len(rows)}.png")
                stamp = f"{year}-03-02T10:00:00Z"
                rows.append({"split": split, "category": category, "timestamp": stamp})
    table(root / "rgb_metadata.csv", rows)
    return root


def dassl_pacs(root: Path) -> Path:
    for domain in ("art_painting", "photo"):
        for number, name in enumerate(("dog", "horse"), 1):
            for place in range(6):
                path = f"{domain}/{name}/pic_{place}.jpg"
                picture(root / "images" / path)
                for kind in ("crossval" if place == 5 else "train", "test"):
                    lists = root / "splits" / f"{domain}_{kind}_kfold.txt"
                    lists.parent.mkdir(exist_ok=True)
                    with lists.open("a") as file:
                        file.write(f"{path} {number}\n")
    return root


def dassl_office_home(root: Path) -> Path:
    for domain in ("art", "clipart"):
        for half, count in (("train", 5), ("val", 1)):
            for name in ("bed", "fork"):
                for place in range(count):
                    picture(root / domain / half / name / f"{place}.jpg")
    return root


def dassl_vlcs(root: Path) -> Path:
    for domain in ("CALTECH", "SUN"):
        for half, count in (("train", 5), ("crossval", 1), ("test", 2), ("full", 8)):
            for name in ("0", "1"):
                for place in range(count):
                    picture(root / domain / half / name / f"imgs_{place}.jpg")
    return root


def image_folder(root: Path) -> Path:
    for part, count in (("train", 5), ("validation", 1)):
        rows = []
        for domain in ("a", "b"):
            for name in ("cat", "dog"):
                for place in range(count):
                    file = f"{domain}{name}{place}.png"
                    picture(root / part / file)
                    row = {"file_name": file, "label": name, "domain": domain}
                    rows.append(row | {"group": f"{part}{domain}{place}"})
        table(root / part / "metadata.csv", rows)
    return root


def json_lines(root: Path) -> Path:
    """The same with numbers for labels, as lines of JSON."""
    for written in image_folder(root).glob("*/metadata.csv"):
        with written.with_suffix(".jsonl").open("w") as lines:
            for row in csv.DictReader(written.open()):
                row = row | {"label": ["cat", "dog"].index(row["label"])}
                lines.write(json.dumps(row) + "\n")
        written.unlink()
    return root


def saved(root: Path) -> Path:
    def part(count: int, kind: str) -> datasets.Dataset:
        rows = [
            (Image.new("RGB", (4, 4), (d * 90, label * 90, n)), label, d, f"{kind}{d}{n}")
            for d in range(2)
            for label in range(2)
            for n in range(count)
        ]
        features = datasets.Features(
            image=datasets.Image(),
            label=datasets.ClassLabel(names=["cat", "dog"]),
            domain=datasets.ClassLabel(names=["a", "b"]),
            group=datasets.Value("string"),
        )
        columns = dict(zip(features, zip(*rows, strict=True), strict=True))
        return datasets.Dataset.from_dict({k: list(v) for k, v in columns.items()}, features)

    whole = datasets.DatasetDict(train=part(5, "t"), validation=part(1, "v"))
    whole.save_to_disk(str(root))
    return root


def inputs(images: ImageSet, **changes: object) -> Inputs:
    recipe = small.recipe(validation="auto", per_domain=4, target=(), **changes)
    return Inputs.of(recipe, images)


ALL = [
    (camelyon, 60, {"center0": (10, 2), "center3": (10, 2), "center4": (10, 2)}),
    (iwildcam, 56, {"location1": (8, 8), "location2": (8, 8)}),
    (fmow, 28, {"2010": (8, 2), "2012": (8, 2)}),
    (dassl_pacs, 24, {"art_painting": (10, 2), "photo": (10, 2)}),
    (dassl_office_home, 24, {"art": (10, 2), "clipart": (10, 2)}),
    (dassl_vlcs, 32, {"CALTECH": (10, 2), "SUN": (10, 2)}),
    (image_folder, 24, {"a": (10, 2), "b": (10, 2)}),
    (json_lines, 24, {"a": (10, 2), "b": (10, 2)}),
    (saved, 24, {"a": (10, 2), "b": (10, 2)}),
]


@pytest.mark.parametrize(("make", "count", "splits"), ALL)
def test_images_and_their_published_split(  # type: ignore[no-untyped-def]
    tmp_path: Path, make, count: int, splits: dict[str, tuple[int, int]]
) -> None:
    images = open_images(make(tmp_path / "copy"))
    assert len(images) == count
    assert all(Image.open(io.BytesIO(file.read())).size == (4, 4) for file in images.files)
    assert len(images.classes) == 2
    found = inputs(images)
    assert found.recipe.validation == "official"
    sizes = {d: (len(s.train), len(s.validation)) for d, s in found.splits.items()}
    assert sizes == splits
    assert found.split_by == "by the official split of the data"
    report = check_path(tmp_path / "copy")
    assert report.errors == ()
    apart = set(images.domains) - set(splits)  # which do not train, so that few images do no harm
    assert not any(domain in note for note in report.notes for domain in apart)


@pytest.mark.parametrize("make", [image_folder, json_lines])
def test_an_image_folder_is_read_as_datasets_reads_it(  # type: ignore[no-untyped-def]
    tmp_path: Path, make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "copy")
    for number, file in enumerate(sorted(root.rglob("*.png"))):
        Image.new("RGB", (4, 4), (number, 0, 0)).save(file)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    theirs = datasets.load_dataset("imagefolder", data_dir=str(root), cache_dir=str(tmp_path / "c"))
    images = open_images(root)
    ours = {
        (
            *Image.open(io.BytesIO(file.read())).getpixel((0, 0)),
            file.part,
            images.classes[file.label],
            images.domains[file.domain],
            file.group,
        )
        for file in images.files
    }
    assert ours == {
        (*row["image"].getpixel((0, 0)), part, str(row["label"]), row["domain"], row["group"])
        for part, rows in theirs.items()
        for row in rows
    }
    assert len(ours) == 24


def test_whole_domains_are_kept_apart(tmp_path: Path) -> None:
    images = open_images(camelyon(tmp_path / "camelyon17_v1.0"))
    assert images.domains == tuple(f"center{number}" for number in range(5))
    assert images.classes == ("normal", "tumor")
    tested = Inputs.of(small.recipe(validation="auto", per_domain=4, target=("center2",)), images)
    assert set(tested.splits) == {"center0", "center3", "center4"}
    assert len(tested.target["center2"]) == 12
    with pytest.raises(DataError, match="center1 has no images to train on in the published"):
        inputs(images, sources=("center0", "center1"))
    everything = small.recipe(validation="official", target=("center0", "center3", "center4"))
    with pytest.raises(SettingsError, match="no source domain"):
        Inputs.of(everything, images)


def test_late_years_are_tested_on_the_rows_that_wilds_tests_on(tmp_path: Path) -> None:
    """Their other rows show places that train; WILDS's own class gives them no split."""
    images = open_images(fmow(tmp_path / "fmow_v1.1"))
    late = {file.name for file in images.files if file.name.startswith(("2014", "2017"))}
    rows = list(csv.DictReader((tmp_path / "fmow_v1.1/rgb_metadata.csv").open()))
    wanted = [("2014", "val"), ("2017", "test")]
    assert late == {
        f"{row['timestamp'][:4]}/{row['category']}/images/rgb_img_{number}.png"
        for number, row in enumerate(rows)
        if (row["timestamp"][:4], row["split"]) in wanted
    }


def test_a_copy_that_never_trains_is_no_leak(tmp_path: Path) -> None:
    root = iwildcam(tmp_path / "iwildcam_v2.0")
    held_out, apart, trained = (
        root / f"train/{name}-0.png" for name in ("1-0-id_val", "3-0-val", "2-0-train")
    )
    shutil.copy(held_out, apart)
    assert not any("among those that validate" in note for note in check_path(root).notes)
    shutil.copy(held_out, trained)
    assert any("among those that validate: 1 group" in note for note in check_path(root).notes)


def test_groups_come_with_the_layout(tmp_path: Path) -> None:
    images = open_images(camelyon(tmp_path / "copy"))
    assert images.files[0].group == "patient 000"
    share = small.recipe(validation=0.5, per_domain=4, target=())
    found = Inputs.of(share, images)
    assert set(found.splits) == {"center0", "center3", "center4"}  # the others stay apart
    named = small.recipe(validation=0.5, per_domain=4, target=(), sources=("center0", "center1"))
    assert set(Inputs.of(named, images).splits) == {"center0", "center1"}
    for split in found.splits.values():
        sides = [{images.files[i].group for i in side} for side in (split.train, split.validation)]
        assert not sides[0] & sides[1]
    assert any("is an official split, which validation=0.5 does not" in n for n in found.notes())
    assert open_images(saved(tmp_path / "saved")).files[0].group == "t00"
    assert open_images(iwildcam(tmp_path / "cameras")).classes == ("empty", "ocelot")


def test_what_is_faulty_is_named_by_file_and_line(tmp_path: Path) -> None:
    root = camelyon(tmp_path / "copy")
    text = (root / "metadata.csv").read_text()
    (root / "metadata.csv").write_text(text.replace(",0,0\n", ",0,7\n", 1))
    with pytest.raises(DataError, match=r"metadata\.csv, line \d+: the split '7' is unknown"):
        open_images(root)
    rows = [{"file_name": "../x.png", "label": "cat", "domain": "a"}]
    table(tmp_path / "folder/metadata.csv", rows)
    with pytest.raises(DataError, match=r"metadata\.csv, line 2: the path .* leads outside"):
        open_images(tmp_path / "folder")
    for line, message in (
        ('{"file_name": "x.png"}', "line 1: 'domain' is missing or empty"),
        ('{"file_name": "x.png", "domain": "a"}', "line 1: no column label or class"),
        ('{"file_name": "x.png", "domain": "a", "label": 0}\n[]', "line 2: no JSON object"),
        ('{"file_name": "x.png", "domain": "a", "label": 0}\n{', "as UTF-8 JSON lines"),
    ):
        (tmp_path / "folder/metadata.csv").unlink(missing_ok=True)
        (tmp_path / "folder/metadata.jsonl").write_text(line)
        with pytest.raises(DataError, match=rf"metadata\.jsonl.*{message}"):
            open_images(tmp_path / "folder")
    shutil.rmtree(saved(tmp_path / "saved") / "train")
    with pytest.raises(DataError, match="saved: cannot be read as a saved dataset"):
        open_images(tmp_path / "saved")
