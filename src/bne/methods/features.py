"""A plain network in two parts: its features, and the linear layer that classifies them."""

import copy

from torch import Tensor, nn
from torch.func import functional_call

from bne.methods.places import at_input
from bne.models import Origin
from bne.models.registry import find


def classifier_name(model: nn.Module) -> str:
    """The name of the linear layer that gives a plain network's logits.

    It is the classifier of a network from `bne.models.build`; of any other, the last linear layer.

    Raises:
        ValueError: The logits come from several layers, or from one that is not linear.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    record = getattr(model, "origin", None)
    names = find(record.backbone).classifier if isinstance(record, Origin) else [*layers][-1:]
    if len(names) != 1 or names[0] not in layers:
        raise ValueError(
            "the network's classifier is not one linear layer: choose another backbone"
        )
    return names[0]


def classifier(model: nn.Module) -> nn.Linear:
    """The linear layer that gives a plain network's logits."""
    layer = model.get_submodule(classifier_name(model))
    assert isinstance(layer, nn.Linear)
    return layer


def with_new_classifier(model: nn.Module, outputs: int) -> nn.Module:
    """A copy of a plain network whose classifier is a fresh linear layer with so many outputs."""
    other, name = copy.deepcopy(model), classifier_name(model)
    old = classifier(model)
    other.set_submodule(name, nn.Linear(old.in_features, outputs).to(old.weight))
    return other


def with_features(
    model: nn.Module, images: Tensor, parameters: dict[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Runs a plain network.

    Args:
        model: the network.
        images: (N, 3, H, W).
        parameters: to use instead of its own, by name.

    Returns:
        The logits, (N, classes), and the features they were made from, (N, F).
    """
    seen: list[Tensor] = []
    with at_input(model, classifier_name(model), seen.append):
        logits: Tensor
        if parameters is None:
            logits = model(images)
        else:
            logits = functional_call(model, parameters, (images,))
    return logits, seen[0]
