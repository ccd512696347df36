"""Plans carried out on tiny pictures."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from filelock import FileLock

from bne.benchmark import execute as benchmark
from bne.benchmark.execute import DIED, Job, Outcome, execute, run_folder
from bne.benchmark.plan import Item
from bne.benchmark.records import read
from bne.errors import Interrupted
from bne.recipes.schema import HeadPhase, Phase, Recipe
from bne.training import run as engine
from bne.training.events import Listener
from bne.training.model_folder import load_model
from tests.benchmark import workers


def item(method: str, target: str = "photo", **changes: object) -> Item:
    settings: dict[str, object] = {"backbone": "small_cnn", "weights": None, "resize": 32}
    settings |= {"exact_statistics": False, "per_domain": 4, "validation": 0.2}
    settings |= {"head": HeadPhase(epochs=1), "train": Phase(epochs=2, warm_up=1)}
    return Item("test", method, Recipe(method=method, target=(target,), **{**settings, **changes}))


def test_a_domain_named_like_a_path_has_its_folder_with_the_others(job: Job) -> None:
    assert run_folder(item("bne", "../../evil"), job.out).parent == job.out


def test_runs_are_recorded_with_all_that_tables_need_and_not_repeated(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [item("deepall"), item("bne")]
    outcomes = list(execute(plan, job))
    assert [outcome.problem for outcome in outcomes] == ["", ""]
    records = read(job.records)
    assert [record.digest for record in records] == [one.digest for one in plan]
    for record in records:
        assert record.accuracy.keys() == {"last", "validation", "oracle"}
        assert record.accuracy["last"]["photo"]["images"] == 12
        predicted = record.analysis["target"]["accuracy"]["prediction"]
        assert record.accuracy["last"]["photo"].items() >= predicted["photo"].items()
        assert [epoch["phase"] for epoch in record.epochs] == ["head", "train", "train"]
        assert record.environment["precision"] == "float32"
        assert record.seconds > 0
    assert list(records[1].analysis["branches"]) == ["art", "sketch"]
    assert list(job.out.iterdir()) == []  # no network is kept unless asked for

    before = job.records.read_bytes()
    monkeypatch.setattr("bne.training.run.run", None)
    assert [outcome.record for outcome in execute(plan, job)] == records
    assert job.records.read_bytes() == before


def test_networks_are_kept_if_asked_for(job: Job) -> None:
    kept = replace(job, keep_models=True, analyse=False)
    (outcome,) = execute([item("deepall")], kept)
    assert outcome.record is not None
    assert not outcome.record.analysis
    folder = run_folder(item("deepall"), job.out)
    assert load_model(folder / "model")[2].method == "deepall"
    assert not (folder / "checkpoints").exists()


def test_a_failed_run_is_told_and_does_not_stop_the_others(job: Job) -> None:
    bad = item("deepall", per_domain=4, resize=16)
    outcomes = list(execute([bad, item("deepall")], job))
    assert [outcome.record is None for outcome in outcomes] == [True, False]
    assert "16" in outcomes[0].problem
    (report,) = job.out.glob("*.error")
    assert "Traceback" in report.read_text()
    assert str(report) in outcomes[0].problem


def test_an_interrupted_run_goes_on_where_it_was(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (alone,) = execute([item("bne")], job)
    job.records.unlink()
    real = engine.run

    def interrupted(*arguments: object, **options: object) -> object:
        class Stop(Listener):
            def finished_epoch(self, epoch: object) -> None:
                if epoch.phase == "train":
                    os.kill(os.getpid(), signal.SIGTERM)

        return real(*arguments, **{**options, "listeners": [Stop()]})

    monkeypatch.setattr(engine, "run", interrupted)
    with pytest.raises(Interrupted, match=r"^Training was interrupted; the same command"):
        list(execute([item("bne")], job))
    assert read(job.records) == []
    monkeypatch.setattr(engine, "run", real)
    (resumed,) = execute([item("bne")], job)
    assert resumed.record.accuracy == alone.record.accuracy
    assert resumed.record.analysis == alone.record.analysis


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "attempt", workers.attempt)
    monkeypatch.setattr(benchmark, "_start_worker", workers.start)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("parallel", [2, 3])
def test_a_process_that_dies_does_not_stop_the_others(parallel: int) -> None:
    items = ["a", "b", "deadly", "c", "deadly too", "d"]
    told = list(execute(items, SimpleNamespace(parallel=parallel)))
    deaths = {one.item: one.problem for one in told if isinstance(one, Outcome)}
    assert deaths == {"deadly": DIED, "deadly too": DIED}
    assert sorted(one for one in told if isinstance(one, str)) == [f"done: {i}" for i in "abcd"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes_at_work(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, children = Mock(), multiprocessing.active_children
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [*children(), ours])
    before = signal.getsignal(number)
    outcomes = execute(["a", "endless", "endless", "b"], SimpleNamespace(parallel=2))
    assert next(outcomes) == "done: a"
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
    started = time.monotonic()
    with pytest.raises(Interrupted, match="the same command goes on"):
        next(outcomes)
    assert time.monotonic() - started < 20
    assert children() == []
    ours.terminate.assert_not_called()  # a child of the program itself
    assert signal.getsignal(number) is before


def test_the_same_run_is_never_at_work_twice(job: Job) -> None:
    one = item("deepall")
    lock = run_folder(one, job.out)
    with FileLock(lock.with_name(f"{lock.name}.lock")):
        worker = threading.Thread(target=benchmark.attempt, args=(one, job))
        worker.start()
        worker.join(0.5)
        assert worker.is_alive()
        assert not run_folder(one, job.out).exists()
    worker.join()
    assert len(read(job.records)) == 1
