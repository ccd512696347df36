"""What the commands do, from Python: `bne.train`, `bne.compare`, `bne.load` and others."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from bne.benchmark.execute import Outcome
    from bne.benchmark.expectation import Expectation
    from bne.benchmark.ray import Cluster
    from bne.data.cache import PreparedImages
    from bne.data.images import ImageSet, Way
    from bne.deploy.classifier import Classifier
    from bne.deploy.verify import Verification
    from bne.recipes.inputs import Inputs
    from bne.training.events import Listener
    from bne.training.folder import Result
    from bne.tuning.setup import Setup
    from bne.tuning.tuning import Tuned, Tuning


@dataclass(frozen=True)
class TrainedRun:
    """What `bne.train` gives.

    Attributes:
        folder: of the run, with everything it left.
        result: the accuracies under every rule, all epochs, the recipe and the environment.
        notes: what one should know of the data, in sentences.
    """

    folder: Path
    result: Result
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """In a line, for interactive use."""
        return f"{type(self).__name__}(folder={str(self.folder)!r}, accuracy={self.accuracy})"

    @property
    def accuracy(self) -> float | None:
        """On all images of the target, in percent, of the network of the last epoch.

        None if no domain was held out: no unseen domain was tested.
        """
        from bne.training.scores import pooled

        scores = self.result.accuracy["last"]
        return pooled(scores.values()).accuracy if scores else None

    @property
    def balanced_accuracy(self) -> float | None:
        """The same as mean over the classes that each domain has, then over domains."""
        from bne.training.scores import pooled

        scores = self.result.accuracy["last"]
        return pooled(scores.values()).balanced if scores else None

    @property
    def validation_accuracy(self) -> float | None:
        """On held-out images of the domains trained on, mean over domains, in percent.

        It is of the network of the last epoch, and says little of new domains. None if no images
        were held out.
        """
        from bne.training.scores import last, mean_accuracy

        scores = last(self.result.epochs).validation
        return mean_accuracy(scores) if scores else None

    def model(self, device: str = "auto") -> Classifier:
        """The network of the last epoch, ready for use."""
        return load(self.folder, device)


def train(
    data: object,
    target: str | Sequence[str] | None = None,
    *,
    recipe: str | Path = "default",
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    cache: str | Path | None = None,
    skip_bad: bool = False,
    allow_gaps: bool = False,
    progress: bool = False,
    listeners: Sequence[Listener] = (),
    **settings: Any,
) -> TrainedRun:
    """Trains a network on some domains and tests it on one it has never seen: `bne train`.

    Without a target it trains on all domains, for a model to use, and tests held-out images of
    each.

    Args:
        data: a folder, a CSV or a dataset, as `bne.data.sources.open_images` takes it.
        target: the domain held out, or several, in a list or joined by commas; by default the
            recipe's, and none if it has none.
        recipe: the name of one that comes with the package, or a .yaml file.
        out: the run's folder; `runs/recipe-method-target-seed` by default. One that holds this very
            run, finished, is read and nothing is trained.
        device: "auto", "cpu" or "cuda".
        resume: whether to go on with an interrupted run in the folder.
        cache: where prepared images are kept.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether a source domain may lack classes that others have.
        progress: whether to show on stderr how it goes.
        listeners: hear how it goes; they are closed at the end.
        **settings: any of the recipe, by name (`method="deepall"`, `lr=1e-3`, `batch_size=8`), as a
            group (`train={"epochs": 5}`) or by dotted key (`**{"train.epochs": 5}`).

    Raises:
        SettingsError: A setting is unknown, impossible or does not fit the data.
        DataError: The data cannot be read or trained on.
        TrainingError: Training cannot begin or go on.
    """
    from bne.deploy.engine import calibrate_run
    from bne.recipes.checks import check_weights
    from bne.recipes.inputs import Inputs
    from bne.training.environment import choose_device
    from bne.training.files import check_folder
    from bne.training.manifest import BUNDLE
    from bne.training.run import run

    inputs = resolve(data, target, recipe, settings, allow_gaps=allow_gaps)
    chosen = inputs.recipe
    folder = Path(out) if out else Path("runs") / _name(Path(recipe).stem, inputs)
    trained = (folder / "result.json").exists()
    # A network that somebody removed gives no file.
    done = trained and ((folder / BUNDLE).exists() or not (folder / "model").exists())
    check_folder(folder, data, write=not done)
    place = choose_device(device)
    check_weights(chosen)
    first = os.environ.get("RANK", "0") == "0"  # of torchrun's processes
    shown = progress and first
    prepared = prepare(inputs.images, data, cache, inputs.way, skip_bad=skip_bad, show=shown)
    if prepared.skipped:
        inputs = Inputs.of(chosen, prepared.images, inputs.split_file, allow_gaps=allow_gaps)
    if shown:
        show_notes([inputs])
        print(inputs.held_out(), file=sys.stderr)
    heard = [*(_shown() if shown else []), *listeners]
    how: Any = {"device": place, "listeners": heard, "resume": resume, "analyse": calibrate_run}
    result = run(inputs, prepared, folder, **how)
    if trained and shown:
        print(f"{folder} has this run, finished before: nothing is trained.", file=sys.stderr)
    if not done and first:
        load(folder, "cpu").save(folder / BUNDLE)
    return TrainedRun(folder, result, (*inputs.notes(), *prepared.notes))


@dataclass(frozen=True)
class Compared:
    """What `bne.compare` gives.

    Attributes:
        folder: of the runs.
        records: file with a line for each run, for tables and for `Classifier.expecting`.
        expected: what to expect of each method at a new domain.
    """

    folder: Path
    records: Path
    expected: tuple[Expectation, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.expected))


def compare(
    data: str | Path,
    methods: str | Sequence[str] = ("deepall", "bne"),
    *,
    seeds: int = 1,
    recipe: str | Path = "default",
    out: str | Path = "runs/benchmark",
    device: str = "auto",
    cache: str | Path | None = None,
    skip_bad: bool = False,
    allow_gaps: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Compared:
    """Tests methods on each domain in turn, trained on the others: `bne benchmark`.

    Finished runs are recorded and never repeated: the same call goes on where it was stopped.

    Args:
        data: a folder or a CSV.
        methods: names, in a list or joined by commas.
        seeds: runs of each method on each domain.
        recipe: the name of one that comes with the package, or a .yaml file.
        out: folder of the runs and their records.
        device: "auto", "cpu" or "cuda".
        cache: where prepared images are kept.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether source domains may lack classes that others have.
        progress: whether to show on stderr how it goes.
        **settings: of the recipe, as in `train`.

    Raises:
        SettingsError: A setting is unknown, impossible or does not fit the data.
        DataError: The data cannot be read or trained on.
        TrainingError: A run failed; the others are recorded.
    """
    from bne.benchmark.execute import Job, execute
    from bne.benchmark.expectation import expectations
    from bne.benchmark.plan import check_runs, choose, plan
    from bne.benchmark.records import read
    from bne.benchmark.tables import find_records
    from bne.data.sources import open_images
    from bne.data.splits import check_rows, official_split
    from bne.errors import TrainingError
    from bne.training.environment import choose_device
    from bne.training.files import check_folder
    from bne.tuning.tuning import ended

    place, folder = Path(data), Path(out)
    images, table, records = open_images(place), official_split(place), folder / "records.jsonl"
    left_out = [(domain,) for domain in images.domains]
    chosen = choose(recipe=str(recipe), methods=parse_names(methods), held_out=left_out)
    items = plan(chosen, seeds, settings, images=images, split_file=table)
    left = [item for item, record in find_records(items, read(records)) if record is None]
    inputs = check_runs(left, images, table, allow_gaps=allow_gaps)
    if table and any(one.recipe.validation == "official" for one in inputs):
        check_rows(images, table)
    check_folder(folder, data)
    for way in dict.fromkeys(one.way for one in inputs):
        prepare(images, data, cache, way, skip_bad=skip_bad, show=progress)
    if progress:
        show_notes(inputs)
    how: Any = {"skip_bad": skip_bad, "allow_gaps": allow_gaps}
    where = Path(cache) if cache else None
    job = Job(place, where, folder, records, choose_device(device), analyse=False, **how)
    failed = []
    for outcome in execute(left, job):
        if progress:
            print(ended(outcome), file=sys.stderr)
        if outcome.record is None:
            failed.append(f"{outcome.item}: {outcome.problem}")
    if failed:
        raise TrainingError(f"{len(failed)} of {len(left)} runs failed, the first {failed[0]}")
    found = find_records(items, read(records))
    return Compared(folder, records, tuple(expectations(found, ["last"])))


@dataclass(frozen=True)
class TunedRun:
    """What `bne.tune` gives.

    Attributes:
        folder: with recipes, records and the study.
        found: choice, settings and importances, for each target.
        recipes: files of the chosen settings, for each target that has a choice.
        note: what one should know of the runs though nothing is wrong, if anything.
    """

    folder: Path
    found: tuple[Tuned, ...] = field(repr=False)
    recipes: tuple[Path, ...]
    note: str = ""

    def __str__(self) -> str:
        return "\n".join(one.how_sure for one in self.found)


def tune(
    data: str | Path,
    target: str | Sequence[str] | None = None,
    *,
    every_target: bool = False,
    recipe: str | Path = "default",
    space: str | Path | Mapping[str, Any] | None = None,
    out: str | Path = "runs/tune",
    trials: int = 16,
    lengths: int = 2,
    finalists: int = 3,
    seeds: int = 3,
    sampler: str | None = None,
    device: str = "auto",
    parallel: int = 1,
    limit: int | None = None,
    cache: str | Path | None = None,
    skip_bad: bool = False,
    allow_gaps: bool = False,
    progress: bool = False,
    **settings: Any,
) -> TunedRun:
    """Chooses settings for an unseen domain by leaving known ones out in turn: `bne tune`.

    Args:
        data: a folder or a CSV.
        target: domains set aside, of which no image is opened; by default none, for a domain that
            nobody has yet.
        every_target: whether each domain is set aside in turn, as in a benchmark.
        recipe: to start from: the name of one that comes with the package, or a .yaml file.
        space: of settings: a .yaml file or what it would hold; by default one around the recipe.
        out: folder of the study, the records and the recipe that is found. A search in it goes on.
        trials: number of settings to try.
        lengths: of training, see `bne.tuning.search.Budget`.
        finalists: number of the best settings that get more seeds.
        seeds: of finalists.
        sampler: Optuna's: "tpe", "gp" or "random"; by default "tpe", or "random" for every target.
        device: "auto", "cpu" or "cuda".
        parallel: number of runs at a time.
        limit: on the number of runs made now.
        cache: where prepared images are kept.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether a source domain may lack classes that others have.
        progress: whether to show on stderr how it goes.
        **settings: of the recipe, as in `train`.

    Raises:
        SettingsError: A setting or a value of the space is unknown or impossible.
        DataError: The data cannot be read or trained on.
        MissingLibraryError: Optuna is not installed.
    """
    from bne.tuning.search import Budget
    from bne.tuning.setup import set_up

    chosen = set_up(
        data,
        parse_names(target) if target else (),
        every_target=every_target,
        recipe=recipe,
        space=space,
        settings=settings,
        budget=Budget(trials, lengths, finalists, seeds, sampler),
        out=out,
        cache=cache,
        device=device,
        parallel=parallel,
        skip_bad=skip_bad,
        allow_gaps=allow_gaps,
    )
    return carry_out_tuning(chosen, limit=limit, progress=progress)


def carry_out_tuning(
    setup: Setup,
    *,
    cluster: Cluster | None = None,
    limit: int | None = None,
    progress: bool = False,
) -> TunedRun:
    """Makes the runs of a search, or what is left of them, and writes what is found."""
    from bne.benchmark.records import read
    from bne.tuning.setup import write_found

    tuning, job = setup.tuning(), setup.job
    if cluster is None:  # the machines of a cluster do it themselves
        how: Any = {"skip_bad": job.skip_bad, "show": progress}
        prepare(setup.images, job.data, job.cache, setup.inputs[0].way, **how)
    if progress:
        show_notes(setup.inputs)
    with _tuning_bar(setup.expected()[0], progress) as show:
        for outcome in tuning.carry_out(job, cluster, limit):
            show(outcome, tuning)
    records = read(job.records)
    found = tuning.outcome(records)
    note = tuning.how_many_undone(records, len(setup.images.classes))
    return TunedRun(job.out, tuple(found), tuple(write_found(job.out, found)), note)


@contextmanager
def _tuning_bar(total: int, shown: bool) -> Iterator[Callable[[Outcome, Tuning], None]]:
    """A context with a function that shows how a run ended, and the best settings so far."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    from bne.tuning.tuning import ended

    console = Console(stderr=True, markup=False, highlight=False, quiet=not shown)
    bars = ("{task.description}", BarColumn(), MofNCompleteColumn())
    # Ray prints on stdout when a worker dies, and that is for the outcome.
    with redirect_stdout(sys.stderr), Progress(*bars, console=console, transient=True) as progress:
        task = progress.add_task("Training networks, about", total=total)
        known = ""

        def show(outcome: Outcome, tuning: Tuning) -> None:
            nonlocal known
            console.print(ended(outcome), soft_wrap=True)
            if (best := tuning.best_so_far()) != known:
                known = best
                console.print(known, style="bold", soft_wrap=True)
            progress.advance(task)

        yield show


def resolve(
    data: object,
    target: str | Sequence[str] | None,
    recipe: str | Path,
    settings: Mapping[str, Any],
    *,
    allow_gaps: bool = False,
) -> Inputs:
    """What `train` would train, checked: opens images, of which it decodes none."""
    from bne.data.sources import open_images
    from bne.data.splits import check_rows, official_split
    from bne.recipes.files import load
    from bne.recipes.inputs import Inputs

    images = open_images(data)
    own = {"target": parse_names(target, images.domains)} if target else {}
    chosen, table = load(recipe, {**settings, **own}), official_split(data)
    inputs = Inputs.of(chosen, images, table, allow_gaps=allow_gaps)
    if table and inputs.recipe.validation == "official":
        check_rows(images, table)
    return inputs


def parse_names(names: str | Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Names in a list, or joined by commas; one that is known may have commas itself."""
    if not isinstance(names, str):
        return list(names)
    return [names] if names in known else [name.strip() for name in names.split(",")]


def prepare(
    images: ImageSet,
    data: object,
    cache: str | Path | None,
    way: Way,
    *,
    skip_bad: bool,
    show: bool,
) -> PreparedImages:
    """Decodes and resizes the images of some data, with a progress bar the first time."""
    from rich.console import Console
    from rich.progress import Progress

    from bne.data import cache as image_cache
    from bne.training.files import check_apart

    check_apart(Path(cache) if cache else image_cache.default_folder(), data, "--cache")
    console = Console(stderr=True, quiet=not show)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("Preparing images", total=len(images))
        prepared = image_cache.prepare(
            images,
            cache,
            way.size,
            fit=way.fit,
            window=way.window,
            channels=way.channels,
            skip_bad=skip_bad,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    for problem in prepared.skipped:
        console.print(f"Skipped: {problem}", markup=False, highlight=False, soft_wrap=True)
    for note in prepared.notes:
        console.print(f"Note: {note}", markup=False, highlight=False, soft_wrap=True)
    return prepared


def show_notes(inputs: Iterable[Inputs]) -> None:
    """Says once, on stderr, what one should know of runs though nothing is wrong."""
    for note in dict.fromkeys(note for one in inputs for note in one.notes()):
        print(f"Note: {note}", file=sys.stderr)


def _name(recipe: str, inputs: Inputs) -> str:
    chosen = inputs.recipe
    target = "+".join(chosen.target).replace("/", "-") or "all"  # a CSV may name a domain anything
    return f"{recipe}-{chosen.method}-{target}-{chosen.seed}"


def _shown() -> list[Listener]:
    from rich.console import Console

    from bne.training.listeners import ProgressBar, ProgressLines, Undone

    console = Console(stderr=True)
    bar = ProgressBar(console) if console.is_terminal else ProgressLines(console)
    return [bar, Undone(console)]


def load(
    path: str | Path,
    device: str = "auto",
    *,
    lean: float | Mapping[str, float] | None = None,
    mix: str | None = None,
    nearest: int | None = None,
    layers: int | None = None,
) -> Classifier:
    """Reads a trained model; neither recipe nor data nor initial weights are needed.

    Args:
        path: a model file, as `bne bundle` and `bne train` write it; a run's folder, whose network
            of the last epoch is read; or a model's folder.
        device: "auto", "cpu" or "cuda".
        lean: how far images lean on their own statistics, 0 to 1, or that by layer name; by default
            as the model was saved, like all that follow.
        mix: what is mixed: "logits", "probabilities", "statistics" or "centre", see `bne.convert`.
        nearest: the number of branches that are run for each image, the nearest ones.
        layers: the number of first batch-norm layers that place images among the domains; the pass
            that places them ends there.

    Raises:
        DataError: There is no model, or a damaged one.
        SettingsError: There is no such device, or the model cannot answer so.
    """
    from bne.deploy.classifier import Classifier
    from bne.training.environment import choose_device

    mode = {"lean": lean, "mix": mix, "nearest": nearest, "layers": layers}
    return Classifier.load(path, choose_device(device), **mode)


def verify(
    run: str | Path,
    data: object | None = None,
    *,
    device: str = "auto",
    weights: str | None = None,
    cache: str | Path | None = None,
    skip_bad: bool = False,
) -> Verification:
    """Checks a finished run against its manifest, and scores its model again: `bne verify`.

    Args:
        run: folder of the run.
        data: the data it was trained on; without it, only the run's own files are checked.
        device: "auto", "cpu" or "cuda".
        weights: where the initial weights are, if they lie elsewhere now.
        cache: where prepared images are kept.
        skip_bad: whether images that cannot be read were left out of the run.

    Raises:
        DataError: The folder has no manifest, or the data cannot be read.
        SettingsError: There is no such device.
    """
    from bne.data.sources import open_images
    from bne.deploy import verify as checks
    from bne.training.environment import choose_device

    def prepared(inputs: Inputs) -> PreparedImages:
        return prepare(inputs.images, data, cache, inputs.way, skip_bad=False, show=False)

    images = open_images(data) if data is not None else None
    how: Any = {"device": choose_device(device), "weights": weights, "skip_bad": skip_bad}
    return checks.verify(Path(run), images, data, prepared, **how)


def from_pretrained(name: str, device: str = "auto", **options: Any) -> Classifier:
    """Reads a trained model from the Hugging Face Hub; see `Classifier.push_to_hub`.

    Args:
        name: `owner/name` of the repository, or a folder with the same files.
        device: "auto", "cpu" or "cuda".
        **options: of `huggingface_hub.ModelHubMixin.from_pretrained`: revision, token and others.

    Raises:
        DataError: There is no such repository or no model in it, or it is damaged.
        SettingsError: There is no such device.
    """
    from bne.errors import require

    require("huggingface_hub", "hub")
    from bne.deploy import hub

    return hub.pull(name, lambda path: load(path, device), **options)
