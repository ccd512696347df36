import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import yaml

from bne import api, cli
from bne.methods import entries
from bne.recipes.files import load, names
from bne.recipes.schema import Recipe
from bne.training import listeners
from bne.training.scores import LABELS, RULES, UNTESTED
from tests.cli.command import bne, refusal
from tests.pictures import write_pictures

PACKAGE = f"{Path(cli.__file__).parents[1]}{os.sep}"
FILES, FILES_OF_A_STEP = 66, 14
SMALL = (
    *("--set", "backbone=small_cnn", "--set", "weights=null", "--set", "resize=32"),
    *("--set", "per_domain=4", "--set", "epoch=2"),
    *("--set", "head.epochs=1", "--set", "train.epochs=1", "--set", "train.warm_up=0"),
    *("--device", "cpu", "--no-tensorboard"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"), 8)


@pytest.fixture
def copy(data: Path, here: Path) -> Path:
    return shutil.copytree(data, here / "data")


def test_a_folder_of_images_becomes_a_trained_network(data: Path, here: Path) -> None:
    said = bne("train", "--data", data, "--target", "sketch", *SMALL, "--tensorboard")
    folder = here / "runs" / "default-bne-sketch-0"
    score = json.loads((folder / "result.json").read_text())["accuracy"]["last"]["sketch"]
    assert score["images"] == 16
    lines = said.out.splitlines()
    rows = {rule: next(line for line in lines if f" {LABELS[rule]} " in line) for rule in RULES}
    assert f"{100 * score['correct'] / 16:.1f}" in rows["last"]
    *_, where, finished, analyze, predict = lines
    assert where.endswith("default-bne-sketch-0/model")
    assert finished.startswith("Finished in ")
    assert predict.split() == ["bne", "predict", "runs/default-bne-sketch-0", "IMAGES"]
    assert analyze.split() == ["bne", "analyze", predict.split()[2], "--data", str(data)]
    assert (folder / "model" / "model.safetensors").is_file()
    assert re.search(r"train 1/1, distance training: loss [\d.]+, [\d,]+ images/s", said.err)
    assert list((folder / "tensorboard").iterdir())
    recipe = load(folder / "recipe.yaml", {})
    assert (recipe.method, recipe.validation) == ("bne", 0.1)
    assert said.err.startswith("Held out for validation: 4 of 32 source images, 10 % of ")


def test_balanced_accuracy_leads_in_the_table_where_classes_are_unbalanced(
    copy: Path, here: Path
) -> None:
    for file in sorted((copy / "sketch/dog").iterdir())[1:]:
        file.unlink()
    said = bne("train", "--data", copy, "--target", "sketch", *SMALL).out
    score = json.loads(Path("runs/default-bne-sketch-0/result.json").read_text())
    score = score["accuracy"]["last"]["sketch"]
    lines = [line.split() for line in said.splitlines() if "│" in line]
    assert lines[0] == ["│", "last", "│", "balanced", "│", f"{score['balanced']:.1f}", "│"]
    assert lines[1] == ["│", "│", "accuracy", "│", f"{100 * score['correct'] / 9:.1f}", "│"]
    assert "Balanced accuracy leads: in sketch" in said


def test_a_domain_named_like_a_path_or_a_number_is_trained_in_runs_and_found_again(
    copy: Path, here: Path
) -> None:
    names = {"art": "art", "photo": "../../1e4", "sketch": "1e4"}
    rows = [
        f"{path.relative_to(copy)},{path.parent.name},{names[path.parent.parent.name]}\n"
        for path in sorted(copy.rglob("*.png"))
    ]
    table = copy / "images.csv"
    table.write_text("path,class,domain\n" + "".join(rows))
    for target in ("../../1e4", "1e4"):
        command = ("train", "--data", table, "--target", target, *SMALL)
        assert bne(*command).out == bne(*command).out
    folders = {folder.name for folder in (here / "runs").iterdir()}
    assert folders == {"default-bne-..-..-1e4-0", "default-bne-1e4-0"}


def test_json_is_all_of_stdout_and_a_finished_run_is_reported_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", "--data", data, "--method", "deepall", "--target", "art,photo")
    command = (*command, *SMALL, "--seed", "3", "--out", "mine", "--json")
    first = bne(*command).json
    assert first["recipe"]["target"] == ["art", "photo"]
    assert (first["recipe"]["method"], first["recipe"]["seed"]) == ("deepall", 3)
    assert set(first["accuracy"]["last"]) == {"art", "photo"}
    assert Path(first["model"]) == Path("mine/model")
    again = bne(*command)
    assert again.json == first
    assert "finished before" in again.err
    assert "together" in bne(*command[:-1]).out
    with monkeypatch.context() as patch:
        patch.setattr("bne.cli.train.MANY_DOMAINS", 1)
        output = bne(*command[:-1]).out
    right = {name: score["correct"] for name, score in first["accuracy"]["last"].items()}
    worst = min(right, key=lambda name: (right[name], name))
    row = next(line for line in output.splitlines() if line.startswith("│ last"))
    assert f"{100 * right[worst] / 16:.1f}, {worst}" in row
    shutil.rmtree("mine/model")
    Path("mine/model.bne").unlink()
    assert bne(*command).json == {**first, "model": None}
    assert "no longer in mine/model; " in bne(*command[:-1]).out
    Path("mine/result.json").unlink()  # as it then says
    assert {**bne(*command, "--resume").json, "seconds": first["seconds"]} == first
    other = (*command, "--set", "per_domain=2")
    assert "mine holds another run (per_domain is 4" in bne(*other, code=1).err


def test_an_interrupted_run_is_resumed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SMALL, "--out")
    bne(*command, "whole")
    with monkeypatch.context() as patch:
        interrupt = lambda *_: signal.raise_signal(signal.SIGINT)  # noqa: E731
        patch.setattr(listeners.ProgressLines, "finished_epoch", interrupt)
        last = bne(*command, "cut", code=130).err.splitlines()[-1]
    assert re.match(r"Training was interrupted after step \d+; .* --resume", last)
    assert not Path("cut/result.json").exists()
    assert "--resume" in bne(*command, "cut", code=1).err
    bne(*command, "cut", "--resume")
    whole, cut = (Path(name, "model", "model.safetensors") for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "train.epcohs=2"], "train.epcohs is no setting; the nearest is 'train.epochs'."),
        (["--set", "train.epoch=4"], "train.epoch is no setting; the nearest is 'train.epochs'"),
        (["--set", "seed"], "--set seed: write it as key=value"),
        (["--set", "=1"], "--set =1: write it as key=value"),
        (["--set", "seed=["], "--set seed=[: while parsing"),
        (["--set", "options.distance=unifrom"], "options: no distance is named 'unifrom'"),
        (["--method", "deepal"], "method: method 'deepal' is unknown; the nearest is 'deepall'."),
        (["--target", "skecth"], "target has 'skecth', no domain of the data; the nearest is 'sk"),
        (["--set", "per_domain=15"], "per_domain is 15, but art has 14 images to train on"),
        (["--set", "batch_size=15"], "per_domain is 15, but art has 14 images to train on"),
        (["--set", "device=cpu"], "device is no setting; there are method, target,"),
        (["--set", "target=[art]", "--target", "skecth"], "target has 'skecth', no domain"),
        (["--set", "validation=official"], "no official split lies with the data"),
        (["--weights", "no.pth"], "weights: there is no file no.pth."),
        (["--weights", __file__], 'are neither "torchvision" nor "timm" nor a file whose name'),
        (["--recipe", "defualt"], "There is no recipe defualt; the nearest is 'default'"),
        (["--recipe", "no.yaml"], "no.yaml: there is no such recipe file."),
        (["--device", "gpu"], "--device gpu: choose auto, cpu or cuda."),
        (["--data", "nowhere"], "nowhere: there is no such file or folder."),
        (["--out", __file__], "test_train.py is a file; name a folder."),
        (["--out", f"{__file__}/run"], "test_train.py is a file, not a folder."),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_decoded(
    data: Path, here: Path, arguments: list[str], expected: str
) -> None:
    assert expected in refusal("train", "--data", data, "--target", "sketch", *SMALL, *arguments)
    assert not list(here.iterdir())


def test_images_that_cannot_be_read_are_named_or_left_out(copy: Path) -> None:
    (copy / "art/dog/bad.png").write_bytes(b"no image")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL)
    assert "art/dog/bad.png" in bne(*command, code=1).err
    assert "Skipped: art/dog/bad.png" in bne(*command, "--skip-bad").err


@pytest.mark.parametrize("how", ["absent", "skipped"])
def test_a_class_that_a_source_lacks_must_be_allowed(copy: Path, here: Path, how: str) -> None:
    if how == "absent":
        shutil.rmtree(copy / "art/dog")
    for file in copy.glob("art/dog/*"):
        file.write_bytes(b"no image")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL, "--skip-bad", "--json")
    for also in ([], ["--dry-run"])[: 2 if how == "absent" else 1]:
        said = bne(*command, *also, code=1)
        assert said.out == ""
        error = said.err.splitlines()[-1]
        assert error.startswith("Error: art has no images of dog to train on, though other ")
        assert "--allow-gaps" in error
        left = {path.name for path in here.iterdir()}
        assert left == ({"data"} if how == "absent" else {"data", "cache"})
    said = bne(*command, "--allow-gaps")
    assert "Note: art has no images of dog to train on; others have.\n" in said.err
    assert "Held out for validation: 3 of 24 source images" in said.err
    assert said.json["recipe"]["target"] == ["sketch"]


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ("(art|photo)/dog/", "target sketch has the class 'dog', of which no source"),
        ("photo/", "photo has no images to train on; leave it out of sources."),
        ("sketch/", "The target 'sketch' has no images; hold out another."),
        ("photo/(cat/[1-7]|dog/[3-7])", "per_domain is 4, but photo has 3 images to train on"),
    ],
)
def test_what_is_left_after_skipping_is_checked_too(
    copy: Path, here: Path, spoilt: str, expected: str
) -> None:
    for file in copy.rglob("*.png"):
        if re.match(spoilt, file.relative_to(copy).as_posix()):
            file.write_bytes(b"no image")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL, "--set", "validation=0.25")
    error = bne(*command, "--skip-bad", "--allow-gaps", code=1).err
    assert error.splitlines()[-1].startswith(f"Error: {expected}")
    assert "Note: " not in error
    assert not (here / "runs").exists()


def test_a_class_that_only_the_target_lacks_is_noted(copy: Path) -> None:
    shutil.rmtree(copy / "sketch/dog")
    said = bne("train", "--data", copy, "--target", "sketch", *SMALL, "--json")
    assert said.err.startswith("Note: sketch, a target, has no images of dog; ")
    assert said.json["accuracy"]["last"]["sketch"]["images"] == 8


def test_an_official_split_is_followed_unless_another_is_asked_for(data: Path, here: Path) -> None:
    root = here / "data"
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        shutil.copytree(data / "art", root / domain)
    lines = [
        f"{file.parts[-3]},{file.parent.name}/{file.name},"
        f"{'crossval' if file.stem in '012' else 'train'}"
        for file in sorted(root.glob("*/*/*.png"))
    ]
    table = root / "split.csv"
    table.write_text("\n".join(["domain,file,split", *lines]))
    command = ("train", "--data", root, "--target", "sketch", *SMALL)
    said = bne(*command, "--json")
    held_out = "Held out for validation: "
    assert said.err.startswith(
        f"{held_out}18 of 48 source images, by the official split {table}.\n"
    )
    assert said.json["recipe"]["validation"] == "official"
    assert {s["images"] for s in said.json["epochs"][-1]["validation"].values()} == {6}

    assert yaml.safe_load(bne(*command, "--dry-run").out)["validation"] == "official"
    quarter = ("--set", "validation=0.25", "--out", "quarter")
    note, second, *_ = bne(*command, *quarter).err.splitlines()
    assert note.startswith(f"Note: {table} is an official split, which validation=0.25 does not")
    assert second == f"{held_out}12 of 48 source images, 25 % of every class."

    table.write_text("\n".join(["domain,file,split", *lines[1:]]))
    error = refusal(*command, "--out", "faulty")
    assert error.startswith(f"Error: {table}: lacks 1 image,")
    assert "art_painting/cat/0.png" in error
    assert not Path("faulty").exists()


def test_without_data_it_says_so() -> None:
    assert "--data" in bne("train", *SMALL, code=2).err


def test_without_a_target_every_domain_is_trained_on_and_the_model_can_be_used(
    data: Path, here: Path
) -> None:
    command = ("train", "--data", data, *SMALL)
    said = bne(*command)
    folder = here / "runs" / "default-bne-all-0"
    assert UNTESTED in said.out
    recipe = folder.relative_to(here) / "recipe.yaml"  # so that the model can have its records
    assert f"bne benchmark --data {data} --recipe {recipe} --methods deepall,bne\n" in said.out
    assert LABELS["oracle"] not in said.out
    result = bne(*command, "--json").json  # of the finished run, which is read
    assert (result["note"], result["target_images"]) == (UNTESTED, "none")
    assert result["accuracy"] == {"last": {}, "validation": {}}
    scores = result["epochs"][-1]["validation"]
    assert list(scores) == ["art", "photo", "sketch"]
    means = [100 * score["correct"] / score["images"] for score in scores.values()]
    row = next(line for line in said.out.splitlines() if f" {LABELS['last']} " in line)
    assert all(f" {mean:.1f} " in row for mean in means)
    assert all(one["target"] == {} for one in result["leaning"])

    answers = bne("predict", folder / "model.bne", data / "art" / "cat" / "0.png", "--json").out
    assert set(json.loads(answers.splitlines()[0])["weights"]) == {"art", "photo", "sketch"}
    evaluated = bne("evaluate", folder, "--data", data, "--device", "cpu", "--json").json
    assert evaluated["trained_on"] == ["art", "photo", "sketch"]
    bne("analyze", folder, "--data", data, "--device", "cpu", "--images", "4")
    page = (folder / "analysis" / "index.html").read_text()
    assert UNTESTED in page
    assert "sketch (held out)" in page


def test_groups_stay_together_by_pattern_and_by_column(data: Path, here: Path) -> None:
    """Eight pictures of each class, 0.png to 7.png, are of two patients each."""
    root = here / "root"
    for file in sorted(data.glob("*/*/*.png")):
        place = root / file.relative_to(data)
        place = place.with_stem(f"patient{int(file.stem) // 2}_{file.stem}")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    command = ("train", "--target", "sketch", *SMALL, "--json", "--set", "validation=0.25")
    said = bne(*command, "--data", root, "--group", r"patient(\d+)", "--out", "pattern")
    assert said.err.startswith("Held out for validation: 8 of 32 source images, 25 % of every ")
    assert said.json["recipe"]["group"] == r"patient(\d+)"

    names = [file.relative_to(root).as_posix() for file in sorted(root.glob("*/*/*.png"))]
    rows = [(name, *name.split("/")) for name in names]
    lines = [f"{n},{label},{d},{d}/{f[7]}" for n, d, label, f in rows]
    table = root / "images.csv"
    table.write_text("\n".join(["path,class,domain,group", *lines]))
    small = {"backbone": "small_cnn", "weights": None, "per_domain": 4, "validation": 0.25}
    inputs = api.resolve(table, "sketch", "default", small)
    assert len({inputs.groups[n] for own in inputs.train.values() for n in own}) == 6
    held_out = {inputs.groups[n] for own in inputs.validation.values() for n in own}
    assert len(held_out) == 2  # one patient of each source

    shared = [
        line.rpartition(",")[0] + f",{row[3][7]}" for line, row in zip(lines, rows, strict=True)
    ]
    table.write_text("\n".join(["path,class,domain,group", *shared]))
    error = refusal(*command, "--data", table)
    assert "The group 0 is on both sides of the split, with art/cat/" in error
    assert "matches no file name" in refusal(*command, "--data", root, "--group", r"case(\d+)")


def test_a_model_to_use_needs_images_that_test_it(data: Path, here: Path) -> None:
    error = refusal("train", "--data", data, *SMALL, "--set", "validation=0")
    assert "validation=0.1" in error
    assert "--target" in refusal("train", "--data", data, *SMALL, "--method", "bne-adapt")
    assert not list(here.iterdir())


def test_a_dry_run_prints_a_recipe_that_gives_itself_again(data: Path, here: Path) -> None:
    printed = bne("train", "--target", "sketch", *SMALL, "--seed", "4", "--dry-run").out
    assert set(yaml.safe_load(printed)) == {field.name for field in fields(Recipe)}
    Path("again.yaml").write_text(printed)
    again = ("train", "--recipe", "again.yaml", "--dry-run")
    assert bne(*again).out == printed
    settled = {**yaml.safe_load(printed), "validation": 0.1}  # what auto is on these images
    assert yaml.safe_load(bne(*again, "--data", data).out) == settled
    assert [path.name for path in here.iterdir()] == ["again.yaml"]


def test_the_methods_and_recipes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    *lines, _ = bne("train", "--list-methods").out.splitlines()
    assert [line.split()[0] for line in lines] == [entry.name for entry in entries()]
    assert max(map(len, lines)) <= 80
    assert len(set(lines)) == len({line.partition("  ")[2] for line in lines})  # no two alike
    assert bne("train", "--list-methods", "--json").json == {
        entry.name: {"options": entry.options, "sentence": entry.sentence} for entry in entries()
    }
    lines = bne("train", "--list-recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert list(bne("train", "--list-recipes", "--json").json) == names()


class Trace:
    """Which functions of ours run, by file; and those of each training step."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.steps: list[list[tuple[str, str]]] = []
        self._inside = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or not code.co_flags & inspect.CO_NEWLOCALS:
            return
        own = threading.current_thread() is threading.main_thread()  # others write checkpoints
        if event == "call":
            call = code.co_filename.removeprefix(PACKAGE), code.co_qualname
            self.calls.append(call)
            if own and code.co_qualname == "PhaseTraining.step":
                self.steps.append([])
                self._inside = True
            if own and self._inside:
                self.steps[-1].append(call)
        elif event == "return" and own and code.co_qualname == "PhaseTraining.step":
            self._inside = False


def test_a_run_splits_once_and_runs_few_files(data: Path) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SMALL, "--set", "epoch=4", "--out")
    bne(*command, "first")  # by which everything is imported
    trace = Trace()
    threading.setprofile(trace)  # what is written in the background counts too
    sys.setprofile(trace)
    try:
        bne(*command, "second")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    names = [name for _, name in trace.calls]
    for once in ("hold_out", "Inputs.of", "settled", "load_experiment", "open_images"):
        assert names.count(once) == 1, once
    assert len({file for file, _ in trace.calls}) <= FILES
    assert len(trace.steps) == 8  # 4 of each phase
    assert max(len({file for file, _ in step}) for step in trace.steps) <= FILES_OF_A_STEP


WATCH = """
import os, sys

def note(event, args):
    if event == "open" and str(args[0]).endswith(".model.bne.partial") and "w" in str(args[1]):
        with open("writers", "a") as file:
            file.write(os.environ["RANK"] + "\\n")

sys.addaudithook(note)
"""


@pytest.mark.slow
def test_two_processes_train_what_one_does_and_speak_and_write_once(data: Path) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SMALL, "--json", "--out")
    one = bne(*command, "one").json
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    Path("watch").mkdir()
    Path("watch/sitecustomize.py").write_text(WATCH)
    path = os.pathsep.join(["watch", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*map(str, (*torchrun, "--nproc-per-node=2", "-m", "bne", *command, "two"))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert Path("writers").read_text().splitlines() == ["0"]
    file = next(data.glob("sketch/*/*.png"))
    ours, theirs = (api.load(f"{run}/model.bne", "cpu").predict(file) for run in ("one", "two"))
    np.testing.assert_allclose(theirs.probabilities, ours.probabilities, rtol=1e-3)
    two = json.loads(done.stdout)
    assert [e["loss"] for e in two["epochs"]] == pytest.approx([e["loss"] for e in one["epochs"]])
    others = [line for line in done.stderr.splitlines() if "1/1" not in line]
    assert others[0] == "Held out for validation: 4 of 32 source images, 10 % of every class."
    assert len(others) == len({*others}) == 2  # and what will be trained
    assert done.stderr.count("train 1/1") == 2  # with running statistics, then with exact ones
