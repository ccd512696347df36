"""Prediction on a Ray cluster: a stage of Ray Data, with a model in every worker."""

from __future__ import annotations

import json
import logging
import os
import pickle
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.benchmark.ray import connected
from bne.data.values import Tally
from bne.deploy.predict import open_engine, predict
from bne.deploy.rows import PLACES, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bne.deploy.pictures import Picture
    from bne.deploy.rows import Row

BATCH = 64  # images that a worker gets at a time


@dataclass(frozen=True)
class Job:
    """What every worker does.

    Attributes:
        model: path of the model, which all machines can reach, like those of images.
        device: to compute on.
        columns: of the rows.
        top: classes per row.
        abstain: probability below which an image is left open.
        mode: how the model answers, see `bne.deploy.classifier.set_mode`.
        folder: that relative paths start from.
    """

    model: Path
    device: str
    columns: Sequence[str]
    top: int = 1
    abstain: float = 0.0
    mode: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)


class Stage:
    """What `map_batches` runs: one in each worker, which opens the model once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # where the folder is not, only absolute paths are found
            os.chdir(job.folder)
        self.engine, self.model = open_engine(job.model, job.device, **job.mode)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Predicts pictures; a row is a line of JSON, or empty beside the image's problem.

        What all of them lose of more than 8 bits stands beside the first.
        """
        job, lines, problems, lost = self.job, [], [], Tally()
        pictures: list[Picture] = [pickle.loads(one) for one in batch["picture"]]  # noqa: S301 - ours
        places = any(name in PLACES for name in job.columns)
        for part in predict(self.engine, self.model, pictures, abstain=job.abstain, places=places):
            made = rows(part.names, part.answers, job.columns, job.top) if part.answers else []
            lines += [json.dumps(row) for row in made] + [""] * len(part.problems)
            problems += [""] * len(made) + part.problems
            lost += part.tally
        tallies = [list(own) for own in (lost, *[Tally()] * (len(lines) - 1))]
        return {"row": lines, "problem": problems, "tally": tallies}


def predict_on_ray(
    job: Job, pictures: Sequence[Picture], address: str | None = None
) -> Iterator[tuple[Row | None, str, Tally]]:
    """Classifies images on all machines of a cluster, in their order.

    A batch whose worker dies is done again by another.

    Args:
        job: what every worker does.
        pictures: the images.
        address: of a Ray cluster, "host:port", or "auto"; None starts one on this machine.

    Yields:
        The row of an image, or None; why it cannot be read; and what it and others of its batch
        lose of more than 8 bits.

    Raises:
        SettingsError: Ray is not installed, or no cluster answers.
    """
    with connected(address) as ray:
        context = ray.data.DataContext.get_current()
        # After ray.data, which sets its own level, was imported.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        gpus = int(ray.cluster_resources().get("GPU", 0)) if job.device == "cuda" else 0
        workers = gpus or max(1, int(ray.cluster_resources().get("CPU", 1)))
        batches = -(-len(pictures) // BATCH)
        items = [{"picture": pickle.dumps(picture)} for picture in pictures]
        stage = ray.data.from_items(
            items, override_num_blocks=min(batches, 4 * workers)
        ).map_batches(
            Stage,
            fn_constructor_args=(job,),
            batch_size=BATCH,
            compute=ray.data.ActorPoolStrategy(size=min(workers, batches)),
            num_gpus=1 if gpus else None,
        )
        for found in stage.iter_rows():
            row = json.loads(found["row"]) if found["row"] else None
            yield row, found["problem"], Tally(*map(int, found["tally"]))
