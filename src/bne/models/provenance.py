"""Where a network comes from: a record that every built network carries."""

from dataclasses import dataclass

from torch import nn

from bne.models.inputs import Preprocessing
from bne.models.registry import find


@dataclass(frozen=True)
class Origin:
    """How a network was built.

    Attributes:
        backbone: Its name.
        weights: The source of its initial weights; None for random ones.
        preprocessing: What it expects of its input.
        fresh: Its tensors that the weights did not supply, left at their initialisation.
        unused: Tensors of the weights that it did not take.
    """

    backbone: str
    weights: str | None
    preprocessing: Preprocessing
    fresh: tuple[str, ...]
    unused: tuple[str, ...]


def origin(model: nn.Module) -> Origin:
    """Return how ``model``, or the network inside it, was built by `bne.models.build`.

    Raises:
        ValueError: If it was not.
    """
    for module in model.modules():
        record = getattr(module, "origin", None)
        if isinstance(record, Origin):
            return record
    raise ValueError("this network was not built by bne.models.build, so its origin is unknown")


def preprocessing(model: nn.Module | str) -> Preprocessing:
    """Return what a backbone expects of its input.

    Args:
        model: A network from `bne.models.build`, alone or inside another, or a backbone's name.

    Raises:
        ValueError: If the network was not built by `bne.models.build` or the name is unknown.
    """
    return find(model).preprocessing if isinstance(model, str) else origin(model).preprocessing
