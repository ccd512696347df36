"""What is read back of a run's folder, against what the run itself said."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bne.report.curves import Stage, stages
from bne.report.run_folder import (
    BEST,
    LAST,
    NO_EPOCH,
    UNFINISHED,
    Training,
    find_model,
    held_out_images,
    read_training,
)
from bne.report.run_page import write_report
from bne.report.run_sections import accuracy_section, curve_data, what_was_trained
from bne.training.events import Score
from bne.training.model_folder import load_model
from tests.report.models import training
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


def test_the_table_has_what_the_run_recorded(finished) -> None:
    folder, result, _ = finished
    rows = table_rows(read_training(folder))
    scores = [result.accuracy[rule]["sketch"] for rule in ("last", "validation", "oracle")]
    expected = [f"{100 * score.correct / score.images:.1f}" for score in scores]
    assert rows["sketch, the target"] == [*expected, "24"]
    last = result.epochs[-1].validation["art"]
    assert rows["art, held out"][0] == f"{100 * last.correct / last.images:.1f}"


def test_every_rule_has_its_own_epoch() -> None:
    """Held-out images are best in the third epoch of training, the target in the second."""
    found = training(("art", "photo"), "sketch")
    change = {
        4: {"validation": {"art": Score(91, 100), "photo": Score(93, 100)}},
        3: {"target": {"sketch": Score(150, 200)}},
    }
    changed = [replace(epoch, **change.get(k, {})) for k, epoch in enumerate(found.epochs)]
    rows = table_rows(replace(found, epochs=tuple(changed)))
    assert rows["epoch"] == ["4", "3", "2", ""]
    assert rows["sketch, the target"] == ["24.0", "22.5", "75.0", "200"]
    assert rows["art, held out"] == ["66.0", "91.0", "54.0", "100"]


def table_rows(found: Training) -> dict[str, list[str]]:
    text = "".join(accuracy_section(found))
    cells = [re.findall(r">([^<>]*)</t[dh]>", row) for row in re.findall(r"<tr>.*?</tr>", text)]
    return {row[0]: row[1:] for row in cells}


def test_curves_have_every_epoch_and_stage(finished) -> None:
    folder, result, _ = finished
    found = read_training(folder)
    looks = dict.fromkeys([*found.sources, *found.target], _Look())
    data = curve_data(found, looks)
    assert data["loss"][0]["y"] == pytest.approx([e.loss for e in result.epochs], rel=1e-3)
    names = [(stage["name"], stage["first"], stage["last"]) for stage in data["stages"]]
    assert names == [
        ("last layer alone", 1, 2),
        ("warm-up", 3, 4),
        ("distance training", 5, 6),
    ]
    target = data["accuracy"][-1]
    assert target["name"] == "sketch, target, not used for choosing"
    assert target["y"] == pytest.approx(
        [e.target["sketch"].accuracy for e in result.epochs], rel=1e-3
    )


def test_exact_statistics_are_a_stage_of_their_own() -> None:
    *others, last = training(("art", "photo"), "sketch").epochs
    found = stages([*others, last, replace(last, statistics="exact")])
    assert found[-2:] == [Stage("distance training", 5, 6), Stage("exact statistics", 7, 7)]


class _Look:
    colour = "#000000"


def test_sentences_say_what_was_trained(finished) -> None:
    text = " ".join(what_was_trained(read_training(finished[0]), ("art", "cartoon", "photo")))
    assert "A network, tiny starting from random weights, was trained by the method bne" in text
    assert (
        "images of art, cartoon and photo, and tested on images of sketch, which it never" in text
    )
    assert "last layer alone was to be trained for 2 epochs, then the whole network for 4." in text
    assert "What the paper says of bne: “(c) includes a warm-up phase" in text
    assert re.search(r"It took \d+ s on a CPU \(.+\)\.", text)
    unknown = replace(read_training(finished[0]), environment={})
    assert re.search(r"It took \d+ s\.$", what_was_trained(unknown, ())[1])


def test_held_out_images_are_those_of_the_run(finished) -> None:
    folder, _, splits = finished
    _, _, info = load_model(folder / "model")
    found, unknown = held_out_images(read_training(folder), info, images().images, None)
    assert found == {number for split in splits.values() for number in split.validation}
    assert len(found) == 18
    assert unknown == ""


def test_other_data_has_no_known_split(finished) -> None:
    folder, _, _ = finished
    _, _, info = load_model(folder / "model")
    found = read_training(folder)
    there = images().images
    fewer = replace(there, files=there.files[::2])
    assert held_out_images(found, info, fewer, None) == (
        frozenset(),
        "Which images of the seen domains were held out from training is not known: the run held "
        "out 6 images of art, but of this data it would be 3. All of them count as training "
        "images.",
    )
    official = replace(found, settings={**found.settings, "validation": "official"})
    _, unknown = held_out_images(official, info, there, None)
    assert "not known: the benchmark's own split does not lie with the data." in unknown
    renamed = replace(there, domains=("a", "b", "c", "d"))
    assert held_out_images(found, info, renamed, None) == (frozenset(), "")
    assert held_out_images(None, info, there, None) == (frozenset(), "")


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
    page = html.unescape((copied / "index.html").read_text())
    assert "The run is not finished: 5 epochs recorded so far." in page
    assert "The run has no trained network yet" in page
    assert 'id="map"' not in page


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("recipe.yaml", "method: [", "recipe.yaml cannot be read: the settings are left out."),
        ("recipe.yaml", "seed: 1", "recipe.yaml cannot be read: the settings are left out."),
        ("environment.json", None, "environment.json is not there: the environment is left out."),
        ("metrics.jsonl", "{}\n{}\n", "metrics.jsonl cannot be read: accuracies and curves"),
        ("metrics.jsonl", "", NO_EPOCH),
        ("metrics.jsonl", '{"phase": "he', NO_EPOCH),
        ("result.json", "{}", "result.json cannot be read: its time is left out."),
    ],
)
def test_what_cannot_be_read_is_left_out(
    copied: Path, name: str, content: str | None, sentence: str
) -> None:
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_text(content)
    found = read_training(copied)
    assert any(one.startswith(sentence) for one in found.left_out)
    write_report(copied, None, found)
    page = html.unescape((copied / "index.html").read_text())
    assert sentence in page
    gone = {
        "recipe.yaml": "settings",
        "environment.json": "environment",
        "metrics.jsonl": "results",
    }
    if name in gone:
        assert f'<section id="{gone[name]}">' not in page
    assert (NO_EPOCH in page) == (sentence == NO_EPOCH)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("recipe.yaml", "target", "sketch"),  # which would be taken letter by letter
        ("recipe.yaml", "target", []),
        ("recipe.yaml", "method", 3),
        ("recipe.yaml", "weights", 3),
        ("recipe.yaml", "head", None),
        ("metrics.jsonl", "loss", "low"),
        ("metrics.jsonl", "loss", 10**400),
        ("metrics.jsonl", "stage", ["head"]),
        ("metrics.jsonl", "target", {}),
        ("metrics.jsonl", "target", {"sketch": {"correct": 0, "images": 0}}),
        ("metrics.jsonl", "target", {"sketch": {"correct": None, "images": 24}}),
        ("metrics.jsonl", "validation", {"art": {"correct": 1, "images": 2}}),
        ("result.json", "seconds", None),
    ],
)
def test_a_value_that_cannot_be_is_not_read(copied: Path, name: str, key: str, value) -> None:
    """One of the second line, in the file of metrics; the page is made of the rest."""
    lines = (copied / name).read_text().splitlines() if name == "metrics.jsonl" else None
    content = json.loads(lines[1]) if lines else yaml.safe_load((copied / name).read_text())
    changed = json.dumps({**content, key: value})  # JSON is YAML too
    (copied / name).write_text("\n".join([lines[0], changed, *lines[2:]]) if lines else changed)
    found = read_training(copied)
    assert [sentence.split(":")[0] for sentence in found.left_out] == [f"{name} cannot be read"]
    write_report(copied, None, found)
    assert f"{name} cannot be read" in (copied / "index.html").read_text()


def test_what_is_said_of_the_environment_may_be_anything(copied: Path) -> None:
    odd = {"device": 3, "weights": {"name": ["w"], "sha256": 12}, "torch": {"a": [1, None]}}
    (copied / "environment.json").write_text(json.dumps(odd))
    write_report(copied, None, read_training(copied))
    assert "SHA-256 12…" in (copied / "index.html").read_text()


def test_the_folder_that_weights_lay_in_is_not_told(copied: Path) -> None:
    found = read_training(copied)
    moved = replace(found, settings={**found.settings, "weights": "/home/me/w.safetensors"})
    write_report(copied, None, moved)
    page = (copied / "index.html").read_text()
    assert "w.safetensors" in page
    assert "/home/me" not in page
    assert json.loads((copied / "environment.json").read_text())["python"] in page
