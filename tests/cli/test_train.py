import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import yaml
from PIL import Image

from bne import cli
from bne.recipes.files import load, names
from bne.recipes.schema import Recipe
from bne.words import RULES

PACKAGE = f"{Path(cli.__file__).parents[1]}{os.sep}"
FILES, FILES_OF_A_STEP = 60, 16
SMALL = (
    *("--set", "backbone=small_cnn", "--set", "weights=null", "--set", "resize=32"),
    *("--set", "per_domain=4", "--set", "epoch=2"),
    *("--set", "head.epochs=1", "--set", "train.epochs=1", "--set", "train.warm_up=0"),
    *("--device", "cpu", "--no-tensorboard"),
)


def bne(*arguments: object) -> int:
    """Runs the command line as the console script does; returns the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bne", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    return caught.value.code or 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sources and a target of two classes, one dark, one bright."""
    root = tmp_path_factory.mktemp("data")
    noise = np.random.default_rng(0)
    for domain in ("art", "photo", "sketch"):
        for name, light in (("night", 40), ("noon", 200)):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(8):
                pixels = noise.integers(light - 30, light + 30, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BNE_DEBUG", raising=False)
    return tmp_path


def test_a_folder_of_images_becomes_a_trained_network(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bne("train", "--data", data, "--target", "sketch", *SMALL, "--tensorboard") == 0
    captured = capsys.readouterr()
    folder = here / "runs" / "default-bne-sketch-0"
    result = json.loads((folder / "result.json").read_text())
    score = result["accuracy"]["last"]["sketch"]
    assert score["images"] == 16
    lines = captured.out.splitlines()
    for name, words in RULES.items():
        row = next(line for line in lines if words[:30] in line)  # a table may wrap the rest
        found = result["accuracy"][name]["sketch"]["correct"]
        assert f"{100 * found / 16:.1f}" in row
    assert captured.out.strip().endswith("default-bne-sketch-0/model")
    assert (folder / "model" / "model.safetensors").is_file()
    assert re.search(r"train 1/1, distance training: loss [\d.]+, [\d,]+ images/s", captured.err)
    assert list((folder / "tensorboard").iterdir())
    recipe = load(folder / "recipe.yaml", {})
    assert (recipe.method, recipe.validation) == ("bne", 0.1)
    held_out = "Held out for validation: 4 of 32 source images, 10 % of every class.\n"
    assert captured.err.startswith(held_out)


def test_a_domain_named_like_a_path_or_a_number_is_trained_in_runs_and_found_again(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"art": "art", "photo": "../../1e4", "sketch": "1e4"}
    rows = [
        f"{path.relative_to(data)},{path.parent.name},{names[path.parent.parent.name]}\n"
        for path in sorted(data.rglob("*.png"))
    ]
    table = shutil.copytree(data, here / "data") / "images.csv"
    table.write_text("path,class,domain\n" + "".join(rows))
    for target in ("../../1e4", "1e4"):
        command = ("train", "--data", table, "--target", target, *SMALL)
        assert bne(*command) == 0
        first = capsys.readouterr().out
        assert bne(*command) == 0
        assert capsys.readouterr().out == first
    assert {folder.name for folder in (here / "runs").iterdir()} == {
        "default-bne-..-..-1e4-0",
        "default-bne-1e4-0",
    }


def test_json_is_all_of_stdout_and_a_finished_run_is_reported_again(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("train", "--data", data, "--method", "deepall", "--target", "art,photo")
    command = (*command, *SMALL, "--seed", "3", "--out", "mine", "--json")
    assert bne(*command) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["recipe"]["target"] == ["art", "photo"]
    assert (first["recipe"]["method"], first["recipe"]["seed"]) == ("deepall", 3)
    assert set(first["accuracy"]["last"]) == {"art", "photo"}
    assert Path(first["model"]) == Path("mine/model")
    assert bne(*command) == 0
    assert json.loads(capsys.readouterr().out) == first
    assert bne(*command[:-1]) == 0
    assert "together" in capsys.readouterr().out
    assert bne(*command, "--set", "per_domain=2") == 1
    assert "mine holds another run (per_domain is 4" in capsys.readouterr().err


def test_an_interrupted_run_is_resumed(
    data: Path,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import signal

    from bne.training import listeners

    command = ("train", "--data", data, "--target", "sketch", *SMALL)
    assert bne(*command, "--out", "whole") == 0

    def interrupt(self: object, epoch: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(listeners.ProgressLines, "finished_epoch", interrupt)
        assert bne(*command, "--out", "cut") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.match(r"Training was interrupted after step \d+; .* --resume", last)
    assert not Path("cut/result.json").exists()
    assert bne(*command, "--out", "cut") == 1
    assert "go on with it by --resume" in capsys.readouterr().err
    assert bne(*command, "--out", "cut", "--resume") == 0
    whole, cut = (Path(name, "model", "model.safetensors") for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "train.epcohs=2"], "train.epcohs is no setting; the nearest is 'train.epochs'."),
        (["--set", "seed"], "--set seed: write it as key=value, train.epochs=20 for example."),
        (["--set", "=1"], "--set =1: write it as key=value, train.epochs=20 for example."),
        (["--set", "seed=["], "--set seed=[: while parsing"),
        (["--set", "options.distance=unifrom"], "options: no distance is named 'unifrom'"),
        (["--method", "deepal"], "method: method 'deepal' is unknown; the nearest is 'deepall'."),
        (
            ["--target", "skecth"],
            "target has 'skecth', no domain of the data; the nearest is 'sketch'.",
        ),
        (["--set", "per_domain=15"], "per_domain is 15, but art has 14 images to train on"),
        (["--set", "validation=official"], "no official split lies with the data"),
        (["--weights", "no.pth"], "weights: there is no file no.pth."),
        (["--weights", __file__], 'are neither "torchvision" nor "timm" nor a file whose name'),
        (["--recipe", "defualt"], "There is no recipe defualt; the nearest is 'default'"),
        (["--recipe", "no.yaml"], "no.yaml: there is no such recipe file."),
        (["--device", "gpu"], "--device gpu: choose auto, cpu or cuda."),
        (["--data", "nowhere"], "nowhere: there is no such file or folder."),
        (["--set", "train.epoch=4"], "train.epoch is no setting; the nearest is 'train.epochs'"),
        (["--set", "batch_size=15"], "per_domain is 15, but art has 14 images to train on"),
        (["--out", __file__], "test_train.py is a file; name a folder."),
        (["--out", f"{__file__}/run"], "test_train.py is a file, not a folder."),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_decoded(
    data: Path,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    assert bne("train", "--data", data, "--target", "sketch", *SMALL, *arguments) == 1
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.startswith("Error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(here.iterdir())


def test_images_that_cannot_be_read_are_named_or_left_out(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = data / "art" / "noon" / "bad.png"
    bad.write_bytes(b"no image")
    try:
        command = ("train", "--data", data, "--target", "sketch", *SMALL)
        assert bne(*command) == 1
        assert "art/noon/bad.png" in capsys.readouterr().err
        assert bne(*command, "--skip-bad") == 0
        assert "Skipped: art/noon/bad.png" in capsys.readouterr().err
    finally:
        bad.unlink()


def test_a_class_that_a_source_lacks_must_be_allowed(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(data, here / "data")
    shutil.rmtree(copy / "art/noon")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL, "--json")
    for also in ([], ["--dry-run"]):
        assert bne(*command, *also) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == (
            "Error: art has no images of noon to train on, though other source domains have; add "
            "some, or train with such gaps by allow_gaps=True (--allow-gaps).\n"
        )
        assert [path.name for path in here.iterdir()] == ["data"]
    assert bne(*command, "--allow-gaps") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("Note: art has no images of noon to train on; others have.\n")
    assert "Held out for validation: 3 of 24 source images" in captured.err
    assert json.loads(captured.out)["recipe"]["target"] == ["sketch"]


def test_a_class_whose_images_are_all_skipped_is_missing_too(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(data, here / "data")
    for file in (copy / "art/noon").iterdir():
        file.write_bytes(b"no image")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL, "--skip-bad")
    assert bne(*command) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("Error: art has no images of noon to train on, though other")
    assert not (here / "runs").exists()
    assert bne(*command, "--allow-gaps") == 0
    assert "Note: art has no images of noon to train on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        ("(art|photo)/noon/", "target sketch has the class 'noon', of which no source"),
        ("photo/", "photo has no images to train on; leave it out of sources."),
        ("sketch/", "The target 'sketch' has no images; hold out another."),
        ("photo/(night/[1-7]|noon/[3-7])", "per_domain is 4, but photo has 3 images to train on"),
    ],
)
def test_what_is_left_after_skipping_is_checked_too(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str], spoilt: str, expected: str
) -> None:
    copy = shutil.copytree(data, here / "data")
    for file in copy.rglob("*.png"):
        if re.match(spoilt, file.relative_to(copy).as_posix()):
            file.write_bytes(b"no image")
    command = ("train", "--data", copy, "--target", "sketch", *SMALL, "--set", "validation=0.25")
    assert bne(*command, "--skip-bad", "--allow-gaps") == 1
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(f"Error: {expected}")
    assert "Note: " not in error
    assert not (here / "runs").exists()


def test_a_class_that_only_the_target_lacks_is_noted(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(data, here / "data")
    shutil.rmtree(copy / "sketch/noon")
    assert bne("train", "--data", copy, "--target", "sketch", *SMALL, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(
        "Note: sketch, a target, has no images of noon; its accuracy is that on the other classes."
    )
    assert json.loads(captured.out)["accuracy"]["last"]["sketch"]["images"] == 8


def test_an_official_split_is_followed_unless_another_is_asked_for(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = here / "data"
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        shutil.copytree(data / "art", root / domain)
    files = sorted(root.glob("*/*/*.png"))
    lines = [
        f"{file.parts[-3]},{file.parent.name}/{file.name},"
        f"{'crossval' if file.stem in '012' else 'train'}"
        for file in files
    ]
    table = root / "split.csv"
    table.write_text("\n".join(["domain,file,split", *lines]))
    command = ("train", "--data", root, "--target", "sketch", *SMALL)
    assert bne(*command, "--json") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(
        f"Held out for validation: 18 of 48 source images, by the official split {table}.\n"
    )
    result = json.loads(captured.out)
    assert result["recipe"]["validation"] == "official"
    assert {s["images"] for s in result["epochs"][-1]["validation"].values()} == {6}

    assert bne(*command, "--dry-run") == 0
    assert yaml.safe_load(capsys.readouterr().out)["validation"] == "official"
    assert bne(*command, "--set", "validation=0.25", "--out", "quarter") == 0
    note, held_out, *_ = capsys.readouterr().err.splitlines()
    assert note.startswith(f"Note: {table} is an official split, which validation=0.25 does not")
    assert held_out == "Held out for validation: 12 of 48 source images, 25 % of every class."

    table.write_text("\n".join(["domain,file,split", *lines[1:]]))
    assert bne(*command, "--out", "faulty") == 1
    assert capsys.readouterr().err == (
        f"Error: {table}: 1 images are not in it, the first art_painting/night/0.png; "
        "mend the table, or hold out a share with validation=0.1.\n"
    )
    assert not Path("faulty").exists()


def test_without_data_or_target_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert bne("train", "--target", "sketch", *SMALL) == 2
    assert "--data" in capsys.readouterr().err
    assert bne("train") == 1
    assert "target is missing" in capsys.readouterr().err


def test_a_dry_run_prints_a_recipe_that_gives_itself_again(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bne("train", "--target", "sketch", *SMALL, "--seed", "4", "--dry-run") == 0
    printed = capsys.readouterr().out
    assert set(yaml.safe_load(printed)) == {field.name for field in fields(Recipe)}
    Path("again.yaml").write_text(printed)
    assert bne("train", "--recipe", "again.yaml", "--dry-run") == 0
    assert capsys.readouterr().out == printed
    assert bne("train", "--data", data, "--recipe", "again.yaml", "--dry-run") == 0
    settled = {**yaml.safe_load(printed), "validation": 0.1}  # what auto is on these images
    assert yaml.safe_load(capsys.readouterr().out) == settled
    assert [path.name for path in here.iterdir()] == ["again.yaml"]


def test_the_methods_and_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    from bne.methods import entries

    assert bne("train", "--list-methods") == 0
    table = capsys.readouterr().out
    assert all(entry.name in table for entry in entries())
    assert "distance=wasserstein" in table
    assert bne("train", "--list-methods", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == {
        entry.name: {"options": entry.options, "sentence": entry.sentence} for entry in entries()
    }
    assert bne("train", "--list-recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()
    assert bne("train", "--list-recipes", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == names()


class Trace:
    """Which functions of ours run, by file; and in each step, until it is reported."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.steps: list[list[tuple[str, str]]] = []
        self._step = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or not code.co_flags & inspect.CO_NEWLOCALS:
            return
        if event == "call":
            self.calls.append((code.co_filename.removeprefix(PACKAGE), code.co_qualname))
        elif event == "return" and code.co_qualname == "PhaseTraining.step":
            self.steps.append(self.calls[self._step :])
        elif event == "return" and code.co_qualname == "Trainer._report":
            self._step = len(self.calls)


def test_a_run_splits_once_and_runs_few_files(data: Path, here: Path) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SMALL, "--set", "epoch=4", "--out")
    assert bne(*command, "first") == 0  # by which everything is imported
    trace = Trace()
    threading.setprofile(trace)  # what is written in the background counts too
    sys.setprofile(trace)
    try:
        assert bne(*command, "second") == 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    names = [name for _, name in trace.calls]
    for once in ("hold_out", "Inputs.of", "settled", "load_experiment", "open_images"):
        assert names.count(once) == 1, once
    assert len({file for file, _ in trace.calls}) <= FILES
    within = [s for s in trace.steps if "PhaseTraining.begin_epoch" not in [n for _, n in s]]
    assert len(within) == 6  # of 8 steps, 4 of each phase
    assert max(len({file for file, _ in step}) for step in within) <= FILES_OF_A_STEP


@pytest.mark.slow
def test_two_processes_train_what_one_does_and_print_once(
    data: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("train", "--data", data, "--target", "sketch", *SMALL, "--json", "--out")
    assert bne(*command, "one") == 0
    one = json.loads(capsys.readouterr().out)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    done = subprocess.run(
        [*map(str, (*torchrun, "--nproc-per-node=2", "-m", "bne", *command, "two"))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)
    assert [e["loss"] for e in two["epochs"]] == pytest.approx([e["loss"] for e in one["epochs"]])
    others = [line for line in done.stderr.splitlines() if "1/1" not in line]
    assert others == ["Held out for validation: 4 of 32 source images, 10 % of every class."]
    assert done.stderr.count("train 1/1") == 2  # with running statistics, then with exact ones
