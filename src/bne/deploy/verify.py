"""A finished run checked again: its files, its images, its split, its weights, its scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from bne.data.decoding import UNREADABLE, digest_all
from bne.data.images import read
from bne.data.splits import official_split
from bne.errors import BneError, DataError
from bne.recipes.inputs import Inputs
from bne.recipes.schema import checked, to_recipe
from bne.training import manifest as manifests
from bne.training.environment import describe
from bne.training.folder import read_training
from bne.words import counted, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bne.data.cache import PreparedImages
    from bne.data.images import ImageFile, ImageSet
    from bne.recipes.schema import Recipe
    from bne.training.events import Score
    from bne.training.folder import Kept
    from bne.training.manifest import Manifest

    Prepare = Callable[[Inputs], PreparedImages]

MACHINE = ("torch", "torchvision", "timm", "numpy", "device")
"""What of an environment makes the kind of a machine: between two of one kind no digit differs."""
TOLERANCE = 0.5
"""Points by which an accuracy may differ on another kind of machine."""


@dataclass(frozen=True)
class Verification:
    """What `bne verify` found, in sentences.

    Attributes:
        held: what is as it was recorded.
        differences: what is not.
        unchecked: what could not be checked, and why.
        manifest: SHA-256 of the manifest. Whoever kept it apart from the run knows by it that the
            manifest itself was not rewritten.
    """

    held: tuple[str, ...]
    differences: tuple[str, ...]
    unchecked: tuple[str, ...]
    manifest: str

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def to_dict(self) -> dict[str, Any]:
        """Plain texts, for JSON."""
        return {"ok": self.ok, **asdict(self)}


class _Findings:
    """Sentences as they come."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.differences: list[str] = []
        self.unchecked: list[str] = []

    def add(self, sentence: str, differences: list[str]) -> bool:
        """A sentence that holds unless there are differences; returns whether it does."""
        self.differences += differences
        if not differences:
            self.held.append(sentence)
        return not differences


def verify(
    run: Path,
    images: ImageSet | None,
    data: object,
    prepare: Prepare,
    *,
    device: str,
    weights: str | None = None,
    skip_bad: bool = False,
) -> Verification:
    """Checks a finished run against its manifest.

    Args:
        run: folder of the run.
        images: of the data that it was trained on; without any, neither images nor split nor
            scores are checked.
        data: what the images were opened from.
        prepare: decodes and resizes the images of a run.
        device: device to score on.
        weights: where the initial weights are, if they lie elsewhere now.
        skip_bad: whether images that cannot be read were left out of the run.

    Raises:
        DataError: The folder has no manifest, or one that cannot be read.
    """
    found, known = _Findings(), manifests.Manifest.read(run)
    whole = found.add(
        f"{counted(len(known.files), 'file')} of the run, its model among them, are unchanged.",
        list(_changed_files(run, known)),
    )
    if (run / manifests.BUNDLE).is_file() and whole:
        found.add("model.bne is the run's model.", list(_other_model(run)))
    training = read_training(run)
    if training is None or not training.settings or training.result is None:
        found.unchecked.append("Images and scores: the run's records cannot be read.")
    elif images is None:
        found.unchecked.append("Images, split and scores: name the data with --data.")
    else:
        recipe = to_recipe(checked(training.settings))
        recipe = replace(recipe, weights=weights or recipe.weights)
        _check_weights(found, recipe, known, len(images.classes), device)
        inputs = _check_images(found, run, recipe, images, data, skip_bad)
        kept = training.kept()
        if inputs and kept and whole:
            _check_scores(found, run, inputs, prepare(inputs), known, kept, device)
        else:
            found.unchecked.append("Scores: what they are of has changed.")
    return Verification(
        tuple(found.held),
        tuple(found.differences),
        tuple(found.unchecked),
        manifests.sha256_of(run / manifests.FILE),
    )


def _changed_files(run: Path, known: Manifest) -> Iterator[str]:
    for name, digest in known.files.items():
        if not (run / name).is_file():
            yield f"{name} is missing in {run}."
        elif manifests.sha256_of(run / name) != digest:
            yield f"{name} has changed since the run: its SHA-256 is not the one in the manifest."


def _other_model(run: Path) -> Iterator[str]:
    """Whether the model's file holds the tensors of the run's model."""
    from bne.deploy.bundle import open_model

    try:
        paths = run / "model", run / manifests.BUNDLE
        ours, theirs = (open_model(path).method.state_dict() for path in paths)
    except DataError as error:
        yield str(error)
        return
    same = ours.keys() == theirs.keys() and all(ours[n].equal(theirs[n]) for n in ours)
    if not same:
        yield "model.bne holds another model than the run's."


def _check_weights(
    found: _Findings, recipe: Recipe, known: Manifest, classes: int, device: str
) -> None:
    """Makes the network anew and compares the digest of its initial weights."""
    import torch

    from bne.training.run import describe_initial, initial_model

    here = describe(device, None)
    if recipe.weights is None and here["torch"] != known.environment.get("torch"):
        found.unchecked.append("Initial weights: they are random, by another version of torch.")
        return
    try:
        with torch.random.fork_rng([]):
            model = initial_model(recipe, classes, torch.device("cpu"))
    except BneError as error:
        found.unchecked.append(f"Initial weights: {error} Name them with --weights.")
        return
    same = describe_initial(model)["sha256"] == known.weights.get("sha256")
    changed = f"The initial weights {recipe.weights or '(random)'} are not those of the run."
    found.add("The initial weights are those of the run.", [] if same else [changed])


def _check_images(
    found: _Findings, run: Path, recipe: Recipe, images: ImageSet, data: object, skip_bad: bool
) -> Inputs | None:
    """Compares contents and split with the run's table; the inputs if all are the same."""
    recorded = manifests.read_images(run)
    digests = dict(zip((f.name for f in images.files), digest_all(images.files), strict=True))
    if skip_bad:
        images = images.select(
            n for n, file in enumerate(images.files) if file.name in recorded or _readable(file)
        )
        digests = {file.name: digests[file.name] for file in images.files}
    sentence = f"{counted(len(recorded), 'image')} have the content that the run was trained on."
    if not found.add(sentence, list(_changed_images(recorded, digests))):
        return None
    try:
        inputs = Inputs.of(recipe, images, official_split(data), allow_gaps=True)
    except BneError as error:
        found.differences.append(f"The split cannot be made again: {error}")
        return None
    here = manifests.parts(inputs)
    moved = [name for name, (part, _) in recorded.items() if here[name] != part]
    changed = [f"{name}, now {here[name]} instead of {recorded[name][0]}" for name in moved]
    differences = [f"The split has changed: {listed(changed, '; ', '; ')}."] if moved else []
    return inputs if found.add("The split is that of the run.", differences) else None


def _readable(file: ImageFile) -> bool:
    try:
        read(file.read(), file.name)
    except DataError:
        return False
    return True


def _changed_images(
    recorded: Mapping[str, tuple[str, str]], digests: Mapping[str, str]
) -> Iterator[str]:
    """What differs between the images of a run, their part and digest, and those found."""
    gone = [name for name in recorded if name not in digests]
    new = [name for name in digests if name not in recorded]
    by_content = {digests[name]: name for name in new}
    renamed = {n: by_content.pop(own) for n in gone if (own := recorded[n][1]) in by_content}
    if renamed:
        told = (f"{name} is now {renamed[name]}" for name in renamed)
        yield f"Labels or names of images have changed: {listed(told, '; ', '; ')}."
    if lost := [name for name in gone if name not in renamed]:
        yield f"The data lacks {counted(len(lost), 'image')} of the run: {listed(lost)}."
    if more := [name for name in new if name not in renamed.values()]:
        yield f"The data has {counted(len(more), 'image')} that the run had not: {listed(more)}."
    contents = {n: digests[n] for n, (_, own) in recorded.items() if digests.get(n, own) != own}
    if changed := [name for name, own in contents.items() if own != UNREADABLE]:
        yield f"The content of {counted(len(changed), 'image')} has changed: {listed(changed)}."
    if bad := [name for name, own in contents.items() if own == UNREADABLE]:
        yield f"{counted(len(bad), 'image')} can no longer be read: {listed(bad)}."


def _check_scores(
    found: _Findings,
    run: Path,
    inputs: Inputs,
    prepared: PreparedImages,
    known: Manifest,
    kept: Kept,
    device: str,
) -> None:
    """Scores the kept network as training did and compares with the record."""
    import torch

    from bne.training.distributed import joined
    from bne.training.model_folder import load_model
    from bne.training.runtime import Runtime
    from bne.training.scores import scores

    method, _, info = load_model(run)
    if kept.share == 0 and info.lean:  # of a share that is not recorded
        method.lean = method.scored_lean
    with joined(device) as processes:
        runtime = Runtime.of(inputs, prepared, processes)
        method.to(runtime.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        validation, target = scores(runtime, method)
    here = describe(device, None)
    same = all(here[key] == known.environment.get(key) for key in MACHINE)
    pairs = [
        (f"{kind} {domain}", recorded[domain], score)
        for kind, recorded, again in (
            ("held-out images of", kept.validation, validation),
            ("target", kept.target, target),
        )
        for domain, score in again.items()
    ]
    differences = [
        f"Accuracy on {what} is {now.accuracy:.2f} % and was {then.accuracy:.2f} %: it differs by "
        f"{now.accuracy - then.accuracy:+.2f} points ({then.correct} of {then.images} images were "
        f"correct, now {now.correct} of {now.images})."
        for what, then, now in pairs
        if _differ(then, now, exact=same)
    ]
    count = sum(now.images for _, _, now in pairs)
    digit = "to the digit" if same else f"within {TOLERANCE} points, on another kind of machine"
    found.add(f"Scores of {counted(count, 'image')} are those of the record, {digit}.", differences)


def _differ(then: Score, now: Score, *, exact: bool) -> bool:
    if then.images != now.images or (exact and then.correct != now.correct):
        return True
    if exact:
        return then.balanced not in (None, now.balanced)
    return abs(then.accuracy - now.accuracy) > TOLERANCE
