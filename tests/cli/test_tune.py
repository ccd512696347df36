"""Searches on tiny pictures."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from bne.benchmark.plan_file import read_plan
from bne.benchmark.records import append, read
from tests.cli.command import SETTINGS, bne, refusal
from tests.pictures import write_pictures
from tests.tuning.pretend import record

DOMAINS = ("art", "cartoon", "photo", "sketch")
SPACE = "method: [deepall, bne]\nlr: [1e-3, 0.05]\nlean: [0, 0.1]\n"


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("four"), domains=DOMAINS)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    return file


def poisoned(data: Path, root: Path, domain: str) -> Path:
    """The same data, but a domain's images cannot be read and have other classes, one more too."""
    shutil.copytree(data, root)
    for number, file in enumerate(sorted((root / domain).rglob("*.png"))):
        file.unlink()
        place = root / domain / ("dog", "wolf")[number % 2]
        place.mkdir(exist_ok=True)
        (place / f"poison{number}.png").write_bytes(b"no image")
    (root / domain / "cat").rmdir()
    return root


def test_a_target_set_aside_is_never_opened_here_or_elsewhere(
    four: Path, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--target", "sketch", "--space", space, *SETTINGS, "--trials", 2)
    how = (*how, "--lengths", 1, "--seeds", 1)
    planned = bne("tune", "--data", four, *how, "--out", "clean", "--dry-run", "--json").json
    assert planned["left_out"] == {"sketch": ["art", "cartoon", "photo"]}
    assert (planned["runs"], planned["seconds"]) == (6, None)
    more = bne("tune", "--data", four, *how, "--trials", 99, "--dry-run", "--json").json
    assert more["runs"] == 12  # of the four settings that there are
    assert not Path("clean").exists()

    said = bne("tune", "--data", four, *how, "--out", "clean", "--json")
    (clean,) = said.json
    assert "Best so far for sketch: " in said.err
    assert clean["finished"]
    records = read(Path("clean/records.jsonl"))
    assert len(records) == 6
    assert {tuple(one.settings["target"]) for one in records} == {(d,) for d in DOMAINS[:3]}
    for one in clean["settings"]:  # each figure is that of a record, by the last epoch
        assert one["mean"] == pytest.approx(sum(one["by_domain"].values()) / 3)
    assert "Settings for sketch" in Path("clean/report.html").read_text()
    assert json.loads(Path("clean/tune.json").read_text()) == [clean]
    recipe = yaml.safe_load(
        bne("train", "--data", four, "--recipe", "clean/recipe.yaml", "--dry-run").out
    )
    chosen = clean["choice"]["one_standard_error"]
    assert recipe["target"] == ["sketch"]
    assert recipe["method"] == chosen["changes"]["method"]
    assert recipe["lean"] == chosen["lean"]

    # Poisoned, and trained where sketch is not, by a command that knows nothing of Optuna.
    bad = poisoned(four, tmp_path / "bad", "sketch")
    lacking = tmp_path / "lacking"
    shutil.copytree(bad, lacking, ignore=shutil.ignore_patterns("sketch"))
    how = ("tune", "--data", bad, *how, "--out", "poisoned", "--records", "elsewhere.jsonl")
    assert "6 runs" in bne(*how, "--plan", "plan.json").out
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "optuna", None)
        there = ("benchmark", "--data", lacking, "--plan", "plan.json", "--no-analyze")
        there = (*there, "--records", "elsewhere.jsonl")
        assert "6 runs, 6 to do" in bne(*there, "--dry-run").out
        assert "6 of 6 runs added" in bne(*there).out
        assert "6 runs, nothing to do" in bne(*there).err
        lines = Path("elsewhere.jsonl").read_text().splitlines(keepends=True)
        Path("some.jsonl").write_text(lines[0] + lines[-1])  # one of each setting
        planned = (*there, "--records", "some.jsonl", "--dry-run", "--json")
        one, two = (bne(*planned, "--parallel", number).json["seconds"] for number in (1, 2))
        assert two == pytest.approx(one / 2)
    before = Path("elsewhere.jsonl").read_bytes()
    (found,) = bne(*how, "--json").json
    assert Path("elsewhere.jsonl").read_bytes() == before
    assert found == clean
    assert "no run is left" in bne(*how, "--plan", "plan.json").out


def test_with_two_sources_left_it_says_so_and_goes_by_held_out_images(
    data: Path, space: Path
) -> None:
    space.write_text("method: [bne]\nlean: [0]\n")
    how = ("tune", "--data", data, "--target", "photo", "--space", space, *SETTINGS)
    how = (*how, "--set", "lean=0")
    said = bne(*how, "--trials", 1, "--seeds", 1)
    assert "art and sketch are two sources" in said.err
    assert "held-out images of art and sketch" in said.out
    (one,) = read(Path("runs/tune/records.jsonl"))
    assert one.settings["target"] == []
    (found,) = json.loads(Path("runs/tune/tune.json").read_text())
    (own,) = found["settings"]
    score = one.leaning[0]["validation"]["art"]
    assert own["by_domain"]["art"] == pytest.approx(100 * score["correct"] / score["images"])


def test_listed_settings_are_planned_whatever_their_number(four: Path, space: Path) -> None:
    space.write_text("settings:\n- {method: points, options.beyond: 0.5}\nlean: [0, auto]\n")
    how = ("tune", "--data", four, "--target", "sketch", "--space", space, *SETTINGS)
    assert "6 runs" in bne(*how, "--trials", 1, "--plan", "new/plan.json").out
    planned = [item.recipe for item in read_plan(Path("new/plan.json"))[0]]
    assert [one.options.get("beyond") for one in planned] == [None] * 3 + [0.5] * 3


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        (("--lengths", 1, "--finalists", 3), [18, 36]),  # of three settings: two more seeds of all
        (("--lengths", 1, "--finalists", 2), [18]),
        (("--lengths", 2, "--set", "train.epochs=3"), [18]),
    ],
)
def test_a_list_is_planned_without_optuna_until_something_is_chosen(
    four: Path, space: Path, monkeypatch: pytest.MonkeyPatch, more: tuple, sizes: list[int]
) -> None:
    space.write_text("settings:\n- {method: points}\n- {lr: 0.05}\nlean: [0]\n")
    how = ("tune", "--data", four, "--every-target", "--space", space, *SETTINGS, *more)
    how = (*how, "--seeds", 3, "--records", "all.jsonl")
    for size in sizes:
        bne(*how, "--plan", "with.json")
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "optuna", None)
            bne(*how, "--plan", "without.json")
        expected, _ = read_plan(Path("with.json"))
        found, _ = read_plan(Path("without.json"))
        assert len(found) == size
        assert {one.digest for one in found} == {one.digest for one in expected}
        for item in found:
            append(Path("all.jsonl"), record(item))
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'bne[tune]'" in refusal(*how, "--plan", "without.json")
    space.write_text(SPACE)
    assert "pip install 'bne[tune]'" in refusal(*how, "--plan", "without.json")


def test_what_is_wrong_is_said_before_anything_is_written(four: Path, tmp_path: Path) -> None:
    command = ("tune", "--data", four, *SETTINGS)
    space = tmp_path / "space.yaml"
    space.write_text("lr: {low: 1, high: 1}\n")
    assert "lr has an empty range" in refusal(*command, "--space", space)
    assert "choose tpe or gp or random" in refusal(*command, "--sampler", "best")
    assert "There is no domain 'river'" in refusal(*command, "--target", "river")
    assert "choose one" in refusal(*command, "--target", "photo", "--every-target")
    assert "at least two source" in refusal(*command, "--target", "photo,art,sketch")
    assert "per_domain is 99" in refusal(*command, "--set", "per_domain=99")
    assert not Path("runs").exists()
    mine = tmp_path / "recipe.yaml"
    mine.write_text("epoch: 2  # for a first look\n")
    given = (*command, "--recipe", mine, "--trials", 1, "--out", tmp_path)
    said = bne(*given, code=1).err
    assert "recipe.yaml is no recipe of bne tune; name another --out" in said
    assert mine.read_text() == "epoch: 2  # for a first look\n"
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    there = ("benchmark", "--data", four, "--plan", plan)
    assert "no plan of runs" in refusal(*there)
    assert "leave other ones out" in refusal(*there, "--methods", "bne")
    space.write_text(SPACE)
    how = (*command, "--space", space, "--out", tmp_path / "out", "--trials", 1)
    bne(*how, "--target", "sketch", "--plan", plan)
    other = write_pictures(tmp_path / "other", count=7, domains=DOMAINS)
    there = ("benchmark", "--data", other, "--plan", plan)
    assert "images are not those of the plan" in refusal(*there)
