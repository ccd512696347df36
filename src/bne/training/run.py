"""A whole training run, from its inputs to a folder of results."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from bne.core.ensemble import DomainEnsemble
from bne.errors import TrainingError
from bne.methods import create
from bne.models import build, calibrate_batch_norm, origin
from bne.models.registry import terms_of
from bne.training.checkpoints import Keeper
from bne.training.distributed import joined, synchronise
from bne.training.environment import describe, keep_memory, noticed
from bne.training.events import Progress, Start
from bne.training.files import hash_tensors, plain
from bne.training.folder import Result, RunFolder
from bne.training.identity import Identity
from bne.training.loop import Head, Pace, Trainer, seed_generators
from bne.training.manifest import determinism
from bne.training.model_folder import Trained
from bne.training.pace import EXACT, LEANING
from bne.training.runtime import Runtime
from bne.training.scores import choose_share, leanings, scores, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch import nn

    from bne.core.options import Lean
    from bne.data.cache import PreparedImages
    from bne.methods import Method
    from bne.recipes.inputs import Inputs
    from bne.recipes.schema import Recipe
    from bne.training.checkpoints import Checkpoint
    from bne.training.distributed import Processes
    from bne.training.events import Listener
    from bne.training.loop import PhaseTraining

    Analyse = Callable[[Trained], dict[str, Any]]

CALIBRATION_IMAGES = 1024  # of all source domains together


def run(
    inputs: Inputs,
    prepared: PreparedImages,
    folder: Path,
    *,
    device: str | torch.device = "cpu",
    listeners: Sequence[Listener] = (),
    analyse: Analyse | None = None,
    resume: bool = False,
    graphs: bool | None = None,
    checkpoint_seconds: float = 300.0,
    checkpoint_steps: int | None = None,
    lasting: bool = True,
) -> Result:
    """Trains and writes everything into a folder.

    Args:
        inputs: the recipe, with its images and their split.
        prepared: the same images, resized to the recipe's `resize`.
        folder: of the run. One that holds another run is refused; a finished run is returned as it
            is.
        device: to train on.
        listeners: hear how it goes; they are closed at the end.
        analyse: makes `Result.analysis`, plain numbers and texts, of the trained network.
        resume: whether to go on with an unfinished run of the folder, if there is one.
        graphs: whether steps are recorded and replayed as CUDA graphs; by default wherever that
            can be done: on one GPU.
        checkpoint_seconds: the longest time without a checkpoint.
        checkpoint_steps: the most steps without one.
        lasting: whether the folder stays when the run is over. If so, it gets the networks, and a
            checkpoint after every epoch; if not, one after each phase.

    Raises:
        TrainingError: The loss is no longer a number, the folder holds another run or is in
            use, a checkpoint is damaged, nothing more can be written, or the GPU's memory does
            not suffice.
        Interrupted: Ctrl-C or SIGTERM; what was done is saved.
        DataError: The prepared images are not those of the inputs.
        SettingsError: A step's images cannot be divided among the processes.
    """
    if torch.device(device).type == "cpu":
        keep_memory()
    try:
        with joined(device) as processes, _kept(processes.device), _memory_explained():
            pace = Pace(_graphs(graphs, processes), checkpoint_seconds, checkpoint_steps)
            # In a function of its own, so that nothing of the run outlives the processes' group.
            heard = listeners if processes.first else ()
            place = RunFolder(Path(folder))
            how = {"resume": resume, "lasting": lasting}
            return _run(processes, inputs, prepared, place, heard, analyse, pace, **how)
    finally:
        for listener in listeners:
            listener.close()


def _run(
    processes: Processes,
    inputs: Inputs,
    prepared: PreparedImages,
    folder: RunFolder,
    listeners: Sequence[Listener],
    analyse: Analyse | None,
    pace: Pace,
    *,
    resume: bool,
    lasting: bool,
) -> Result:
    """What `run` does, as one of several processes."""
    environment = describe(processes.device, inputs.recipe.weights)
    identity = Identity.of(inputs, environment["weights"]["sha256"], prepared.digests)
    finished = folder.check(identity, resume=resume)
    if finished is not None:
        return finished
    runtime = Runtime.of(inputs, prepared, processes)
    with (
        folder.alone() if processes.first else nullcontext(),
        noticed() as interruption,
        Keeper(folder, runtime, lasting=lasting) as keeper,
    ):
        checkpoint = keeper.resumed() if resume else None
        progress = Progress.from_dict(checkpoint.state["progress"] if checkpoint else {})
        if processes.first:
            folder.begin(inputs, prepared, identity, environment, progress.epochs)
        for listener in listeners:
            listener.started(_start(runtime, folder, progress))
        trainer = Trainer(runtime, progress, folder, keeper, interruption, listeners, pace)
        model, weights = make_model(runtime, resumed=checkpoint is not None)
        training = _train(trainer, runtime, progress, model, checkpoint)
        method = _finish(trainer, runtime, progress, training)
        for listener in listeners:
            listener.finishing(LEANING)
        leaning = leanings(runtime, method, trainer.stop_if_wanted)
        lean: Lean | Literal["auto"] = inputs.recipe.lean
        if lean == "auto":
            lean = method.learned_lean or choose_share(leaning, method.most_lean)
        method.lean = lean
        keeper.model(folder.model, method)
        analysis = {}
        if analyse and processes.first:
            analysis = plain(analyse(_trained(runtime, prepared, method)))
        keeper.wait()
        result = Result(
            recipe=plain(inputs.recipe.to_dict()),
            environment=environment,
            epochs=progress.epochs,
            accuracy=select(progress.epochs),
            precision=runtime.precision,
            target_images=_target_images(runtime),
            analysis=analysis,
            seconds=trainer.seconds,
            lean=lean,
            leaning=leaning,
        )
        if processes.first:
            folder.finish(result, weights, determinism(runtime.device))
        processes.wait()
    for listener in listeners:
        listener.finished(result)
    return result


def _kept(device: torch.device) -> AbstractContextManager[None]:
    """A context after which the global generators are as they were before."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


@contextmanager
def _memory_explained() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise TrainingError(
            f"The GPU's memory does not suffice ({str(error).partition('. ')[0]}); leave more of "
            "it to this run, or lower its need (accumulate, options.max_branches)."
        ) from error


def _graphs(asked: bool | None, processes: Processes) -> bool:
    possible = processes.device.type == "cuda" and processes.count == 1
    if asked and not possible:
        raise TrainingError("graphs needs one process on a GPU; leave it out.")
    return possible if asked is None else asked


def _train(
    trainer: Trainer,
    runtime: Runtime,
    progress: Progress,
    model: nn.Module,
    checkpoint: Checkpoint | None,
) -> PhaseTraining:
    """Carries out both phases, or what is left of them."""
    tensors = checkpoint.tensors if checkpoint else None
    if progress.phase == "head":
        head = Head(model)
        trainer.phase("head", head, tensors)
        model, tensors = head.release(), None
    return trainer.phase("train", _make_method(runtime, model), tensors)


def make_model(runtime: Runtime, *, resumed: bool) -> tuple[nn.Module, dict[str, str | None]]:
    """The plain network, on the device, and what tells of its initial weights.

    A checkpoint that is resumed replaces all its tensors.
    """
    recipe = runtime.recipe
    model = initial_model(recipe, len(runtime.inputs.images.classes), runtime.device)
    weights = describe_initial(model)
    _place(model, runtime)
    if recipe.calibrate and not resumed:
        calibrate_batch_norm(model, list(runtime.all_images(_sample(runtime))))
    return model, weights


def initial_model(recipe: Recipe, classes: int, device: torch.device) -> nn.Module:
    """The plain network on the CPU, with its initial weights; seeds the global generators.

    Raises:
        TrainingError: The weights cannot be had or do not fit.
    """
    seed_generators(device, recipe.seed, "model")
    try:
        return build(recipe.backbone, classes, recipe.weights, recipe.channels)
    except (ValueError, RuntimeError) as error:
        raise TrainingError(f"backbone {recipe.backbone}: {error}.") from error


def describe_initial(model: nn.Module) -> dict[str, str | None]:
    """What a manifest says of a network's initial weights: source, digest and terms.

    The digest is of all tensors that the source supplied or, without one, of all random ones.
    """
    known = origin(model)
    names = model.state_dict().keys() - (set(known.fresh) if known.weights else set())
    digest = hashlib.sha256()
    hash_tensors(digest, {name: model.state_dict()[name] for name in names})
    source = Path(known.weights).name if known.weights else None
    terms = terms_of(known.backbone, known.weights) if known.weights else None
    return {"source": source, "sha256": digest.hexdigest(), "terms": terms}


def _make_method(runtime: Runtime, model: nn.Module) -> Method:
    """The recipe's method, which takes the network over, on the device."""
    recipe = runtime.recipe
    seed_generators(runtime.device, recipe.seed, "method")
    try:
        method = create(recipe.method, model, runtime.domains, recipe.options)
    except ValueError as error:
        raise TrainingError(f"method {recipe.method}: {error}.") from error
    method.domains_per_step = recipe.domains_per_step
    if isinstance(method.net, DomainEnsemble):
        method.net.domains_per_step = recipe.domains_per_step
    if runtime.processes.count > 1:
        synchronise(method)
    _place(method, runtime)
    return method


def _place(network: nn.Module, runtime: Runtime) -> None:
    network.to(runtime.device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def _sample(runtime: Runtime) -> list[int]:
    """Training images, as many of every source domain, spread evenly over each."""
    domains = runtime.inputs.train.values()
    most = CALIBRATION_IMAGES // len(domains)
    return [
        numbers[place * len(numbers) // count]
        for numbers in domains
        for count in [min(most, len(numbers))]
        for place in range(count)
    ]


def _finish(
    trainer: Trainer, runtime: Runtime, progress: Progress, training: PhaseTraining
) -> Method:
    """The method as it is kept: with averaged weights and exact statistics, if wanted."""
    training.begin_epoch(progress.epoch - 1)
    training.adopt_average()
    method = training.method
    if runtime.recipe.exact_statistics:
        for listener in trainer.listeners:
            listener.finishing(EXACT)
        training.measure_statistics()
        validation, target = scores(runtime, method)
        last = progress.epochs[-1]
        exact = replace(last, validation=validation, target=target, statistics="exact")
        trainer.record(exact, method)
    return method.eval()


def _start(runtime: Runtime, folder: RunFolder, progress: Progress) -> Start:
    recipe, per_epoch = runtime.recipe, runtime.steps_per_epoch
    return Start(
        runtime.inputs,
        folder.path,
        str(runtime.device),
        runtime.precision,
        steps_per_epoch=per_epoch,
        steps=per_epoch * (recipe.head.epochs + recipe.train.epochs),
        first_step=progress.step,
    )


def _target_images(runtime: Runtime) -> Literal["unseen", "unlabelled", "none"]:
    if not runtime.inputs.target:
        return "none"
    return "unlabelled" if runtime.uses_target else "unseen"


def _trained(runtime: Runtime, prepared: PreparedImages, method: Method) -> Trained:
    splits, recipe = runtime.inputs.splits, runtime.recipe
    feed, device = runtime.feed, runtime.device
    return Trained(method, runtime.transform, prepared, feed, splits, recipe, device)
