"""Copying weights into a network, with an account of what was not copied."""

import logging

from torch import nn

from bne.models.backbone import Backbone, StateDict

_logger = logging.getLogger(__name__)


def load(
    model: nn.Module, backbone: Backbone, state: StateDict, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy everything in ``state`` but the classifier into ``model``, in the model's precision.

    Returns:
        The names of the model's tensors left at their initialisation (the classifier, and those
        that the backbone calls optional, for which a warning is logged), and the names of the
        tensors in ``state`` that were not used (its classifier).

    Raises:
        ValueError: If anything else is missing, superfluous or of another shape.
    """
    classifier = tuple(f"{layer}." for layer in backbone.classifier)
    known = model.state_dict()
    body = {name: tensor for name, tensor in state.items() if not name.startswith(classifier)}
    # BN's counters of batches are no weights, and many files have none.
    fresh = [n for n in known if n not in body and not n.endswith("num_batches_tracked")]
    fresh_body = [name for name in fresh if not name.startswith(classifier)]

    problems = [f"tensor {name!r} is unknown to it" for name in body if name not in known]
    problems += [
        f"tensor {name!r} is missing"
        for name in fresh_body
        if not name.startswith(backbone.optional)
    ]
    problems += [
        f"tensor {name!r} has shape {tuple(tensor.shape)} instead of {tuple(known[name].shape)}"
        for name, tensor in body.items()
        if name in known and tensor.shape != known[name].shape
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(f"{source} does not fit the network: {problems[0]}{more}")

    model.load_state_dict(body, strict=False)
    if fresh_body:
        _logger.warning("%s lacks %s: they start afresh", source, ", ".join(fresh_body))
    return tuple(fresh), tuple(name for name in state if name not in body)
