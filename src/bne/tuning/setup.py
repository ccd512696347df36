"""What a search is of: data, recipe, space and folder, checked before anything is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.benchmark.execute import Job
from bne.benchmark.records import read
from bne.errors import MissingLibraryError, SettingsError
from bne.recipes.files import load_experiment
from bne.recipes.inputs import Inputs
from bne.training.environment import choose_device
from bne.training.files import check_folder, check_writable, write_json, write_text
from bne.training.identity import images_digest
from bne.tuning.objective import Found, questions
from bne.tuning.search import SAMPLERS, Budget, Start, study_file
from bne.tuning.space import default_space, read_space, to_space
from bne.tuning.tuning import FOUND, Tuning, expected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bne.benchmark.plan import Item
    from bne.data.images import ImageSet
    from bne.tuning.objective import Question
    from bne.tuning.tuning import Tuned

STUDY = "study.db"


@dataclass(frozen=True)
class Setup:
    """A search that can begin.

    Attributes:
        questions: one per target.
        start: recipe, space and budget.
        images: that runs may see: nothing of a target that is set aside.
        inputs: of the recipe, one per thing held out.
        job: how runs are carried out.
    """

    questions: Sequence[Question]
    start: Start
    images: ImageSet
    inputs: Sequence[Inputs]
    job: Job

    def tuning(self) -> Tuning:
        """The searches, new or as they stand in the folder."""
        check_folder(self.job.out, self.job.data)
        check_writable(self.job.records, "--records")
        for question in self.questions:
            file = recipe_file(self.job.out, question, len(self.questions))
            if file.exists() and not file.read_bytes().startswith(FOUND.encode()):
                raise SettingsError(f"{file} is no recipe of bne tune; name another --out.")
        return Tuning(self.questions, self.start, study_file(self.job.out / STUDY))

    def planned(self) -> list[Item]:
        """The runs that the search waits for.

        Raises:
            MissingLibraryError: Optuna is not installed, and is needed to choose them.
        """
        records = read(self.job.records)
        try:
            return self.tuning().wanted(records, self.start.budget.settings)
        except MissingLibraryError:
            targets = dict.fromkeys(t for one in self.questions for t in one.targets)
            if runs := self.start.listed(list(targets), Found(records)):
                return runs
            raise

    def expected(self) -> tuple[int, float | None]:
        """How many runs there will be, about, and how many seconds they take together."""
        runs, seconds = expected(self.start, self.questions, read(self.job.records))
        return runs, None if seconds is None else seconds / self.job.parallel


def set_up(
    data: str | Path,
    target: Sequence[str] = (),
    *,
    every_target: bool = False,
    recipe: str | Path = "default",
    space: str | Path | Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    out: str | Path = "runs/tune",
    records: str | Path | None = None,
    cache: str | Path | None = None,
    device: str = "auto",
    on_cluster: bool = False,
    parallel: int = 1,
    skip_bad: bool = False,
    allow_gaps: bool = False,
) -> Setup:
    """Opens data and recipe, and checks one against the other; decodes no image.

    Args:
        data: a folder or a CSV.
        target: domains set aside, of which nothing is opened.
        every_target: whether each domain is set aside in turn.
        recipe: to start from, a name or a .yaml file.
        space: of settings, a .yaml file or what it would hold; by default one around the recipe.
        settings: of the recipe, by dotted key.
        budget: how much is tried.
        out: folder of the study, of runs and of what is found.
        records: file that finished runs are added to; by default in the folder.
        cache: where prepared images are kept.
        device: "auto", "cpu" or "cuda".
        on_cluster: whether a cluster says what "auto" is.
        parallel: number of runs at a time.
        skip_bad: whether images that cannot be read are left out.
        allow_gaps: whether source domains may lack classes that others have.

    Raises:
        SettingsError: A setting or a value of the space is unknown or impossible, or does not fit
            the data.
        DataError: The data cannot be read or trained on.
    """
    from bne.data.sources import open_images
    from bne.data.splits import check_rows, official_split

    experiment = load_experiment(recipe)
    base = experiment.recipe(dict(settings or {}))
    target = tuple(target or base.target)
    if every_target and target:
        raise SettingsError("A target is named, and every target asked for; choose one.")
    images = open_images(data).without(target)
    domains = [domain for domain in base.sources or images.domains if domain not in target]
    base = replace(base, target=(), sources=tuple(domains) if base.sources else ())
    if isinstance(space, str | Path):
        chosen = read_space(Path(space), base)
    else:
        chosen = default_space(base) if space is None else to_space(space, base)
    budget = budget or Budget()
    sampler = budget.sampler or ("random" if every_target else "tpe")
    budget = replace(budget, sampler=sampler, settings=chosen.count(budget.settings))
    if budget.sampler not in SAMPLERS:
        raise SettingsError(f"sampler is {budget.sampler!r}; choose {' or '.join(SAMPLERS)}.")
    split_file = official_split(data)
    start = Start(
        experiment.name,
        base,
        chosen,
        budget,
        images_digest(images),
        official=split_file is not None or images.is_split,
    )
    asked = questions(domains, target, every=every_target)
    runs = start.runs(base, list(dict.fromkeys(t for one in asked for t in one.targets)))
    inputs = [Inputs.of(i.recipe, images, split_file, allow_gaps=allow_gaps) for i in runs]
    if split_file and inputs[0].recipe.validation == "official":
        check_rows(images, split_file)
    job = Job(
        Path(data),
        Path(cache) if cache else None,
        Path(out),
        Path(records) if records else Path(out) / "records.jsonl",
        device if on_cluster else choose_device(device),
        parallel,
        analyse=False,
        skip_bad=skip_bad,
        allow_gaps=allow_gaps,
        without=target,
    )
    return Setup(asked, start, images, inputs, job)


def recipe_file(folder: Path, question: Question, questions: int) -> Path:
    """Where the recipe for a question is written, one of so many."""
    name = question.name.replace("/", "-").replace(" ", "-")
    return folder / ("recipe.yaml" if questions == 1 else f"recipe-{name}.yaml")


def write_found(folder: Path, found: Sequence[Tuned]) -> list[Path]:
    """Writes recipes, and `tune.json` with how they were found; returns the recipes."""
    files = []
    for one in found:
        if one.choice is not None:
            file = recipe_file(folder, one.question, len(found))
            write_text(file, one.recipe_text())
            files.append(file)
    write_json(folder / "tune.json", [one.to_dict() for one in found])
    return files
