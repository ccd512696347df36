"""What conversion promises, checked on one network of torchvision's or timm's zoo.

Everything is computed in float64, where two ways to the same number agree to many digits even
after the hundred layers of an untrained network. The network is converted in place, without the
copies that `bne.convert` and `net.to_plain` make, because some have more than a billion parameters.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

import bne
from bne.core.norm import domain_layers
from bne.core.surgery import remove

DOMAINS = ["one", "two", "three"]
SIZES = (32, 64, 96, 128, 160, 192, 224, 256, 288, 299, 320, 384, 448, 512, 576, 600, 800)
TOLERANCE = 1e-6
SEEDS = 5  # tried until a network does not amplify rounding


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


@torch.no_grad()
def randomise_norms(model: nn.Module) -> nn.Module:
    """Gives every batch norm statistics and parameters of its own."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            if module.weight is not None:
                module.weight.uniform_(0.5, 1.5)
            if module.bias is not None:
                module.bias.normal_(0, 0.3)
            if module.track_running_stats:
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
    return model


@dataclass
class Behaviour:
    """What the original does, in evaluation and in one training step."""

    evaluation: Tensor
    layers: list[tuple[str, Tensor]]
    training: list[Tensor]
    state: dict[str, Tensor]
    trained_state: dict[str, Tensor]
    values: dict[str, int]


def check(name: str, device: str = "cpu", *, domains: bool = False) -> dict[str, Any]:
    """Raises `MismatchError` where a promise does not hold; returns what was checked.

    Args:
        name: of the network, as `names` gives it.
        device: where it runs.
        domains: whether to check also that domains of different statistics are kept apart.
    """
    for seed in range(SEEDS):
        with torch.device(device):
            torch.manual_seed(seed)
            model = randomise_norms(build(name).double())
            images = smallest_input(model)
        if settle(model, images):
            break
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    with torch.no_grad():
        original = observe(model, images)
        model = same_in_evaluation(model, images, original)
        same_in_training(model, images, original)
        if domains:
            domains_kept_apart(model, images)
    return {
        "size": images.shape[-1],
        "layers": len(norms),
        "kinds": sorted({type(module).__name__ for module in norms}),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def smallest_input(model: nn.Module) -> Tensor:
    """Four images of the smallest size that the network takes, in training and in evaluation.

    With two, which are enough to find the size, a layer that sees one value a channel would turn
    rounding into signs.
    """
    state = buffers(model)
    for size in SIZES:
        images = torch.randn(4, 3, size, size, dtype=torch.double)
        try:
            with torch.no_grad():
                model.train()(images[:2])
                model.eval()(images[:2])
        except (RuntimeError, AssertionError, ValueError, IndexError, ZeroDivisionError) as error:
            reason = error
        else:
            restore(model, state)
            return images
    raise reason


@torch.no_grad()
def amplifies_rounding(model: nn.Module, images: Tensor) -> bool:
    """Whether noise of rounding's size behind every batch norm changes the output visibly."""

    def disturb(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return output * (1 + 2e-16 * torch.randn_like(output))

    expected = model.eval()(images)
    hooks = [m.register_forward_hook(disturb) for m in model.modules() if isinstance(m, _BatchNorm)]
    actual = model(images)
    for hook in hooks:
        hook.remove()
    return bool((actual - expected).abs().max() > 1e-9 * expected.abs().max())


@torch.no_grad()
def settle(model: nn.Module, images: Tensor) -> bool:
    """Where random statistics make the network amplify rounding, takes those of a training pass.

    Returns:
        Whether it does not amplify rounding any more.
    """
    if not amplifies_rounding(model, images):
        return True
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    for module in momenta:
        module.momentum = 1.0
    model.train()(images)
    for module, momentum in momenta.items():
        module.momentum = momentum
        if module.num_batches_tracked is not None:
            module.num_batches_tracked.zero_()  # as domains begin to count
    return not amplifies_rounding(model, images)


def observe(model: nn.Module, images: Tensor) -> Behaviour:
    """Runs the original, and puts its state back."""
    state, values = buffers(model), {}
    with norm_outputs(model) as layers:
        evaluation = model.eval()(images)
    hooks = [
        module.register_forward_pre_hook(_count(name, values))
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
    ]
    torch.manual_seed(1)
    training = tree_leaves(model.train()(images))
    for hook in hooks:
        hook.remove()
    trained_state = buffers(model)
    restore(model, state)
    return Behaviour(evaluation, layers, training, state, trained_state, values)


@contextmanager
def norm_outputs(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Mean and mean square of what every batch norm gives, (2, rows, C), in the order of calls."""
    found: list[tuple[str, Tensor]] = []

    def note(name: str, output: Tensor) -> None:
        values = output.unsqueeze(2).flatten(2)
        found.append((name, torch.stack((values.mean(2), values.square().mean(2)))))

    hooks = [
        module.register_forward_hook(lambda _m, _i, output, name=name: note(name, output))
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm | bne.DomainBatchNorm)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def converted(model: nn.Module, domains: list[str], **options: Any) -> bne.DomainEnsemble:
    """What `bne.convert` gives, of the network itself and not of a copy."""
    parameters = inspect.signature(bne.convert).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    return bne.DomainEnsemble(model, domains, **{**defaults, **options})


def same_in_evaluation(model: nn.Module, images: Tensor, original: Behaviour) -> nn.Module:
    """Three domains: branches and mixture answer as the original; converting back gives it."""
    classes = [type(module) for module in model.modules()]
    parameters = dict(model.named_parameters())
    net = converted(model, DOMAINS, momentum="keep").eval()
    with norm_outputs(net.model) as layers:
        net(images, torch.arange(len(images)) % len(DOMAINS), own_branch=True)
    for (name, ours), (_, theirs) in zip(layers, original.layers, strict=True):
        _close(f"output of {name}", ours, theirs)  # which later layers may damp
    out = net(images, details=True)
    for branch in range(len(DOMAINS)):
        _close("branch output", out.branch_logits[:, branch], original.evaluation)
    _close("mixture", out.logits, original.evaluation)
    plain = remove(net.model, None)
    if [type(module) for module in plain.modules()] != classes:
        raise MismatchError("converting back changed a module's class")
    if any(parameter is not parameters[name] for name, parameter in plain.named_parameters()):
        raise MismatchError("converting back changed a parameter")
    for name, value in buffers(plain).items():
        if not torch.equal(value, original.state[name]):
            raise MismatchError(f"converting back changed {name}")
    return plain


def same_in_training(model: nn.Module, images: Tensor, original: Behaviour) -> None:
    """One domain with the original's momentum is the original, but for the biased variance."""
    net = converted(model, DOMAINS[:1], momentum="keep").train()
    for layer in domain_layers(net):
        layer.num_batches_tracked.fill_(10**6)  # past the start, when all batches are averaged
    torch.manual_seed(1)
    outputs = tree_leaves(net(images, DOMAINS[:1] * len(images), own_branch=True))
    for ours, theirs in zip(outputs, original.training, strict=True):
        _close("training output", ours, theirs)
    for layer in domain_layers(net):
        (mean,), (var,) = layer.population
        old, theirs = (
            state[f"{layer.name}.running_var"] for state in (original.state, original.trained_state)
        )
        _close(
            f"running mean of {layer.name}",
            mean,
            original.trained_state[f"{layer.name}.running_mean"],
        )
        if n := original.values.get(layer.name):
            # var = (1 - m) old + m biased, so the unbiased one has m biased / (n - 1) more.
            unbiased = var + (var - (1 - layer.momentum) * old) / (n - 1)
            _close(f"running variance of {layer.name}", unbiased, theirs)


def domains_kept_apart(model: nn.Module, images: Tensor) -> None:
    """Branches of different statistics are the plain networks, image by image.

    Args:
        model: the network of the ensemble that `same_in_training` left, of one domain.
        images: its input.
    """
    net = converted(remove(model, 0), DOMAINS).eval()
    for layer in domain_layers(net):
        layer.running_mean += 0.2 * layer.running_var.sqrt() * torch.randn_like(layer.running_var)
        layer.running_var *= 0.7 + 0.7 * torch.rand_like(layer.running_var)
    out = net(images, details=True)
    alone = net(images[1:2], details=True)
    _close("weights of an image alone", alone.weights, out.weights[1:2])
    _close("mixture of an image alone", alone.logits, out.logits[1:2])
    for branch, name in enumerate(DOMAINS):
        _close(f"branch {name}", out.branch_logits[:, branch], net.to_plain(name)(images))


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """A copy of everything in the network that a forward pass may change."""
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def restore(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Puts back what `buffers` copied."""
    for name, buffer in model.named_buffers():
        buffer.copy_(state[name])


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
