"""Carries out a plan on a Ray cluster: each run a task, on any machine, retried if it dies there.

Workers send records back and this process alone adds them to the records file, so no machine but
this one needs to reach it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.benchmark.execute import DIED, STOPPED, Outcome, attempt, run_folder
from bne.benchmark.records import append, finished, read
from bne.errors import Interrupted, SettingsError
from bne.training.environment import noticed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bne.benchmark.execute import Job
    from bne.benchmark.plan import Item

RETRIES = 3
SECONDS_TO_NOTICE = 0.5
SECONDS_TO_SAVE = 60.0
SECONDS_TO_ANSWER = 10.0
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_task_oom_retries": str(RETRIES)}


@dataclass(frozen=True)
class Cluster:
    """Where the runs are carried out.

    Attributes:
        address: of a Ray cluster, "host:port", or "auto" for the one this machine is part of; None
            starts one on this machine, which ends with the plan.
        gpus_per_run: the part of a GPU that a run takes, 0.25 for four runs on one.
    """

    address: str | None = None
    gpus_per_run: float = 1.0


def execute_on_ray(items: Sequence[Item], job: Job, cluster: Cluster) -> Iterator[Outcome]:
    """Carries out runs and yields how each ended; one that fails does not stop the others.

    A run whose process or machine dies is tried again, and goes on from its folder where the next
    machine can reach it. The device of the job may be "auto": the cluster's GPUs, if it has any.

    Raises:
        SettingsError: Ray is not installed, no cluster answers, or it has no GPU that is wanted.
        Interrupted: Ctrl-C or SIGTERM; what the runs at work had done is saved.
    """
    if not items:
        return
    # Signals are noted and no more: Ray forgets an exception that a handler raises while it waits.
    with noticed() as interruption, connected(cluster.address) as ray:
        device = _device(job.device, ray.cluster_resources().get("GPU", 0))
        job = replace(job, device=device)
        task = ray.remote(attempt).options(
            num_cpus=1,
            num_gpus=cluster.gpus_per_run if device == "cuda" else 0,
            max_retries=RETRIES,
            retry_exceptions=[Interrupted],  # by SIGTERM: a machine that is taken away
        )
        running = {task.remote(*_for_workers(item, job)): item for item in items}
        try:
            while running:
                done, _ = ray.wait(list(running), num_returns=1, timeout=SECONDS_TO_NOTICE)
                for reference in done:
                    outcome = _outcome(ray, reference, running[reference])
                    _record(outcome, job)
                    del running[reference]
                    yield outcome
                if interruption.wanted:
                    raise Interrupted(STOPPED)
        finally:
            _cancel(ray, running)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """A context with the module ray, connected."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise SettingsError(
            "Ray is not installed; pip install 'bne[ray]' brings it, or use --engine local."
        ) from error
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _check_answer(address or "")
        ray.init(
            address or "local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray raises bare ones too, such as where it starts too slowly
        place = f"--ray-address {address}" if address else "A local Ray"
        reason = str(error).partition("\n")[0].removesuffix(".")
        raise SettingsError(f"{place}: no Ray cluster can be used ({reason}).") from error
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray's own would end us before runs are saved
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Fails at once where nobody listens; Ray would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()


def _device(name: str, gpus: float) -> str:
    if name not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"--device {name}: choose auto, cpu or cuda.")
    if name == "cuda" and not gpus:
        raise SettingsError("--device cuda: the Ray cluster has no GPU; choose cpu.")
    return "cuda" if gpus and name != "cpu" else "cpu"


def _for_workers(item: Item, job: Job) -> tuple[Item, Job]:
    """The same with absolute paths, since workers have folders of their own to start in."""
    weights = item.recipe.weights
    if weights and Path(weights).is_file():
        item = replace(item, recipe=replace(item.recipe, weights=str(Path(weights).absolute())))
    return item, replace(
        job,
        data=job.data.absolute(),
        cache=job.cache.absolute() if job.cache else None,
        out=job.out.absolute(),
        records=_own_records(item, job).absolute(),
    )


def _own_records(item: Item, job: Job) -> Path:
    """The file that a worker keeps its record in until this process has it."""
    folder = run_folder(item, job.out)
    return folder.with_name(f"{folder.name}.jsonl")


def _outcome(ray: Any, reference: Any, item: Item) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
        return replace(outcome, item=item)
    except ray.exceptions.RayTaskError as error:
        return Outcome(item, problem=str(error.cause) or type(error.cause).__name__)
    except ray.exceptions.RayError:
        return Outcome(item, problem=f"{DIED}, {RETRIES + 1} times")


def _record(outcome: Outcome, job: Job) -> None:
    if outcome.record is None:
        return
    if finished(read(job.records), outcome.item) is None:
        append(job.records, outcome.record)
    _own_records(outcome.item, job).unlink(missing_ok=True)


def _cancel(ray: Any, references: Iterable[Any]) -> None:
    """Stops runs, on which they save what they have done."""
    left = list(references)
    for reference in left:
        ray.cancel(reference)
    if left:
        ray.wait(left, num_returns=len(left), timeout=SECONDS_TO_SAVE)
