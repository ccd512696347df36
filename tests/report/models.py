"""A training that was never carried out."""

from bne.recipes.schema import HeadPhase, Phase, Recipe
from bne.training.events import Epoch, Score
from bne.training.files import plain
from bne.training.folder import UNFINISHED, Training

STAGES = ("head", "head", "warm-up", "warm-up", "distance training", "distance training")


def epochs(sources: tuple[str, ...], target: str, shift: int = 0) -> tuple[Epoch, ...]:
    """Six epochs: a source's accuracy is 30 + 10 a source + 6 an epoch, the target's half."""
    found = []
    for number, stage in enumerate(STAGES, start=1):
        rights = {d: 30 + 10 * k + 6 * number + shift for k, d in enumerate(sources)}
        phase = "head" if stage == "head" else "train"
        epoch = number if phase == "head" else number - 2
        validation = {d: Score(right, 100) for d, right in rights.items()}
        scores = validation, {target: Score(30 + 3 * number + shift, 200)}
        found.append(Epoch(phase, epoch, stage, 5, 2 / number, 1e-3, 1.0, 100.0, *scores))
    return tuple(found)


def training(sources: tuple[str, ...], target: str) -> Training:
    """Of a run that is not finished."""
    phases = {"head": HeadPhase(2), "train": Phase(6, warm_up=2)}
    recipe = Recipe("bne", (target,), backbone="small_cnn", **phases)
    settings = plain(recipe.to_dict())
    environment = {"bne": "0.1", "device": "a CPU", "weights": {"name": None, "sha256": None}}
    return Training(settings, environment, epochs(sources, target), None, (UNFINISHED,))
