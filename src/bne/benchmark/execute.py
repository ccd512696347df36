"""Carries out a plan, one run after another or several at a time."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import signal
import traceback
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from bne.benchmark.records import Record, alone_with, append, finished, read
from bne.errors import Interrupted, SettingsError
from bne.training.files import named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from bne.benchmark.plan import Item
    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet, Way
    from bne.training.events import Listener

CHECKPOINT_SECONDS = 60.0

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    size: int,
    start: Callable[[int], None] | None = None,
) -> Iterator[tuple[Task, Result | None]]:
    """Yields every task with its result as they come; None if its process died.

    When a process dies, those at work with it are repeated one at a time, to tell who did it. If
    the caller stops early, processes at work get a SIGTERM.

    Args:
        work: that a process can import, as it can `tasks`, and that returns what it can send.
        tasks: what to do.
        size: how many at a time.
        start: is called in every new process with the number of them.
    """
    waiting = deque(tasks)
    while waiting:
        running: dict[Future[Result], Task] = {}
        count = min(size, len(waiting))
        executor = ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=partial(start, count) if start else None,
        )
        try:
            while waiting or running:
                # No more than can be at work: were a process to die, one of these did it.
                while waiting and len(running) < size:
                    task = waiting[0]
                    running[executor.submit(work, task)] = task
                    waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield running.pop(future), result
        except BrokenProcessPool:
            suspects = list(running.values())
            running.clear()
            for task in suspects:
                if size == 1:
                    yield task, None
                else:
                    yield from in_processes(work, [task], 1, start)
        finally:
            if running:
                # As terminate_workers of Python 3.14 does: the program may have other children.
                for process in list(executor._processes.values()):
                    process.terminate()
            executor.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Job:
    """How the runs of a plan are carried out.

    Attributes:
        data: where the images are; `cache` has them prepared.
        out: the folder of the runs' own folders.
        records: the file that finished runs are added to.
        device: "cpu" or "cuda", which `parallel` runs use at a time.
        analyse: whether trained networks are analyzed where no table needs it.
        keep_models: whether the runs' folders stay, with the trained networks.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether source domains may lack classes that others have.
        without: domains of which nothing is opened.
    """

    data: Path
    cache: Path | None
    out: Path
    records: Path
    device: str = "cpu"
    parallel: int = 1
    analyse: bool = True
    keep_models: bool = False
    skip_bad: bool = False
    allow_gaps: bool = False
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a record, or with a problem to tell the user."""

    item: Item
    record: Record | None = None
    problem: str = ""


def attempt(item: Item, job: Job, listeners: Sequence[Listener] = ()) -> Outcome:
    """One run, recorded; what goes wrong becomes a problem, with a traceback beside its folder."""
    folder = run_folder(item, job.out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    report = folder.with_name(f"{folder.name}.error")
    try:
        with alone_with(folder):
            record = finished(read(job.records), item) or _run(item, job, folder, listeners)
        report.unlink(missing_ok=True)
        return Outcome(item, record)
    except Interrupted as error:
        raise Interrupted("Training was interrupted; the same command goes on.") from error
    except Exception as error:
        with named(report):
            report.write_text(traceback.format_exc(), encoding="utf-8")
        return Outcome(item, problem=f"{error or type(error).__name__} (see {report})")


def run_folder(item: Item, out: Path) -> Path:
    """The folder of a run; other settings, images or weights have another."""
    of = hashlib.sha256(f"{item.digest} {sorted(item.materials.items())}".encode())
    row = "".join(c if c.isalnum() or c in "-+" else "-" for c in item.row).strip("-")
    target = item.target.replace("/", "-")
    return out / f"{row}_{target}_{item.recipe.seed}_{of.hexdigest()[:16]}"


def _run(item: Item, job: Job, folder: Path, listeners: Sequence[Listener]) -> Record:
    from bne.data.splits import official_split
    from bne.inspection.analysis import analyse
    from bne.recipes.inputs import Inputs
    from bne.training.run import run

    names = item.materials.get("images")
    split_file, images = official_split(job.data), _opened(job.data, job.without, names)
    inputs = Inputs.of(item.recipe, images, split_file, allow_gaps=job.allow_gaps)
    prepared = _prepared(job.data, job.without, names, job.cache, inputs.way, job.skip_bad)
    if prepared.skipped:
        inputs = Inputs.of(item.recipe, prepared.images, split_file, allow_gaps=job.allow_gaps)
    wanted = job.analyse or item.analysed
    result = run(
        inputs,
        prepared,
        folder,
        device=job.device,
        listeners=listeners,
        analyse=analyse if wanted else None,
        resume=True,
        checkpoint_seconds=CHECKPOINT_SECONDS,
        lasting=job.keep_models,
    )
    if item.analysed and not result.analysis:
        raise SettingsError(
            f"{folder} has this run without an analysis; remove it or change --out."
        )
    fields = result.to_dict()
    record = Record(
        experiment=item.experiment,
        row=item.row,
        settings=item.settings,
        accuracy=fields["accuracy"],
        seconds=result.seconds,
        materials=item.materials,
        epochs=tuple(fields["epochs"]),
        analysis=result.analysis,
        environment={**result.environment, "precision": result.precision},
        leaning=tuple(fields["leaning"]),
    )
    append(job.records, record)
    shutil.rmtree(folder / "checkpoints" if job.keep_models else folder, ignore_errors=True)
    return record


@cache  # a worker opens the images once, not for every run, but others that lie there anew
def _opened(data: Path, without: tuple[str, ...], _: str | None) -> ImageSet:
    return open_without(data, without)


def open_without(data: Path, without: Collection[str]) -> ImageSet:
    """The images that runs may see; where they train, what is set aside need not be."""
    from bne.data.sources import open_images

    images = open_images(data)
    return images.without([domain for domain in without if domain in images.domains])


@cache
def _prepared(
    data: Path,
    without: tuple[str, ...],
    names: str | None,
    folder: Path | None,
    way: Way,
    skip_bad: bool,
) -> PreparedImages:
    from bne.data.cache import prepare

    how: Any = {"fit": way.fit, "window": way.window, "channels": way.channels}
    return prepare(_opened(data, without, names), folder, way.size, **how, skip_bad=skip_bad)


DIED = "its process died, perhaps for lack of memory"
STOPPED = "Stopped; what was done is saved, and the same command goes on."


def execute(
    items: Sequence[Item], job: Job, listener: Callable[[Item], Listener] | None = None
) -> Iterator[Outcome]:
    """Carries out runs and yields how each ended; one that fails does not stop the others.

    A run that was interrupted before is continued from its folder.

    Args:
        items: the runs.
        job: how they are carried out.
        listener: makes what hears how a run goes on; only of runs one after another.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; what the runs at work had done is saved.
    """
    if job.parallel == 1:
        for item in items:
            yield attempt(item, job, [listener(item)] if listener else ())
    else:
        with _interrupted_by_signals():
            work = partial(attempt, job=job)
            for item, outcome in in_processes(work, items, job.parallel, _start_worker):
                yield outcome or Outcome(item, problem=DIED)


def _start_worker(count: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """A context that Ctrl-C and SIGTERM leave in order."""

    def stop(*_: object) -> None:
        raise Interrupted(STOPPED)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
