"""Which settings are tried, for how long and with how many seeds; no network is trained."""

import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bne.benchmark.plan_file import read_plan, write_plan
from bne.benchmark.ray import Cluster
from bne.benchmark.records import append, read
from bne.errors import MissingLibraryError, SettingsError
from bne.recipes.files import load
from bne.report.tune_page import grid
from bne.training.events import Epoch, Score
from bne.tuning import tuning as tuning_module
from bne.tuning.objective import Found
from bne.tuning.search import study_file
from bne.tuning.tuning import expected
from tests.tuning.pretend import DOMAINS, RECIPE, Pretending, accuracy, record, tuning


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Pretending:
    pretending = Pretending()
    monkeypatch.setattr(tuning_module, "execute", pretending)
    return pretending


def carry_out(folder: Path, *more: Any, **how: Any) -> list[Any]:
    """What a whole search finds."""
    folder.mkdir(exist_ok=True)
    search, job = tuning(folder, *more, **how)
    list(search.carry_out(job))
    return search.outcome(read(job.records))


def tried(folder: Path, **how: Any) -> list[Any]:
    search, _ = tuning(folder, **how)
    return [(t.params, t.state.name, t.values) for t in search.searches[0]._trials()]


def test_the_best_settings_are_found_and_written_as_a_recipe(
    tmp_path: Path, runs: Pretending
) -> None:
    (found,) = carry_out(tmp_path, settings=12, kept=True)
    best = found.choice.best
    assert (best.changes["augmentation"], best.share) == ("strong", 0.1)
    assert found.finished
    assert found.counts["tried"] == 12
    assert found.recipe_itself.changes["train.optimiser.learning_rate"] == 1e-3
    assert found.recipe_itself.changes["augmentation"] == "paper"  # it was tried first

    # No run saw the target, and none was made twice.
    assert all("sketch" not in one.recipe.target for one in runs.done)
    assert max(Counter(one.digest for one in runs.done).values()) == 1

    # All settings were trained for 3 of 9 epochs, some in full, the best with three seeds.
    epochs = Counter((one.recipe.train.epochs, one.recipe.train.warm_up) for one in runs.done)
    assert epochs.keys() == {(3, 1), (9, 3)}
    first = {one.row for one in runs.done if one.recipe.train.epochs == 3}
    full = {one.row for one in runs.done if one.recipe.train.epochs == 9}
    assert len(full) <= len(first) * 2 / 3  # which of them follows from Optuna's draws
    assert {one.row for one in runs.done if one.recipe.seed == 2} <= full
    assert best.seeds == found.choice.chosen.seeds == 3
    assert found.importances["train.optimiser.learning_rate"] > found.importances["method"]

    file = tmp_path / "recipe.yaml"
    file.write_text(found.recipe_text())
    recipe = load(file, {})
    chosen = found.choice.chosen
    assert recipe.target == ("sketch",)
    assert recipe.lean == chosen.share
    assert recipe.train.optimiser.learning_rate == chosen.changes["train.optimiser.learning_rate"]
    assert recipe.train.epochs == RECIPE.train.epochs

    # Once all is done nothing is run; more settings go on where the search stood.
    before = len(runs.done)
    (again,) = carry_out(tmp_path, settings=12, kept=True)
    assert len(runs.done) == before
    assert again.to_dict() == found.to_dict()
    carry_out(tmp_path, settings=13, kept=True)
    assert len(runs.done) > before


def test_a_search_that_is_killed_goes_on_as_if_nothing_had_been(
    tmp_path: Path, runs: Pretending
) -> None:
    how: Any = {"settings": 6, "seeds": 2, "finalists": 1, "kept": True}
    whole = carry_out(tmp_path / "whole", **how)[0].to_dict()
    folder = tmp_path / "killed"
    folder.mkdir()
    for _ in range(2):
        child = os.fork()
        if not child:
            search, job = tuning(folder, **how)
            for number, _ in enumerate(search.carry_out(job)):
                if number == 8:
                    os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(read(folder / "records.jsonl")) == 18
    assert carry_out(folder, **how)[0].to_dict() == whole
    assert tried(folder, **how) == tried(tmp_path / "whole", **how)
    records = read(folder / "records.jsonl")
    assert len({one.digest for one in records}) == len(records)


def test_a_setting_has_one_name_in_all_its_runs(tmp_path: Path, runs: Pretending) -> None:
    recipe = replace(RECIPE, validation="auto")
    how: Any = {"space": {"method": ["deepall", "bne"]}, "settings": 2, "seeds": 2}
    (found,) = carry_out(tmp_path, recipe=recipe, **how)
    assert {(one.recipe.train.epochs, one.recipe.seed) for one in runs.done} == {
        (3, 0),
        (9, 0),
        (9, 1),
    }
    names = {one.row.split()[1] for one in runs.done}
    assert names == {one.digest[:8] for one in found.rows}


def test_a_limit_is_kept(tmp_path: Path, runs: Pretending) -> None:
    search, job = tuning(tmp_path)
    list(search.carry_out(job, limit=5))
    assert len(runs.done) == 5
    (found,) = search.outcome(read(job.records))
    assert not found.finished
    assert found.choice is None


def test_no_setting_is_tried_twice_and_a_small_space_ends_the_search(
    tmp_path: Path, runs: Pretending
) -> None:
    space = {"method": ["deepall", "bne"], "augmentation": ["paper", "strong"]}
    (found,) = carry_out(tmp_path, space=space, settings=9, lengths=1, seeds=1)
    assert found.finished
    assert len({one.digest for one in found.rows}) == found.counts["tried"] == 4
    assert any(one is found.choice.best for one in found.rows)
    assert any(one is found.choice.chosen for one in found.rows)
    assert (found.counts["failed"], found.problems) == (0, {})
    assert len(runs.done) == 4 * 3


def test_several_settings_are_tried_at_a_time(
    tmp_path: Path, runs: Pretending, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, job = tuning(tmp_path, settings=8)
    list(search.carry_out(replace(job, parallel=5), limit=6))
    assert runs.batches[0] == 2 * 3  # two settings keep five processes at work
    on_ray = Pretending()
    monkeypatch.setattr(tuning_module, "execute_on_ray", lambda items, job, _: on_ray(items, job))
    (tmp_path / "ray").mkdir()
    search, job = tuning(tmp_path / "ray", settings=8)
    list(search.carry_out(job, Cluster("auto"), limit=24))
    assert on_ray.batches[0] == 8 * 3


@pytest.mark.parametrize("sampler", ["random", "gp"])
def test_other_samplers_search_too(tmp_path: Path, runs: Pretending, sampler: str) -> None:
    (found,) = carry_out(tmp_path, settings=5, sampler=sampler, lengths=1, seeds=1)
    assert len({one.digest for one in found.rows}) == 5
    assert {one.recipe.train.epochs for one in runs.done} == {9}


def test_a_failed_run_gives_up_its_setting_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_module, "execute", Pretending(bad="strong"))
    (found,) = carry_out(tmp_path)
    assert found.finished
    assert found.counts["failed"] == len(found.problems) > 0
    assert set(found.problems.values()) == {"no luck"}
    assert all(one.changes["augmentation"] == "paper" for one in found.rows)


def test_a_search_of_something_else_is_refused(tmp_path: Path, runs: Pretending) -> None:
    carry_out(tmp_path, settings=2, seeds=1, kept=True)
    with pytest.raises(SettingsError, match="another space; name another --out"):
        tuning(tmp_path, space={"augmentation": ["paper", "strong"]}, kept=True)
    with pytest.raises(SettingsError, match="another lengths"):
        tuning(tmp_path, lengths=1, kept=True)
    tuning(tmp_path, settings=9, seeds=5, kept=True)  # more of the same
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "study.db").write_text("no database")
    with pytest.raises(SettingsError, match="is no study"):
        tuning(tmp_path / "other", kept=True)


def test_a_search_without_its_records_is_refused(tmp_path: Path, runs: Pretending) -> None:
    how: Any = {"settings": 2, "seeds": 1, "lengths": 1, "kept": True}
    carry_out(tmp_path, **how)
    (tmp_path / "records.jsonl").rename(tmp_path / "elsewhere.jsonl")
    with pytest.raises(SettingsError, match="are not recorded; give the --records"):
        carry_out(tmp_path, **how)


def test_runs_of_two_sources_are_shared_by_all_targets(tmp_path: Path, runs: Pretending) -> None:
    how: Any = {"every": True, "sampler": "random", "settings": 3, "lengths": 1, "seeds": 1}
    search, job = tuning(tmp_path, **how)
    list(search.carry_out(job))
    assert len(runs.done) == 3 * 6
    assert {len(one.recipe.target) for one in runs.done} == {2}

    # The outer accuracy is shown where it is known, and nothing is chosen by it.
    before = search.outcome(read(job.records))
    assert [one.question.name for one in before] == list(DOMAINS)
    best = before[3].choice.best
    assert best.outer == {}
    (item,) = search.start.runs(search.searches[3]._recipe(best.changes), [("sketch",)])
    append(job.records, record(item))
    sketch = search.outcome(read(job.records))[3]
    assert sketch.choice.best.outer == pytest.approx(
        {0: accuracy(item, "sketch", best.share)}, 0.01
    )
    assert sketch.choice.chosen.changes == before[3].choice.chosen.changes


def test_of_named_sources_the_one_left_out_is_not_trained_on(
    tmp_path: Path, runs: Pretending
) -> None:
    how: Any = {"sources": DOMAINS[:3], "settings": 1, "seeds": 1}
    (found,) = carry_out(tmp_path, (), **how)
    trained = {one.recipe.target: one.recipe.sources for one in runs.done}
    assert trained == {
        ("art",): ("cartoon", "photo"),
        ("cartoon",): ("art", "photo"),
        ("photo",): ("art", "cartoon"),
    }
    assert yaml.safe_load(found.recipe_text())["sources"] == ["art", "cartoon", "photo"]


def test_a_list_of_settings_is_tried_to_its_end_in_its_order(
    tmp_path: Path, runs: Pretending
) -> None:
    given: list[dict[str, Any]] = [{"lr": 10.0**-n} for n in range(1, 6)]
    given.append({"method": "deepall", "augmentation": "strong"})
    how: Any = {"every": True, "sampler": "random", "lengths": 1, "seeds": 1}
    search, job = tuning(tmp_path, space={"settings": given}, settings=6, **how)
    planned = search.wanted([], 6)
    assert len(planned) == 6 * 6
    assert [one.recipe.method for one in planned] == ["bne"] * 5 * 6 + ["deepall"] * 6
    rates = [one.recipe.train.optimiser.learning_rate for one in planned[::6]]
    own = RECIPE.train.optimiser.learning_rate
    assert rates == pytest.approx([own, 0.1, 0.01, 1e-4, 1e-5, own])  # which is the first
    list(search.carry_out(replace(job, parallel=36)))
    assert len(runs.done) == 36
    found = search.outcome(read(job.records))
    assert all(one.finished and one.importances == {} for one in found)
    assert {len({row.digest for row in one.rows}) for one in found} == {6}
    head, rows = grid(found[0])
    assert rows[0][head.index("settings")] == "learning_rate=0.01"
    assert "as it is" in [row[head.index("settings")] for row in rows]


def test_a_plan_is_carried_out_elsewhere_and_its_records_read_back(
    tmp_path: Path, runs: Pretending
) -> None:
    how: Any = {"sampler": "random", "settings": 6, "kept": True}
    search, job = tuning(tmp_path, **how)
    file = tmp_path / "plan.json"
    sizes = []
    while items := search.wanted(read(job.records), 6):
        write_plan(file, items, ["sketch"])
        planned, without = read_plan(file)
        assert without == ("sketch",)
        assert [one.digest for one in planned] == [one.digest for one in items]
        for item in planned:
            append(job.records, record(item))
        sizes.append(len(planned))
        search, job = tuning(tmp_path, **how)  # another day
    assert sizes[0] == 6 * 3
    assert len(sizes) == 3  # short, in full, more seeds
    assert not runs.done
    (found,) = search.outcome(read(job.records))
    assert found.finished


def test_the_time_is_known_from_recorded_runs(tmp_path: Path, runs: Pretending) -> None:
    search, job = tuning(tmp_path)
    asked = [one.question for one in search.searches]
    assert expected(search.start, asked, []) == (9 * 3 + 3 * 3 + 3 * 2 * 3, None)
    list(search.carry_out(job, limit=1))
    _, seconds = expected(search.start, asked, read(job.records))
    assert seconds == pytest.approx(2 / (3 + 2) * (27 * (3 + 2) + 27 * (9 + 2)))
    (known,) = read(job.records)
    slow = replace(known, seconds=90.0, environment={"code_sha256": "of an earlier version"})
    assert expected(search.start, asked, [slow] * 9 + [known])[1] == seconds
    for other in ({"size": 64}, {"epoch": 5}, {"per_domain": 4}):  # their epochs take another time
        start = replace(search.start, recipe=replace(RECIPE, **other))
        assert expected(start, asked, read(job.records))[1] is None


def test_networks_that_were_undone_are_counted_in_runs_in_full(
    tmp_path: Path, runs: Pretending
) -> None:
    search, job = tuning(tmp_path, lengths=2, settings=3)
    list(search.carry_out(job))
    records = read(job.records)
    assert search.how_many_undone(records, 7) == ""
    scores = ({"art": Score(own, 10)} for own in (8, 2))
    head, first = (
        Epoch(phase, 1, phase, 1, 9.0, 0.1, 1.0, 1.0, own, {}).to_dict()
        for phase, own in zip(("head", "train"), scores, strict=True)
    )
    full = [one.settings["train"]["epochs"] == 9 for one in records]
    assert 0 < sum(full) < len(full)
    undone = [replace(one, epochs=(head, first)) for one in records]
    assert f" {sum(full)} of {sum(full)} " in search.how_many_undone(undone, 7)
    one = full.index(True)
    some = [*records[:one], undone[one], *records[one + 1 :]]
    assert f" 1 of {sum(full)} " in search.how_many_undone(some, 7)


def test_without_optuna_a_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'bne\[tune\]'"):
        study_file(tmp_path / "study.db")


def test_the_file_says_how_it_was_found(tmp_path: Path, runs: Pretending) -> None:
    how: Any = {"target": (), "settings": 3, "seeds": 1, "kept": True}
    (found,) = carry_out(tmp_path, **how)
    text = found.recipe_text()
    assert found.how_sure in text
    assert "target" not in yaml.safe_load(text)
    search, job = tuning(tmp_path, **how)
    assert Found(read(job.records)).of(runs.done[0]) is not None
    assert search.best_so_far().startswith("Best so far for new domain: ")
