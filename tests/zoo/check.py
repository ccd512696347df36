"""What conversion promises, checked on one network of torchvision's or timm's zoo.

Everything is computed in float64, where two ways to the same number agree to many digits even
after the hundred layers of an untrained network.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

import bne
from tests.networks import randomise_norms

DOMAINS = ["one", "two", "three"]
SIZES = (32, 64, 96, 128, 160, 192, 224, 256, 288, 299, 320, 384, 448, 512, 576, 600, 800)
TOLERANCE = 1e-6


class MismatchError(AssertionError):
    """A promise that did not hold."""


def names() -> list[str]:
    """Every classification network of both zoos, as "library/name"."""
    import timm
    import torchvision

    ours = torchvision.models.list_models(module=torchvision.models)
    return [f"torchvision/{n}" for n in ours] + [f"timm/{n}" for n in timm.list_models()]


def build(name: str) -> nn.Module:
    """An untrained network."""
    library, short = name.split("/", 1)
    if library == "timm":
        import timm

        return timm.create_model(short, pretrained=False)
    import torchvision

    options = {"init_weights": False} if short in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(short, weights=None, **options)


def has_batch_norm(name: str, device: str = "cpu") -> bool:
    """Whether a network has batch norm, found without giving it memory where that is possible."""
    try:
        with torch.device("meta"):
            model = build(name)
    except Exception:  # some networks compute with their weights while they are built
        with torch.device(device):
            model = build(name)
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def check(name: str, device: str = "cpu") -> dict[str, Any]:
    """Raises `MismatchError` where a promise does not hold; returns what was checked."""
    with torch.device(device):
        torch.manual_seed(0)
        model = randomise_norms(build(name).double())
        images = smallest_input(model)
        _same_in_evaluation(model, images)
        _same_in_training(model, images)
    return {
        "size": images.shape[-1],
        "layers": sum(isinstance(module, _BatchNorm) for module in model.modules()),
        "kinds": sorted({type(m).__name__ for m in model.modules() if isinstance(m, _BatchNorm)}),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _is_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm)


def smallest_input(model: nn.Module) -> Tensor:
    """Four images of the smallest size that the network takes, in training and in evaluation.

    With two, a layer that sees one value a channel would turn rounding into signs.
    """
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for size in SIZES:
        images = torch.randn(4, 3, size, size, dtype=torch.double)
        try:
            with torch.no_grad():
                model.eval()(images)
                model.train()(images)
        except (RuntimeError, AssertionError, ValueError, IndexError, ZeroDivisionError) as error:
            reason = error
        else:
            model.load_state_dict(state)
            return images
    raise reason


@torch.no_grad()
def _same_in_evaluation(model: nn.Module, images: Tensor) -> None:
    expected = model.eval()(images)
    net = bne.convert(model, DOMAINS).eval()
    out = net.explain(images)
    for branch in range(len(DOMAINS)):
        _close("branch output", out.branch_logits[:, branch], expected)
    _close("mixture", out.logits, expected)
    reverted = bne.revert(net)
    for (key, value), (other, original) in zip(
        reverted.state_dict().items(), model.state_dict().items(), strict=True
    ):
        if key != other or not torch.equal(value, original):
            raise MismatchError(f"revert changed {key}")
    if [type(m) for m in reverted.modules()] != [type(m) for m in model.modules()]:
        raise MismatchError("revert changed a module's class")


@torch.no_grad()
def _same_in_training(model: nn.Module, images: Tensor) -> None:
    """One domain with the original's momentum is the original, but for the biased variance."""
    net = bne.convert(model, DOMAINS[:1], momentum="keep").train()
    plain = {name: m for name, m in model.named_modules() if _is_norm(m)}
    before = {name: m.running_var.clone() for name, m in plain.items()}
    values: dict[str, int] = {}
    hooks = [m.register_forward_pre_hook(_count(name, values)) for name, m in plain.items()]
    torch.manual_seed(1)
    expected = model.train()(images)
    for hook in hooks:
        hook.remove()
    torch.manual_seed(1)
    actual = net(images, domains=DOMAINS[:1] * len(images))
    for ours, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        _close("training output", ours, theirs)
    for layer in net.modules():
        if isinstance(layer, bne.DomainBatchNorm):
            original = plain[layer.name]
            _close(f"running mean of {layer.name}", layer.running_mean[0], original.running_mean)
            if n := values.get(layer.name):
                old = before[layer.name]
                # new = (1 - m) old + m biased, so the unbiased one adds m biased / (n - 1).
                biased = (layer.running_var[0] - (1 - original.momentum) * old) / original.momentum
                unbiased = layer.running_var[0] + original.momentum * biased / (n - 1)
                _close(f"running variance of {layer.name}", unbiased, original.running_var)


def _count(name: str, values: dict[str, int]) -> Callable[[nn.Module, tuple[Tensor]], None]:
    def hook(module: nn.Module, inputs: tuple[Tensor]) -> None:
        values[name] = inputs[0].numel() // inputs[0].shape[1]

    return hook


def _close(what: str, actual: Tensor, expected: Tensor) -> None:
    if not expected.isfinite().all():
        raise MismatchError(f"{what}: the original's own is not finite")
    error = (actual - expected).abs().max() / expected.abs().max().clamp_min(1e-12)
    if not error <= TOLERANCE:
        raise MismatchError(f"{what}: relative error {error:.1e}")
