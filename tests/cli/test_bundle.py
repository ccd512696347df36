import base64
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bne as library
from bne.data import open_images
from bne.data.cache import prepare
from bne.deploy.map import make_map
from tests.cli.command import SETTINGS, bne, refusal

Runs = dict[str, Path]


def test_the_file_is_that_of_the_training(runs: Runs, here: Path) -> None:
    said = bne("bundle", runs["bne"], "models/mine.bne").out
    written = here / "models/mine.bne"
    assert written.read_bytes() == (runs["bne"] / "model.bne").read_bytes()
    images = library.load(written, "cpu").info.calibration.images
    assert f"calibrated on {images} held-out images" in said


def test_with_its_data_a_run_is_calibrated_later(runs: Runs, here: Path) -> None:
    run = shutil.copytree(runs["bne"], here / "run")
    result = json.loads((run / "result.json").read_text())
    del result["analysis"]["calibration"]  # as in runs of earlier versions
    (run / "result.json").write_text(json.dumps(result))
    assert "not calibrated" in bne("bundle", run, "plain.bne").out
    known = library.load(run, "cpu").info
    bne("bundle", run, "mine.bne", "--data", runs["data"], "--device", "cpu", "--map", 2)
    kept = library.load(here / "mine.bne", "cpu").info
    assert (known.map, list(kept.map["branches"])) == (None, ["art", "sketch"])
    assert sorted(one["domain"] for one in kept.map["images"]) == ["art"] * 2 + ["sketch"] * 2
    found = kept.calibration
    expected = library.load(runs["bne"], "cpu").info.calibration
    assert found.percentiles == pytest.approx(expected.percentiles, rel=1e-4)
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-4)


def test_images_that_a_run_left_out_are_left_out_again(runs: Runs, here: Path) -> None:
    data = shutil.copytree(runs["data"], here / "data")
    (data / "art/cat/00.png").write_bytes(b"no image")
    command = ("bundle", runs["bne"], "x.bne", "--data", data, "--device", "cpu", "--map", 9)
    assert "--skip-bad" in bne(*command, code=1).err
    bne(*command, "--skip-bad")
    bne("bundle", runs["bne"], "y.bne", "--data", runs["data"], "--device", "cpu", "--map", 9)
    assert (here / "x.bne").read_bytes() == (here / "y.bne").read_bytes()


def test_a_map_of_few_images_shows_every_class(runs: Runs, here: Path) -> None:
    model, images = library.load(runs["bne"], "cpu"), open_images(runs["data"])
    prepared = prepare(images, here / "cache", model.engine.way.size)
    found = make_map(model.engine, model.info, prepared, range(len(images)), 2)["images"]
    shown = [(one["domain"], one["class"]) for one in found]
    assert shown == [("art", "cat"), ("art", "dog"), ("sketch", "cat"), ("sketch", "dog")]


def test_thumbnails_are_small_jpegs_of_the_maps_images(
    runs: Runs, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ("--data", runs["data"], "--device", "cpu")
    for more in ((), ("--thumbnails",)):
        bne("bundle", runs["bne"], f"{len(more)}.bne", *data, "--map", 2, *more)
    without, kept = (library.load(here / f"{n}.bne", "cpu").info.map for n in (0, 1))
    assert all("thumbnail" not in one for one in without["images"])
    originals = {}
    for path in runs["data"].glob("*/*/*.png"):
        domain, name = path.parts[-3:-1]
        originals.setdefault((domain, name), []).append(Image.open(path).convert("RGB"))
    for one, other in zip(kept["images"], without["images"], strict=True):
        kind, _, content = one.pop("thumbnail").partition(",")
        assert (kind, one) == ("data:image/jpeg;base64", other)
        small = Image.open(io.BytesIO(base64.b64decode(content)))
        assert small.format == "JPEG"
        assert max(small.size) <= 56
        apart = [
            np.abs(np.subtract(small, image.resize(small.size), dtype=float)).mean()
            for image in originals[one["domain"], one["class"]]
        ]
        assert min(apart) < 12  # of 255: it is one of its domain and class
    monkeypatch.setattr("bne.deploy.map.MOST", 3)
    command = ("bundle", runs["bne"], "x.bne", *data, "--map", 2, "--thumbnails")
    assert "3 images at most" in refusal(*command)


def test_a_model_carries_what_to_expect_at_a_new_domain(runs: Runs, here: Path) -> None:
    data = runs["data"]
    methods = ("--methods", "deepall,bne", "--no-analyze", "--json")
    told = bne("benchmark", "--data", data, *SETTINGS, *methods, "--out", "study").json["expected"]
    bne("train", "--data", data, *SETTINGS, "--out", "run", "--no-tensorboard")
    leans = ", leaning" if library.load(here / "run", "cpu").info.lean else ""
    (wanted,) = [one for one in told if one["row"] == f"bne{leans}"]
    said = bne("bundle", "run", "mine.bne", "--records", "study/records.jsonl")
    assert wanted["sentence"] in said.out
    model = library.load(here / "mine.bne", "cpu")
    assert json.loads(json.dumps(model.info.expected)) == wanted
    picture = next(data.glob("photo/*/*.png"))
    assert wanted["sentence"] in bne("predict", "mine.bne", picture, "--json").err
    model.save_pretrained(here / "hub")
    assert wanted["sentence"] in (here / "hub/README.md").read_text()
    # A run that left a domain out is another model, and so is one of other settings.
    for other in (runs["bne"], runs["deepall"]):
        error = refusal("bundle", other, "x.bne", "--records", "study/records.jsonl")
        assert "leave out each of its domains" in error
    lines = (here / "study/records.jsonl").read_text().splitlines()
    other = [{**one, "materials": {"images": "other"}} for one in map(json.loads, lines)]
    (here / "both.jsonl").write_text("\n".join([*lines, *map(json.dumps, other)]))
    assert "on 2 sets of images" in refusal("bundle", "run", "x.bne", "--records", "both.jsonl")
    assert not (here / "x.bne").exists()


def test_errors_are_one_sentence_and_write_nothing(runs: Runs, here: Path) -> None:
    other = shutil.copytree(runs["data"], here / "data")
    (other / "art/cat").rename(other / "art/ant")
    more = shutil.copytree(runs["data"], here / "more")
    for image in list(more.glob("art/cat/*")):
        shutil.copy(image, image.with_stem(f"{image.stem}-again"))
    bare = shutil.copytree(runs["bne"] / "model", here / "bare")
    before = sorted(here.rglob("*"))
    for arguments, words in (
        ((here / "nowhere", "x.bne"), "no such file or folder"),
        ((runs["data"], "x.bne"), "is no model folder"),
        ((runs["bne"], here), "is a folder; name a file"),
        ((runs["bne"], "x.bne", "--data", other), "other classes"),
        ((runs["bne"], "x.bne", "--data", more), "; name the data of the run.\n"),
        ((runs["bne"], "x.bne", "--map", 9), "name them with --data"),
        ((runs["bne"], "x.bne", "--records", "r.jsonl", "--lean", 0), "as it was trained"),
        ((runs["bne"], "x.bne", "--records", "r.jsonl"), "no such file"),
        ((runs["bne"], "x.bne", "--thumbnails"), "say how many images with --map"),
        ((runs["dnet"], "x.bne", "--data", runs["data"], "--map", 9), "measures no distances"),
        ((bare, "x.bne", "--data", runs["data"]), "name the run's folder"),
        ((runs["bne"] / "model.bne", "x.bne", "--data", runs["data"]), "name the run's folder"),
    ):
        assert words in refusal("bundle", *arguments)
    assert sorted(path for path in here.rglob("*") if "cache" not in str(path)) == before
