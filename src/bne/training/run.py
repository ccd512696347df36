"""A whole training run, from a recipe to a folder of results."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bne.errors import TrainingError
from bne.methods import create
from bne.models import build, calibrate_batch_norm
from bne.recipes.checks import split_sources
from bne.training.checkpoints import Keeper
from bne.training.distributed import joined, synchronise
from bne.training.environment import describe
from bne.training.events import Plan, Progress
from bne.training.files import plain
from bne.training.folder import Result, RunFolder, materials
from bne.training.inputs import Setting, kept
from bne.training.interruption import noticed
from bne.training.loop import Head, Trainer
from bne.training.model_folder import Trained
from bne.training.scores import scores, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from bne.data.cache import PreparedImages
    from bne.methods import Method
    from bne.recipes.schema import Recipe
    from bne.training.checkpoints import Checkpoint
    from bne.training.distributed import Processes
    from bne.training.events import Listener
    from bne.training.loop import PhaseTraining

CALIBRATION_IMAGES = 1024  # of all source domains together


def make_model(setting: Setting, *, resumed: bool) -> nn.Module:
    """The plain network, on the device.

    Args:
        setting: of the run.
        resumed: whether a checkpoint replaces all its tensors, so that statistics need no
            calibration.

    Raises:
        TrainingError: There is no such network, or the initial weights do not fit it.
    """
    recipe = setting.recipe
    setting.seed("model")
    try:
        model = build(recipe.backbone, len(setting.prepared.images.classes), recipe.weights)
    except (ValueError, RuntimeError) as error:
        raise TrainingError(f"backbone {recipe.backbone}: {error}.") from error
    _place(model, setting)
    if recipe.calibrate and not resumed:
        calibrate_batch_norm(model, list(setting.look(_sample(setting))))
    return model


def make_method(setting: Setting, model: nn.Module) -> Method:
    """The recipe's method, which takes the network over, on the device.

    Raises:
        TrainingError: There is no such method, or its options are wrong.
    """
    recipe = setting.recipe
    setting.seed("method")
    try:
        method = create(recipe.method, model, setting.domains, recipe.options)
    except ValueError as error:
        raise TrainingError(f"method {recipe.method}: {error}.") from error
    if setting.processes.count > 1:
        synchronise(method)
    _place(method, setting)
    return method


def _place(network: nn.Module, setting: Setting) -> None:
    network.to(setting.processes.device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def _sample(setting: Setting) -> list[int]:
    """Training images, as many of every source domain, spread evenly over each."""
    share = CALIBRATION_IMAGES // len(setting.train)
    return [
        numbers[place * len(numbers) // count]
        for numbers in setting.train.values()
        for count in [min(share, len(numbers))]
        for place in range(count)
    ]


def run(
    recipe: Recipe,
    prepared: PreparedImages,
    folder: Path,
    *,
    device: str | torch.device = "cpu",
    split_file: Path | None = None,
    allow_gaps: bool = False,
    listeners: Sequence[Listener] = (),
    analyse: Callable[[Trained], dict[str, Any]] | None = None,
    resume: bool = False,
    graphs: bool | None = None,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
) -> Result:
    """Trains as the recipe says and writes everything into a folder.

    Args:
        recipe: every setting.
        prepared: all images, targets included, resized to `recipe.resize`.
        folder: of the run. One that holds a run of another recipe, other images or weights is
            refused; a finished run is returned as it is.
        device: to train on.
        split_file: the benchmark's own split, see `bne.recipes.checks.official_split`; with
            `validation: auto` it is followed if given, and the recipe of the result says which it
            was.
        allow_gaps: whether source domains may lack classes that others have.
        listeners: hear how it goes.
        analyse: makes `Result.analysis`, plain numbers and texts, of the trained network.
        resume: whether to go on with an unfinished run of the folder, if there is one.
        graphs: whether steps are recorded and replayed as CUDA graphs; by default wherever that
            can be done: on one GPU.
        checkpoint_seconds: the longest time without a checkpoint; there is one after every epoch.
        checkpoint_steps: the most steps without one.

    Raises:
        TrainingError: The loss is no longer a number, the folder holds another run or is in
            use, a checkpoint is damaged, nothing more can be written, or the GPU's memory does
            not suffice.
        Interrupted: Ctrl-C or SIGTERM; what was done is saved.
        DataError: The images do not fit the recipe.
    """
    with joined(device) as processes, kept(processes.device), _memory_explained():
        # In a function of its own, so that nothing of the run outlives the group of processes.
        return _carry_out(
            processes,
            recipe,
            prepared,
            Path(folder),
            split_file=split_file,
            allow_gaps=allow_gaps,
            listeners=listeners,
            analyse=analyse,
            resume=resume,
            graphs=graphs,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_steps=checkpoint_steps,
        )


def _carry_out(
    processes: Processes,
    recipe: Recipe,
    prepared: PreparedImages,
    folder: Path,
    *,
    split_file: Path | None,
    allow_gaps: bool,
    listeners: Sequence[Listener],
    analyse: Callable[[Trained], dict[str, Any]] | None,
    resume: bool,
    graphs: bool | None,
    checkpoint_seconds: float,
    checkpoint_steps: int | None,
) -> Result:
    """What `run` does, as one of several processes."""
    recipe = recipe.settle_validation(official=split_file is not None)
    place = RunFolder(folder)
    place.check(recipe, resume=resume)
    splits = split_sources(recipe, prepared.images, split_file)
    environment = describe(processes.device, recipe.weights)
    made_of = materials(recipe, prepared.images, splits, environment["weights"]["sha256"])
    place.check_materials(made_of)
    finished = place.finished()
    if finished is not None:
        return finished
    setting = Setting.of(recipe, prepared, processes, split_file, allow_gaps=allow_gaps)
    heard = listeners if processes.first else ()
    with (
        place.alone() if processes.first else nullcontext(),
        noticed() as interruption,
        Keeper(place, setting) as keeper,
    ):
        checkpoint = keeper.resumed() if resume else None
        progress = Progress.from_dict(checkpoint.state["progress"] if checkpoint else {})
        if processes.first:
            place.begin(recipe, made_of, environment, progress.epochs)
        for listener in heard:
            listener.started(_plan(setting, place, progress))
        trainer = Trainer(
            setting,
            progress,
            place,
            keeper,
            interruption,
            heard,
            graphs=_graphs(graphs, processes),
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_steps=checkpoint_steps,
        )
        training = _train(trainer, setting, progress, checkpoint)
        method = _finish(trainer, setting, progress, training)
        keeper.model(place.model, method)
        analysis = {}
        if analyse and processes.first:
            analysis = plain(analyse(_trained(setting, method)))
        keeper.wait()
        result = Result(
            recipe=plain(recipe.to_dict()),
            environment=environment,
            epochs=progress.epochs,
            accuracy=select(progress.epochs),
            precision=setting.precision,
            target_images="unlabelled" if setting.uses_target else "unseen",
            analysis=analysis,
            seconds=trainer.seconds,
        )
        if processes.first:
            place.finish(result)
        processes.wait()
    for listener in heard:
        listener.finished(result)
    return result


@contextmanager
def _memory_explained() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"The GPU's memory does not suffice ({str(error).partition('. ')[0]}); leave more of "
            "it to this run, or lower its need (accumulate, options.max_branches)."
        ) from error


def _train(
    trainer: Trainer, setting: Setting, progress: Progress, checkpoint: Checkpoint | None
) -> PhaseTraining:
    """Carries out both phases, or what is left of them."""
    tensors = checkpoint.tensors if checkpoint else None
    model = make_model(setting, resumed=checkpoint is not None)
    if progress.phase == "head":
        head = Head(model)
        trainer.phase("head", head, tensors)
        model, tensors = head.release(), None
    return trainer.phase("train", make_method(setting, model), tensors)


def _finish(
    trainer: Trainer, setting: Setting, progress: Progress, training: PhaseTraining
) -> Method:
    """The method as it is kept: with averaged weights and exact statistics, if wanted."""
    training.begin_epoch(progress.epoch - 1)
    training.adopt_average()
    method = training.method
    if setting.recipe.exact_statistics:
        training.measure_statistics()
        validation, target = scores(setting, method)
        last = progress.epochs[-1]
        exact = replace(last, validation=validation, target=target, statistics="exact")
        trainer.record(exact, method)
    return method.eval()


def _graphs(asked: bool | None, processes: Processes) -> bool:
    possible = processes.device.type == "cuda" and processes.count == 1
    if asked and not possible:
        raise TrainingError("graphs needs one process on a GPU; leave it out.")
    return possible if asked is None else asked


def _plan(setting: Setting, folder: RunFolder, progress: Progress) -> Plan:
    recipe = setting.recipe
    return Plan(
        recipe=recipe,
        folder=folder.path,
        device=str(setting.processes.device),
        precision=setting.precision,
        classes=setting.prepared.images.classes,
        sources=tuple(setting.splits),
        target=tuple(setting.target),
        training_images={domain: len(numbers) for domain, numbers in setting.train.items()},
        steps_per_epoch=setting.steps_per_epoch,
        steps=setting.steps_per_epoch * (recipe.head.epochs + recipe.train.epochs),
        first_step=progress.step,
        processes=setting.processes.count,
    )


def _trained(setting: Setting, method: Method) -> Trained:
    return Trained(
        method,
        setting.transform,
        setting.prepared,
        setting.feed,
        setting.splits,
        setting.recipe,
        setting.processes.device,
    )
