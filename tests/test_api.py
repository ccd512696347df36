"""The library from Python, against what the commands do and what networks answer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from PIL import Image

import bne
from bne.benchmark import execute
from bne.benchmark.plan import Item
from bne.benchmark.records import Record
from bne.data.transform import EvalTransform
from bne.errors import DataError, SettingsError, TrainingError
from bne.methods import create
from bne.models import build, preprocessing
from bne.training.events import Listener
from bne.training.files import snapshot
from bne.training.model_folder import ModelInfo, load_model, save_model
from tests.cli.command import bne as command

SMALL = {"backbone": "small_cnn", "weights": None, "resize": 40, "batch_size": 4, "epoch": 2}
SMALL |= {"head": {"epochs": 1}, "epochs": 1, "warmup": 0, "validation": 0.2}

pytestmark = pytest.mark.usefixtures("here")


def test_train_does_what_the_command_does(data: Path, here: Path, capsys) -> None:
    heard = create_autospec(Listener, instance=True)
    run = bne.train(data, "photo", device="cpu", listeners=[heard], lr=2e-3, **SMALL)
    assert capsys.readouterr() == ("", "")  # unless it is asked to say more
    heard.close.assert_called_once_with()
    assert run.folder == Path("runs/default-bne-photo-0")
    settings = {**SMALL, "train.optimiser.learning_rate": 2e-3}
    sets = [f"--set={key}={json.dumps(value)}" for key, value in settings.items()]
    arguments = ("train", "--data", data, "--target", "photo", *sets, "--device", "cpu")
    arguments = (*arguments, "--json", "--no-tensorboard")
    ours = json.loads(json.dumps(run.result.to_dict()))
    assert command(*arguments, "--out", "command").json["accuracy"] == ours["accuracy"]
    one, other = (folder / "model/model.safetensors" for folder in (run.folder, Path("command")))
    assert one.read_bytes() == other.read_bytes()
    score = run.result.accuracy["last"]["photo"]
    assert run.accuracy == 100 * score.correct / score.images
    # What is finished is read, by the command as well, and what is missing is written.
    file = run.folder / "model.bne"
    written = file.read_bytes()
    file.unlink()
    assert bne.train(data, "photo", device="cpu", lr=2e-3, **SMALL).result == run.result
    assert file.read_bytes() == written
    assert command(*arguments).json == {**ours, "model": str(run.folder / "model")}


def test_what_is_wrong_is_said_before_anything_is_written(data: Path, here: Path) -> None:
    for arguments, words in (
        ({"target": "foto"}, "target has 'foto'"),
        ({"target": ["photo", "art", "sketch"]}, "target holds out every domain"),
        ({"target": "photo", "lerning_rate": 1}, "lerning_rate is no setting"),
        ({"target": "photo", "device": "gpu"}, "device gpu"),
        ({"target": "photo", "out": data / "runs"}, "lies within the data"),
        ({"validation": 0}, "Neither a target nor images for validation"),
    ):
        with pytest.raises(SettingsError, match=words):
            bne.train(data, **{"device": "cpu", **SMALL, **arguments})
    assert not list(here.iterdir())


def test_without_a_target_only_held_out_images_are_scored(data: Path) -> None:
    run = bne.train(data, device="cpu", **SMALL)
    assert run.folder == Path("runs/default-bne-all-0")
    assert run.accuracy is None
    scores = run.result.epochs[-1].validation
    assert run.validation_accuracy == sum(s.accuracy for s in scores.values()) / 3
    model = run.model("cpu")
    assert model.domains == ("art", "photo", "sketch")
    assert model.info.accuracy["target"] == {}
    assert set(model.info.accuracy["validation"]) == set(model.domains)


def test_compare_does_what_the_command_does_and_a_model_keeps_it(data: Path, capsys) -> None:
    found = bne.compare(data, "deepall,bne", out="ours", device="cpu", **SMALL)
    assert capsys.readouterr() == ("", "")
    sets = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]
    theirs = command("benchmark", "--data", data, *sets, "--device", "cpu", "--json", "--out", "it")
    assert [one.to_dict() for one in found.expected] == theirs.json["expected"]
    assert found.expected[-1].domains.keys() == {"art", "photo", "sketch"}
    before = found.records.read_bytes()
    assert bne.compare(data, out="ours", device="cpu", **SMALL) == found
    assert found.records.read_bytes() == before  # nothing is run twice
    model = bne.train(data, device="cpu", **SMALL).model("cpu").expecting(found.records)
    model.save("model.bne")
    assert bne.load("model.bne").info.expected == found.expected[-1].to_dict()
    with pytest.raises(DataError, match="no such file"):
        model.expecting("missing.jsonl")
    with pytest.raises(SettingsError, match="within the data"):
        bne.compare(data, out=data / "runs", device="cpu", **SMALL)


def test_a_run_that_fails_does_not_stop_the_others(data: Path, monkeypatch) -> None:
    def fail(item: Item, *_: object) -> Record:
        if item.target == "photo":
            raise RuntimeError("no more memory")
        return run(item, *_)

    run = execute._run
    monkeypatch.setattr(execute, "_run", fail)
    with pytest.raises(TrainingError, match=r"^1 of 3 runs failed, the first .*no more memory"):
        bne.compare(data, "deepall", out="ours", device="cpu", **SMALL)
    assert len(Path("ours/records.jsonl").read_text().splitlines()) == 2


def test_progress_and_notes_are_shown_if_asked_for(data: Path, here: Path, capsys) -> None:
    lacking = shutil.copytree(data, here / "data")
    shutil.rmtree(lacking / "photo/dog")
    run = bne.train(lacking, "photo", device="cpu", progress=True, **SMALL)
    said = capsys.readouterr().err
    assert [f"Note: {note}" for note in run.notes] == said.splitlines()[:1]
    assert "photo" in run.notes[0]
    assert "train 1/1" in said


@pytest.mark.parametrize("method", ["bne", "deepall"])
def test_a_classifier_answers_as_the_method_does(
    runs: dict[str, Path], data: Path, method: str
) -> None:
    model = bne.load(runs[method], device="cpu")
    assert (model.classes, model.domains) == (("cat", "dog"), ("art", "sketch"))
    assert model.method == method
    files = sorted(data.glob("photo/*/*.png"))
    answers = model.predict(files)
    own, transform, _ = load_model(runs[method] / "model")
    with torch.inference_mode():
        inputs = torch.cat([transform.file(file) for file in files])
        logits = own.predict(inputs)
    calm = logits.double() / model.info.calibration.temperature
    np.testing.assert_allclose(answers.probabilities, calm.softmax(1), rtol=1e-5)
    assert answers.classes == tuple(model.classes[k] for k in logits.argmax(1).tolist())
    if method == "bne":
        told = own.explain(inputs)
        np.testing.assert_allclose(answers.weights, told.weights.detach(), rtol=1e-5)
        np.testing.assert_allclose(answers.weights.sum(1), 1, rtol=1e-5)
        np.testing.assert_allclose(answers.distances, told.distances.detach(), rtol=1e-5)
        assert answers.nearest_domains == tuple(told.nearest_domain)
    else:
        assert answers.weights is answers.nearest_domains is answers.unusual is None


def test_weights_are_those_of_the_branches_whatever_the_sources(data: Path, here: Path) -> None:
    options, sources = {"clusters": 3}, ("art", "sketch")
    method = create("bne-pseudo", build("small_cnn", 2), sources, options)
    transform = EvalTransform(preprocessing("small_cnn"), 32).to_dict()
    known = (("cat", "dog"), sources, "bne-pseudo", options, transform, None)
    save_model(here / "model", snapshot(method.state_dict()), ModelInfo("small_cnn", *known))
    model = bne.load(here / "model", device="cpu")
    assert model.domains == ("cluster 1", "cluster 2", "cluster 3")
    assert model.predict(next(data.glob("photo/*/*.png"))).weights.shape == (1, 3)


def test_a_classifier_takes_files_pictures_and_tensors(
    runs: dict[str, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bne.load(runs["bne"] / "best", device="cpu")
    files = sorted(data.glob("photo/*/*.png"))[:3]
    pictures = [Image.open(file) for file in files]
    raw = bytearray(b"".join(picture.tobytes() for picture in pictures))
    tensor = torch.frombuffer(raw, dtype=torch.uint8).view(3, 32, 32, 3).permute(0, 3, 1, 2)
    expected = model.predict(files)
    array = tensor.permute(0, 2, 3, 1).numpy()
    monkeypatch.setattr("bne.deploy.engine.Engine.batch", 2)
    mixed = [files[0].read_bytes(), pictures[1], tensor[2]]
    for given in (files, map(str, files), pictures, tensor, array, list(array), mixed):
        found = model.predict(given)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-5)
        assert found.classes == expected.classes
    many = model.predict(files * 10)
    assert expected.classes[0] in repr(expected)
    assert max(len(repr(shown)) for shown in (many, model, expected)) < 300
    for single in (files[0], str(files[0]), files[0].read_bytes(), pictures[0], array[0]):
        found = model.predict(single)
        np.testing.assert_allclose(found.probabilities, expected.probabilities[:1], rtol=1e-5)


def test_what_is_no_image_or_model_is_named(runs: dict[str, Path], here: Path) -> None:
    model = bne.load(runs["bne"], device="cpu")
    (here / "bad.png").write_bytes(b"no image")
    for given, words in (
        ("absent.png", "absent.png"),
        ("bad.png", "bad.png"),
        (3, "int"),
        (b"no image", "image"),
        (np.zeros((8, 8), np.uint8), r"\(8, 8\)"),
        (torch.zeros(3, 8, 8), "float32"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), r"\(1, 8, 8\)"),
        (np.zeros((8, 8, 4), np.uint8), r"\(8, 8, 4\).*array"),
        ([], "no images"),
    ):
        with pytest.raises(DataError, match=words):
            model.predict(given)
    with pytest.raises(DataError, match="is no model folder"):
        bne.load(here)


def test_a_script_without_a_guard_trains(data: Path, here: Path) -> None:
    script = here / "script.py"
    script.write_text(
        "import bne\n"
        f"run = bne.train({str(data)!r}, 'photo', device='cpu', **{SMALL!r})\n"
        f"print(run.model('cpu').predict({str(next(data.glob('photo/cat/*')))!r}).classes[0])\n"
    )
    command = [sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("cat", "dog")
