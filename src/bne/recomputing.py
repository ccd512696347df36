"""Passes that are run again in the backward pass, so that their activations need not be kept."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bne.passes import Pass, Passes, Rule, copied


def run_recomputed(
    model: nn.Module, images: Tensor, copies: int, passes: Passes, rule: Rule, again: Rule
) -> Any:
    """What the network gives, of which only the images are kept for the backward pass.

    Args:
        model: whose layers normalise by the rule of `passes`.
        images: (N, ...).
        copies: how many times each image is run.
        passes: the layers' common rule.
        rule: of the pass.
        again: the same rule, but one that does not track statistics a second time.

    Raises:
        RuntimeError: A CUDA graph is recorded, and a layer draws random numbers.
    """
    compiling = torch.compiler.is_compiling()
    capturing = images.is_cuda and not compiling and torch.cuda.is_current_stream_capturing()
    if capturing and (random := _random_layers(model)):
        raise RuntimeError(
            f"layer {random[0]!r} draws random numbers, which a CUDA graph cannot draw again when "
            "it repeats a branch: leave max_branches at None, or train without a graph"
        )

    def contexts() -> tuple[Any, Any]:
        return nullcontext(), Pass(passes, again)

    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": not capturing}
    if not compiling:  # a compiler repeats in its own way, which leaves tracking out
        options["context_fn"] = contexts
    with Pass(passes, rule):
        # Not `passes.copies`: a compiler lets what is run again set nothing outside.
        return checkpoint(lambda images: model(copied(images, copies)), images, **options)


def _random_layers(model: nn.Module) -> list[str]:
    """The names of layers that draw random numbers in training: dropout under all its names."""
    return [
        name
        for name, module in model.named_modules()
        if module.training
        and any(word in type(module).__name__.lower() for word in ("drop", "stochastic"))
        and any(getattr(module, share, 0) for share in ("p", "drop_prob", "drop_p"))
    ]
