"""Plans carried out on a real Ray, of two processes on this machine."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bne.benchmark import ray as ray_engine
from bne.benchmark.execute import DIED, Job, execute, run_folder
from bne.benchmark.plan import Item
from bne.benchmark.ray import Cluster, execute_on_ray
from bne.benchmark.records import Record, read
from bne.errors import Interrupted, SettingsError
from bne.recipes.schema import Phase, Recipe
from bne.training.environment import SIGNALS
from tests.benchmark import ray_workers
from tests.benchmark.test_execute import item


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster that somebody else has started."""
    RealCluster = pytest.importorskip("ray.cluster_utils").Cluster  # noqa: N806 - a class

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        node = {"num_cpus": 2, "include_dashboard": False}
        real = RealCluster(initialize_head=True, head_node_args=node)
        yield Cluster(real.address)
        real.shutdown()


def pretend(row: str, seed: int = 0) -> Item:
    return Item("test", row, Recipe(method="bne", target=("photo",), seed=seed))


def figures(record: Record) -> dict[str, object]:
    """All of a record but times and versions."""
    epochs = [{**e, "seconds": 0, "images_per_second": 0} for e in record.epochs]
    return {**record.to_dict(), "epochs": epochs, "seconds": 0, "environment": {}}


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def holder(lock: Path) -> int:
    """The process that has a file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == lock:
                return int(link.parts[2])
        except OSError:
            continue
    raise AssertionError(f"nobody holds {lock}")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to find the worker")
@pytest.mark.usefixtures("one_thread")
def test_a_worker_killed_in_the_middle(cluster: Cluster, job: Job, tmp_path: Path) -> None:
    long = [item(method, train=Phase(epochs=12, warm_up=1)) for method in ("deepall", "bne")]
    victim = run_folder(long[1], job.out)
    metrics = victim / "metrics.jsonl"
    seen: list[dict[str, object]] = []

    def kill() -> None:
        wait_for(metrics.exists)
        worker = holder(victim.with_name(f"{victim.name}.lock"))
        wait_for(lambda: len(metrics.read_text().splitlines()) >= 4)
        os.kill(worker, signal.SIGKILL)
        seen.extend(json.loads(line) for line in metrics.read_text().splitlines())

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    outcomes = list(execute_on_ray(long, job, cluster))
    killer.join(1)
    assert 4 <= len(seen) < 13
    assert [outcome.problem for outcome in outcomes] == ["", ""]
    records = {record.row: record for record in read(job.records)}
    assert len(read(job.records)) == len(records) == 2
    assert records["bne"].epochs[0] == seen[0]  # with its time: it ended with a checkpoint
    assert list(job.out.iterdir()) == []

    alone = replace(job, out=tmp_path / "local", records=tmp_path / "local.jsonl")
    for outcome in execute(long, alone):
        assert outcome.record is not None
        assert figures(records[outcome.item.row]) == figures(outcome.record)


@pytest.mark.slow
def test_what_goes_wrong_is_told_and_does_not_stop_the_others(
    cluster: Cluster, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "attempt", ray_workers.attempt)
    monkeypatch.setattr(ray_engine, "RETRIES", 1)
    rows = ["fine", "deadly", "unwritable", "fine too"]
    outcomes = execute_on_ray([pretend(row) for row in rows], job, cluster)
    problems = {outcome.item.row: outcome.problem for outcome in outcomes}
    deaths = (job.out / "deaths").read_text().split()
    assert len(set(deaths)) == len(deaths) == 2
    expected = ("fine", f"{DIED}, 2 times", "no such luck", "fine too")
    assert problems == dict(zip(rows, expected, strict=True))


@pytest.mark.slow
def test_a_signal_stops_runs_that_save_what_they_did(
    cluster: Cluster, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "attempt", ray_workers.attempt)
    before = [signal.getsignal(number) for number in SIGNALS]
    states = [job.out / f"{seed}" for seed in range(4)]

    def stop() -> None:
        wait_for(lambda: states[0].exists() and states[1].exists())
        os.kill(os.getpid(), signal.SIGTERM)  # which Ray would handle in its own way

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Interrupted, match="the same command goes on"):
        list(execute_on_ray([pretend("endless", seed) for seed in range(4)], job, cluster))
    assert [state.read_text() for state in states[:2]] == ["saved", "saved"]
    assert not any(state.exists() for state in states[2:])
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.slow
def test_a_cluster_without_a_gpu(cluster: Cluster, job: Job) -> None:
    with pytest.raises(SettingsError, match="the Ray cluster has no GPU; choose cpu"):
        list(execute_on_ray([pretend("fine")], replace(job, device="cuda"), cluster))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_an_address_where_no_cluster_is(address: str, job: Job) -> None:
    pytest.importorskip("ray")
    with pytest.raises(SettingsError, match=f"^--ray-address {address}: no Ray cluster"):
        list(execute_on_ray([pretend("fine")], job, Cluster(address)))


def test_a_ray_that_does_not_start(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")

    def slow(*_: object, **__: object) -> None:
        raise Exception("The node timed out.\nMore of it.")  # as Ray does

    monkeypatch.setattr(ray, "init", slow)
    said = r"^A local Ray: no Ray cluster can be used \(The node timed out\)\.$"
    with pytest.raises(SettingsError, match=said):
        list(execute_on_ray([pretend("fine")], job, Cluster()))


def test_without_ray(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install 'bne\[ray\]'"):
        list(execute_on_ray([pretend("fine")], job, Cluster()))
