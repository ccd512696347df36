"""One run of a plan: carried out, or continued, and recorded when it ends."""

from __future__ import annotations

import hashlib
import shutil
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bne.data.images import DataError
from bne.engine.errors import Interrupted
from bne.evaluation.records import Record, append, finished, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bne.data.prepared import PreparedImages
    from bne.evaluation.plan import Item


@dataclass(frozen=True)
class Job:
    """How the runs of a plan are carried out.

    Attributes:
        data: where the images are, as `bne.data.open_images` takes it.
        cache: of prepared images, as `bne.data.cache.prepare` takes it.
        out: the folder of the runs' own folders.
        records: the file that finished runs are added to.
        device: "cpu" or "cuda".
        parallel: how many runs share it at a time.
        analyse: whether trained networks are analysed where no table needs it.
        keep_models: whether the runs' folders stay, with the trained networks.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether source domains may lack classes that others have.
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


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a record, or with a problem to tell the user."""

    item: Item
    record: Record | None = None
    problem: str = ""


def attempt(item: Item, job: Job) -> Outcome:
    """One run, recorded; what goes wrong becomes a problem, with a traceback beside its folder."""
    folder = run_folder(item, job.out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    report = folder.with_name(f"{folder.name}.error")
    try:
        with _alone(folder):
            record = finished(read(job.records), item) or _run(item, job, folder)
        report.unlink(missing_ok=True)
        return Outcome(item, record)
    except Interrupted as error:
        raise Interrupted("Training was interrupted; the same command goes on.") from error
    except Exception as error:
        report.write_text(traceback.format_exc(), encoding="utf-8")
        return Outcome(item, problem=f"{error or type(error).__name__} (see {report})")


def run_folder(item: Item, out: Path) -> Path:
    """The folder of a run; other settings, images or weights have another."""
    of = hashlib.sha256(f"{item.digest} {item.materials}".encode()).hexdigest()[:16]
    row = "".join(c if c.isalnum() or c in "-+" else "-" for c in item.row).strip("-")
    target = item.target.replace("/", "-")
    return out / f"{row}_{target}_{item.recipe.seed}_{of}"


def _run(item: Item, job: Job, folder: Path) -> Record:
    from bne.engine.recipe_checks import official_split
    from bne.engine.run import run
    from bne.evaluation.analysis import analyse

    images = item.materials.images
    prepared = _prepared(job.data, images, job.cache, item.recipe.resize, job.skip_bad)
    result = run(
        item.recipe,
        prepared,
        folder,
        device=job.device,
        split_file=official_split(prepared.images, job.data),
        allow_gaps=job.allow_gaps,
        analyse=analyse if job.analyse or item.analysed else None,
        resume=True,
    )
    if item.analysed and not result.analysis:
        raise DataError(f"{folder} has this run without an analysis; remove it or change --out.")
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
    )
    append(job.records, record)
    shutil.rmtree(folder / "checkpoints" if job.keep_models else folder, ignore_errors=True)
    return record


@cache  # a worker opens the images once, not for every run, but others that lie there anew
def _prepared(
    data: Path, _: str | None, folder: Path | None, size: int, skip_bad: bool
) -> PreparedImages:
    from bne.data.cache import prepare
    from bne.data.sources import open_images

    return prepare(open_images(data), folder, size, skip_bad=skip_bad)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits for any other process that is at work on the same run."""
    import fcntl

    lock = folder.with_name(f"{folder.name}.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        lock.unlink(missing_ok=True)
