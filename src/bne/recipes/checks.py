"""What can be known of a recipe before the data are opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from bne.data.splits import compiled
from bne.data.values import parse_range
from bne.errors import SettingsError
from bne.recipes.schema import convert

if TYPE_CHECKING:
    from torch import Tensor

    from bne.methods import Method
    from bne.models.registry import Backbone
    from bne.recipes.schema import Recipe

DOWNLOADS = ("torchvision", "timm")


def check_settings(recipe: Recipe) -> None:
    """Checks a recipe, its method and its network, of which none is built.

    Raises:
        SettingsError: Something is unknown, absent or contradictory; the message names the key.
    """
    check_numbers(recipe)
    check_names(recipe)
    if recipe.group is not None:
        compiled(recipe.group)
    if recipe.range != "percentiles":
        parse_range(recipe.range)
    if recipe.channels != 3 and recipe.augmentation != "paper":
        raise SettingsError(
            f"channels is {recipe.channels}, and augmentation {recipe.augmentation} changes "
            "colors; set it to paper."
        )
    backbone = _backbone(recipe)
    _check_size(recipe, backbone)
    _check_place_of_weights(recipe, backbone)
    _check_method(recipe, backbone)


def check_names(recipe: Recipe) -> None:
    """Checks that each domain is named once: one in target and in sources would be trained on.

    Raises:
        SettingsError: One is named twice.
    """
    for key in ("target", "sources"):
        names = getattr(recipe, key)
        if twice := [name for name in names if names.count(name) > 1]:
            raise SettingsError(f"{key} has {twice[0]} twice; remove one.")
    if both := sorted(set(recipe.target) & set(recipe.sources)):
        raise SettingsError(f"{both[0]} is in target and in sources; remove it from one.")


def check_numbers(recipe: Recipe) -> None:
    """Checks what numbers of a recipe say of each other.

    Raises:
        SettingsError: Two contradict each other; the message names them.
    """
    train = recipe.train
    if train.epochs < 1:
        raise SettingsError("train.epochs is 0; it must be at least 1.")
    if train.warm_up > train.epochs:
        raise SettingsError(
            f"train.warm_up is {train.warm_up}, more than train.epochs, {train.epochs}; choose "
            "fewer warm-up epochs, as in warm_up=1."
        )
    if recipe.patience is not None and not recipe.validation:
        raise SettingsError("patience needs validation, which is 0; hold some images out.")
    if recipe.shrinkage and not recipe.exact_statistics:
        raise SettingsError("shrinkage needs exact_statistics, which is false; set it to true.")
    if recipe.per_domain % recipe.accumulate:
        raise SettingsError(
            f"per_domain is {recipe.per_domain}, which accumulate={recipe.accumulate} does not "
            f"divide; choose a multiple of {recipe.accumulate}."
        )


def check_weights(recipe: Recipe) -> None:
    """Reads the initial weights, or downloads them, and tries them on the network.

    Raises:
        SettingsError: They are damaged, do not fit or cannot be had.
    """
    from bne.models import build

    try:
        build(recipe.backbone, 1, recipe.weights, recipe.channels)
    except (ValueError, RuntimeError) as error:
        raise SettingsError(f"weights: {error}.") from None


def _backbone(recipe: Recipe) -> Backbone:
    from bne.models.registry import find

    try:
        return find(recipe.backbone)
    except ValueError as error:
        raise SettingsError(f"backbone: {error}.") from None


def _check_size(recipe: Recipe, backbone: Backbone) -> None:
    """Runs a network without values on images of a size or with channels that are not its own."""
    own = backbone.preprocessing.size
    if recipe.resize < (recipe.size or own):
        takes = f"{own} pixels that backbone {recipe.backbone} takes"
        takes = takes if recipe.size is None else f"{recipe.size} pixels of size"
        raise SettingsError(f"resize is {recipe.resize}, less than the {takes}; set it higher.")
    if recipe.size is None and recipe.channels == 3:
        return
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    from bne.models.build import adapt_input

    size = recipe.size or own
    values: list[int] = []  # per channel of an image, at every batch norm

    def see(_: object, given: tuple[Tensor, ...]) -> None:
        values.append(given[0][0, 0].numel())

    try:
        with torch.device("meta"), torch.no_grad():
            network, images = backbone.create(2), torch.empty(2, recipe.channels, size, size)
            if recipe.channels != 3:
                adapt_input(network, recipe.backbone, recipe.channels)
            for layer in network.modules():
                if isinstance(layer, _BatchNorm):
                    layer.register_forward_pre_hook(see)
            for training in (True, False):  # some have further outputs in training
                network.train(training)(images)
        if values and max(values) == 1:
            raise ValueError("no batch norm sees more than one value per channel of an image")
    except (AssertionError, RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        if recipe.channels != 3:
            raise SettingsError(
                f"channels is {recipe.channels}, which backbone {recipe.backbone} cannot take at "
                f"{size} pixels ({why}); choose another backbone."
            ) from None
        raise SettingsError(
            f"size is {recipe.size}, which backbone {recipe.backbone} cannot take ({why}); leave "
            f"it out for the network's own {own} pixels, or choose another."
        ) from None


def _check_place_of_weights(recipe: Recipe, backbone: Backbone) -> None:
    if recipe.weights is None or recipe.weights in backbone.downloads:
        return
    if recipe.weights in DOWNLOADS:
        raise SettingsError(
            f"weights is {recipe.weights}, which has none for backbone {recipe.backbone}; give "
            f"{' or '.join([*backbone.downloads, 'a file, or null for random ones'])}."
        )
    if not Path(recipe.weights).is_file():
        raise SettingsError(f"weights: there is no file {recipe.weights}.")


def _check_method(recipe: Recipe, backbone: Backbone) -> None:
    """Makes the method on a network without values, so that a wrong option costs no training."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    from bne.methods import check_options, create, find

    try:
        method = find(recipe.method).method
    except ValueError as error:
        raise SettingsError(f"method: {error}.") from None
    if recipe.lean not in ("auto", 0) and not method.can_lean:
        raise SettingsError(f"lean: method {recipe.method} does not lean; leave it out.")
    if recipe.domains_per_step is not None and method.uses_target:
        raise SettingsError(
            f"domains_per_step: method {recipe.method} needs the target in each step; leave it out."
        )
    if recipe.domains_per_step is not None and recipe.options.get("branch_loss"):
        raise SettingsError("options.branch_loss is of all branches; leave domains_per_step out.")
    hints = option_types(method)
    for name, value in recipe.options.items():
        try:
            check_options(recipe.method, {name: value})
            convert(hints[name], value)
        except ValueError as error:
            raise SettingsError(f"options.{name}: {error}.") from None
        except TypeError as error:
            raise SettingsError(f"options.{name} is {value!r}; it must be {error}.") from None
    with torch.device("meta"):
        try:
            network = backbone.create(2)
        except (ValueError, TypeError) as error:
            raise SettingsError(f"backbone {recipe.backbone}: {error}.") from None
        normalised = any(isinstance(module, _BatchNorm) for module in network.modules())
        if recipe.lean not in ("auto", 0) and not normalised:
            raise SettingsError(
                f"lean: backbone {recipe.backbone} has no batch norm, where images lean; leave it "
                "out."
            )
        try:
            create(recipe.method, network, ["one", "another"], recipe.options)
        except (ValueError, TypeError) as error:
            place = "options" if normalised else f"backbone {recipe.backbone}"
            raise SettingsError(f"{place}: {error}.") from None


def option_types(method: type[Method]) -> dict[str, Any]:
    """Of a class's options, and of those it passes on to the classes above."""
    hints: dict[str, Any] = {}
    for kind in reversed(method.__mro__):
        hints |= get_type_hints(vars(kind).get("__init__", object.__init__))
    return hints
