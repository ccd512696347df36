"""What is read back of a run's folder, against what the run itself said."""

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bne.report.page import render
from bne.report.run_page import run_page, write_report
from bne.training.folder import (
    BEST,
    LAST,
    NO_EPOCH,
    NO_NETWORK,
    UNFINISHED,
    find_model,
    held_out_images,
    read_training,
)
from bne.training.model_folder import load_model
from tests.report.pages import Reader
from tests.training.small import images, recipe, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """A run's folder, its result, and the splits it was trained on."""
    folder = tmp_path_factory.mktemp("training") / "run"
    splits = {}

    def note(trained):
        splits.update(trained.splits)
        return {}

    result = run(recipe(validation=0.25), images(), folder, analyse=note)
    return folder, result, splits


@pytest.fixture
def copied(finished, tmp_path: Path) -> Path:
    """The run's files, without any network."""
    for name in ("recipe.yaml", "environment.json", "metrics.jsonl", "result.json"):
        (tmp_path / name).write_bytes((finished[0] / name).read_bytes())
    return tmp_path


def page_of(folder: Path) -> str:
    return render("run", run_page(None, read_training(folder)))


def test_a_finished_run_is_read_whole(finished) -> None:
    folder, result, splits = finished
    found = read_training(folder)
    assert (found.result, list(found.epochs)) == (result, result.epochs)
    assert found.settings == result.recipe
    assert found.environment == result.environment
    assert found.left_out == ()
    assert (found.sources, found.target) == (tuple(splits), ("sketch",))
    assert find_model(folder) == (folder / "model", LAST)
    assert find_model(folder / "best") == (folder / "best", BEST)
    assert read_training(folder / "best") == found
    assert read_training(folder.parent) is None
    assert find_model(folder.parent) == (None, "")


def test_the_page_has_what_the_run_recorded(copied: Path, finished) -> None:
    _, result, _ = finished
    text = page_of(copied)
    rows = Reader(text).table("Accuracy, %")
    scores = [result.accuracy[rule]["sketch"] for rule in ("last", "validation", "oracle")]
    expected = [f"{100 * score.correct / score.images:.1f}" for score in scores]
    assert rows["sketch (unseen)"] == [*expected, "24"]
    share = result.lean
    kept = next(one for one in result.leaning if one.share == share).target["sketch"]
    told = f"On sketch, which training never saw, {kept.accuracy:.1f}\u00a0% of 24 images"
    assert told in text
    last = result.epochs[-1].validation["art"]
    assert rows["art (held out)"][0] == f"{100 * last.correct / last.images:.1f}"
    lead = text.split("<section")[0]
    for told in ("tiny", "random", "bne", "art, cartoon and photo", "sketch", "2 epochs", " 4."):
        assert told in lead


def test_a_network_that_leans_has_a_column(finished) -> None:
    folder, result, _ = finished
    own = result.leaning[-1]
    assert own.share > 0
    leaning = replace(read_training(folder), result=replace(result, lean=own.share))
    page = Reader(render("run", run_page(None, leaning)))
    assert len({len(row) for row in page.tables["Accuracy, %"]}) == 1
    rows = page.table("Accuracy, %")
    assert rows["sketch (unseen)"][3] == f"{own.target['sketch'].accuracy:.1f}"
    assert rows["art (held out)"][3] == f"{own.validation['art'].accuracy:.1f}"


def test_held_out_images_are_those_of_the_run(finished) -> None:
    folder, _, splits = finished
    _, _, info = load_model(folder / "model")
    found, unknown = held_out_images(read_training(folder), info.domains, images().images, None)
    assert found == {number for split in splits.values() for number in split.validation}
    assert len(found) == 18
    assert unknown == ""


def test_other_data_has_no_known_split(finished) -> None:
    folder, _, _ = finished
    _, _, info = load_model(folder / "model")
    found, there = read_training(folder), images().images
    fewer = replace(there, files=there.files[::2])
    numbers, unknown = held_out_images(found, info.domains, fewer, None)
    assert (numbers, "6 images of art" in unknown) == (frozenset(), True)
    official = replace(found, settings={**found.settings, "validation": "official"})
    assert held_out_images(official, info.domains, there, None)[1]
    renamed = replace(there, domains=("a", "b", "c", "d"))
    assert held_out_images(found, info.domains, renamed, None) == (frozenset(), "")
    assert held_out_images(None, info.domains, there, None) == (frozenset(), "")


def test_a_run_that_was_killed(copied: Path) -> None:
    """The last line of the metrics is cut, and there are neither result nor network."""
    (copied / "result.json").unlink()
    metrics = (copied / "metrics.jsonl").read_text()
    (copied / "metrics.jsonl").write_text(metrics[:-30])
    found = read_training(copied)
    assert len(found.epochs) == 5
    assert found.left_out == (UNFINISHED,)
    written = [path.name for path in write_report(copied, None, found)]
    assert written == ["index.html", "curves.png", "curves.pdf"]
    page = (copied / "index.html").read_text()
    assert "5 epochs" in page
    assert NO_NETWORK in page
    sections = ["results", "training", "left-out", "settings", "environment"]
    assert Reader(page).sections == sections


RECIPE, METRICS = ("recipe.yaml", {"settings"}), ("metrics.jsonl", {"results", "training"})


@pytest.mark.parametrize(
    ("name", "gone", "change"),
    [
        (*RECIPE, "method: ["),
        (*RECIPE, "seed: 1"),
        (*RECIPE, {"target": "sketch"}),  # which would be taken letter by letter
        (*RECIPE, {"method": 3}),
        (*RECIPE, {"weights": 3}),
        (*RECIPE, {"head": None}),
        ("environment.json", {"environment"}, None),
        ("environment.json", {"environment"}, "[]"),
        (*METRICS, "{}\n{}\n"),
        (*METRICS, ""),
        (*METRICS, '{"phase": "he'),
        (*METRICS, {"loss": "low"}),
        (*METRICS, {"loss": 10**400}),
        (*METRICS, {"stage": ["head"]}),
        (*METRICS, {"target": {}}),
        (*METRICS, {"target": {"sketch": {"correct": 0, "images": 0}}}),
        (*METRICS, {"target": {"sketch": {"correct": None, "images": 24}}}),
        (*METRICS, {"validation": {"art": {"correct": 1, "images": 2}}}),
        ("result.json", set(), "{}"),
        ("result.json", set(), {"seconds": None}),
    ],
)
def test_what_cannot_be_read_is_left_out(copied: Path, name: str, gone: set[str], change) -> None:
    """A file that is not there, is something else, or has values that cannot be in one place."""
    whole, file = set(Reader(page_of(copied)).sections), copied / name
    if isinstance(change, dict):
        lines = file.read_text().splitlines() if name == "metrics.jsonl" else [file.read_text()]
        second = min(1, len(lines) - 1)
        lines[second] = json.dumps({**yaml.safe_load(lines[second]), **change})  # JSON is YAML
        change = "\n".join(lines)
    file.unlink()
    if change is not None:
        file.write_text(change)
    (sentence,) = read_training(copied).left_out
    assert sentence == NO_EPOCH or sentence.startswith(name)
    page = page_of(copied)
    assert sentence in html.unescape(page)
    assert whole - set(Reader(page).sections) == gone


def test_what_is_said_of_the_environment_may_be_anything(copied: Path) -> None:
    odd = {"device": 3, "weights": {"name": ["w"], "sha256": 12}, "torch": {"a": [1, None]}}
    (copied / "environment.json").write_text(json.dumps(odd))
    rows = Reader(page_of(copied)).table("What it ran in")
    assert (rows["device"], rows["torch"]) == (["3"], ["a=1, null"])
    assert "12" in rows["initial weights"][0]


def test_the_folder_that_weights_lay_in_is_not_told(copied: Path) -> None:
    found = read_training(copied)
    moved = replace(found, settings={**found.settings, "weights": "/home/me/w.safetensors"})
    page = render("run", run_page(None, moved))
    assert Reader(page).table("Every setting of the training")["weights"] == ["w.safetensors"]
    assert "/home/me" not in page
