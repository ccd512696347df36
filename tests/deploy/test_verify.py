"""A run that is verified as it is, and after each kind of tampering."""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import bne
from bne.data.sources import open_images
from bne.deploy import verify as checks
from bne.errors import DataError, TrainingError
from bne.models import build
from tests.cli.command import bne as command
from tests.cli.command import refusal
from tests.pictures import write_pictures

SMALL = {"backbone": "small_cnn", "resize": 40, "batch_size": 4, "epoch": 2, "device": "cpu"}
SMALL |= {"head": {"epochs": 1}, "epochs": 1, "warmup": 0}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures and their split, weights, and a run of both."""
    folder = tmp_path_factory.mktemp("verify")
    data = write_pictures(folder / "data")
    files = [path.relative_to(data) for path in sorted(data.glob("*/*/*.png"))]
    rows = [
        (file.parts[0], "/".join(file.parts[1:]), "crossval" if file.stem == "5" else "train")
        for file in files
    ]
    with (data / "split.csv").open("w", newline="") as table:
        csv.writer(table).writerows([("domain", "file", "split"), *rows])
    save_file(build("small_cnn", 2).state_dict(), folder / "start.safetensors")
    bne.train(data, "photo", out=folder / "run", weights=str(folder / "start.safetensors"), **SMALL)
    return folder


@pytest.fixture
def own(whole: Path, here: Path) -> Path:
    """A copy to tamper with, the present folder."""
    for name in ("data", "run"):
        shutil.copytree(whole / name, here / name)
    shutil.copy(whole / "start.safetensors", here)
    return here


def verified(weights: str | None = "start.safetensors") -> checks.Verification:
    return bne.verify("run", "data", device="cpu", weights=weights)


def test_the_manifest_has_the_digests_that_hashlib_gives(whole: Path) -> None:
    run = whole / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    assert {"result.json", "model/model.safetensors", "images.csv", "recipe.yaml"} <= set(
        manifest["files"]
    )
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((run / name).read_bytes()).hexdigest() == digest
    with (run / "images.csv").open(newline="") as table:
        images = {row["file"]: row for row in csv.DictReader(table)}
    assert len(images) == 36
    for name, row in images.items():
        assert hashlib.sha256((whole / "data" / name).read_bytes()).hexdigest() == row["sha256"]
        held_out = "validation" if name.endswith("/5.png") else "train"
        assert row["part"] == ("target" if name.startswith("photo/") else held_out)
    assert manifest["weights"]["source"] == "start.safetensors"
    assert "yours to know" in manifest["weights"]["terms"]
    assert manifest["environment"]["torch"]
    assert manifest["determinism"]["threads"] >= 1


def test_a_run_as_it_is_holds_to_the_digit(own: Path) -> None:
    found = verified()
    assert (found.ok, found.differences, found.unchecked) == (True, (), ())
    assert any("to the digit" in sentence for sentence in found.held)
    as_above = ("--data", "data", "--device", "cpu", "--weights", "start.safetensors")
    said = command("verify", "run", *as_above, "--json")
    assert said.json == json.loads(json.dumps(found.to_dict()))
    digest = hashlib.sha256((own / "run/manifest.json").read_bytes()).hexdigest()
    assert found.manifest == digest


def test_without_data_only_the_files_are_checked(own: Path) -> None:
    said = command("verify", "run")
    assert "Not checked: Images, split and scores" in said.out
    flip(own / "run/metrics.jsonl")
    said = command("verify", "run", code=1)
    assert said.err == (
        "Differs: metrics.jsonl has changed since the run: its SHA-256 is not the one in the "
        "manifest.\n"
    )


def flip(file: Path, place: int = -1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def relabel(own: Path) -> None:
    (own / "data/art/cat/0.png").rename(own / "data/art/dog/x.png")


def resplit(own: Path) -> None:
    table = own / "data/split.csv"
    table.write_text(table.read_text().replace("art,cat/0.png,train", "art,cat/0.png,crossval"))


def other_weights(own: Path) -> None:
    tensors = load_file(own / "start.safetensors")
    tensors["conv1.weight"].view(-1)[0] += 1e-3
    save_file(tensors, own / "start.safetensors")


def other_model(own: Path) -> None:
    model = bne.load("run", "cpu")
    next(model.engine.method.parameters()).data.view(-1)[0] += 1e-3
    model.save(own / "run/model.bne")


TAMPERING: dict[str, tuple[Callable[[Path], object], str]] = {
    "image": (lambda own: flip(own / "data/photo/dog/3.png"), "content of 1 image has changed"),
    "lost image": (
        lambda own: (own / "data/art/dog/2.png").unlink(),
        "data lacks 1 image of the run",
    ),
    "new image": (
        lambda own: shutil.copy(own / "data/art/dog/2.png", own / "data/art/dog/9.png"),
        "The data has 1 image that the run had not: art/dog/9.png",
    ),
    "label": (relabel, "art/cat/0.png is now art/dog/x.png"),
    "split": (resplit, "art/cat/0.png, now validation instead of train"),
    "weights": (other_weights, "initial weights start.safetensors are not those of the run"),
    "model": (lambda own: flip(own / "run/model/model.safetensors"), "model/model.safetensors has"),
    "best": (lambda own: (own / "run/best/model.json").unlink(), "best/model.json is missing"),
    "model file": (lambda own: flip(own / "run/model.bne"), "model.bne is damaged"),
    "other model": (other_model, "model.bne holds another model"),
    "table": (lambda own: flip(own / "run/images.csv", 60), "images.csv has changed"),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found_and_named(own: Path, kind: str) -> None:
    tamper, words = TAMPERING[kind]
    tamper(own)
    arguments = ("--data", "data", "--weights", "start.safetensors", "--device", "cpu")
    said = command("verify", "run", *arguments, code=1)
    assert words in said.err
    assert all(line.startswith("Differs: ") for line in said.err.splitlines())


def test_an_accuracy_that_was_rewritten_with_its_digest_is_found(own: Path) -> None:
    """Whoever rewrites the manifest too still has to answer for the scores."""
    result = json.loads((own / "run/result.json").read_text())
    for told in (*result["epochs"], *result["leaning"]):
        score = told["target"]["photo"]
        score["correct"] = 12 if score["correct"] != 12 else 11
    (own / "run/result.json").write_text(json.dumps(result))
    lines = "".join(json.dumps(epoch) + "\n" for epoch in result["epochs"])
    (own / "run/metrics.jsonl").write_text(lines)
    manifest = json.loads((own / "run/manifest.json").read_text())
    for name in ("result.json", "metrics.jsonl"):
        digest = hashlib.sha256((own / "run" / name).read_bytes()).hexdigest()
        manifest["files"][name] = digest
    before = checks.manifests.sha256_of(own / "run/manifest.json")
    (own / "run/manifest.json").write_text(json.dumps(manifest))
    found = verified()
    assert found.manifest != before
    (sentence,) = found.differences
    assert "Accuracy on target photo" in sentence


def test_another_kind_of_machine_is_said(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = checks.describe
    monkeypatch.setattr(checks, "describe", lambda *a: described(*a) | {"device": "abacus"})
    found = verified()
    assert found.ok
    assert any("on another kind of machine" in sentence for sentence in found.held)


def test_what_cannot_be_checked_is_said(own: Path) -> None:
    (own / "start.safetensors").unlink()
    found = verified("start.safetensors")
    assert found.ok
    (sentence,) = found.unchecked
    assert "--weights" in sentence
    (own / "run/manifest.json").unlink()
    assert "run has no manifest.json" in refusal("verify", "run")


def test_images_that_were_left_out_stay_left_out(own: Path) -> None:
    (own / "data/art/cat/bad.png").write_bytes(b"no image")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BNE_CACHE", str(own / "cache"))
        found = bne.verify("run", "data", device="cpu", weights="start.safetensors", skip_bad=True)
    # The split has no row for it, and it is none of the run's images.
    assert found.ok
    assert not verified().ok


def test_a_run_is_not_resumed_with_other_images(own: Path) -> None:
    settings = {**SMALL, "weights": str(own / "start.safetensors"), "out": own / "run"}
    assert bne.train("data", "photo", **settings).folder == own / "run"  # read, not trained
    path = own / "data/art/dog/1.png"
    shutil.copy(own / "data/art/dog/2.png", path)
    with pytest.raises(TrainingError, match="content"):
        bne.train("data", "photo", **settings)


def test_a_damaged_manifest_is_one_sentence(own: Path) -> None:
    for text in ("", "[]", "{}", '{"files": 1}', '{"files": {}, "more": {}}'):
        (own / "run/manifest.json").write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json cannot be read"):
            bne.verify("run")


def test_digests_do_not_depend_on_the_cache(own: Path) -> None:
    """Contents are read again, even if a file keeps the stamp under which it was prepared."""
    images = open_images(own / "data")
    stale = replace(images.files[0], read=lambda: b"other")
    changed = replace(images, files=(stale, *images.files[1:]))
    prepare = pytest.fail  # nothing is scored
    found = checks.verify(own / "run", changed, own / "data", prepare, device="cpu")
    assert any("content of 1 image" in sentence for sentence in found.differences)
