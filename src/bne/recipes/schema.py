"""What a training run consists of: every setting with its default and its limits, declared once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bne.data.strong import Strong
from bne.errors import SettingsError, did_you_mean


@dataclass(frozen=True)
class Optimiser:
    """How weights follow gradients.

    Attributes:
        name: of the optimizer; weight decay is L2 in the gradient, but decoupled in "adamw".
        learning_rate: at the start.
        momentum: of SGD.
        weight_decay: of all parameters.
        head_factor: by how much the last layer's learning rate exceeds that of the others.
        clip: the largest norm of the gradient; None leaves it as it is.
    """

    name: Literal["adam", "sgd", "adamw"] = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    head_factor: float = 10.0
    clip: float | None = None


@dataclass(frozen=True)
class Schedule:
    """How the learning rate changes during a phase.

    Attributes:
        name: "constant"; "cosine", down to zero over the phase, step by step; "exponential", times
            `decay` after every epoch.
        decay: of "exponential".
    """

    name: Literal["constant", "cosine", "exponential"] = "constant"
    decay: float = 0.95


@dataclass(frozen=True)
class HeadPhase:
    """The first stretch of training, of the last layer alone; 0 epochs leave it out."""

    epochs: int
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True)
class Phase:
    """The second stretch of training, of everything.

    In the first `warm_up` of its epochs the domains' statistics settle, in methods that
    distinguish.
    """

    epochs: int
    warm_up: int = 0
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True)
class Amplitudes:
    """How training images mix the amplitudes of their Fourier transforms, after augmentation.

    An image keeps its phases, its label and its domain. The share of its partner's amplitudes is
    drawn from 0 to 1.

    Attributes:
        name: None for not at all; "random", with any other image of the batch; "other domain", with
            one of another domain.
        chance: of an image to be mixed.
    """

    name: Literal["random", "other domain"] | None = None
    chance: float = 0.5


@dataclass(frozen=True)
class Averaging:
    """Which average of the weights is tested and kept instead of the last ones.

    Attributes:
        name: None for none; "ema", an exponential moving average; "swa", the mean of the tail's
            epochs; "dense", the mean of the tail's steps, as in SWAD, for a rate that stays high.
        decay: of "ema", a step; lower in early steps, so that a short run forgets its start.
        tail: share of the training phase that "swa" and "dense" average.
    """

    name: Literal["ema", "swa", "dense"] | None = None
    decay: float = 0.999
    tail: float = 0.25


@dataclass(frozen=True)
class Recipe:
    """One training run. The defaults are those of the recipe `default`.

    Attributes:
        method: its name, see `bne.methods.entries`.
        target: the domains held out; empty holds out none, for a model to use.
        options: of the method.
        sources: the domains to train on; empty takes all that are not held out.
        backbone: its name, see `bne.models.list_models`.
        weights: initial weights, as `bne.models.build` takes them.
        calibrate: whether batch-norm statistics start from the activations of training images, for
            weights that come without them.
        seed: of the new layers' weights, batches, augmentation and split.
        per_domain: images of each source domain in a step, over all processes.
        domains_per_step: source domains in a step, drawn evenly, and branches trained in it;
            None takes all.
        accumulate: into how many equal parts a step's images are cut, to save memory; each domain
            batch is cut, so batch-norm statistics are those of the parts.
        epoch: steps in an epoch, as `bne.data.batches.DomainBatches` takes it.
        validation: "official", the benchmark's own split; the share of each source domain held out;
            or "auto", the official split if the data have one and a share of 10 % if not.
        group: a regular expression on file names whose parentheses match what images of one patient
            or video share: no split parts these. None takes the column `group` of a table, if there
            is one; see `bne.data.splits.groups_of`.
        balance: what is done for rare classes: "sampling" draws every class of a domain as often as
            any other; "weights" counts an image in the loss by how seldom its class is drawn.
        augmentation: of training images.
        strong: how far the strong one goes.
        amplitudes: how training images mix their amplitudes, whatever the augmentation.
        flip: whether to mirror every other training image.
        size: height and width of the network's input; None takes the backbone's own.
        resize: height and width images are resized to before they are cropped. If settings give
            `size` and leave it out, it follows in the ratio of 256 to 224.
        fit: how images become square: "squash" stretches them, "letterbox" keeps their aspect
            between black borders.
        range: the values of images of more than 8 bits that become black and white: "full", all
            that the file could hold, or the window that a DICOM file names; [low, high]; or
            "percentiles", from the 0.5th to the 99.5th of the training images' values.
        channels: of images: 3 for color, 1 for gray, or as many as `.npy` arrays have.
        precision: "bf16" or "float32", of convolutions and matrix products.
        head: the phase in which the last layer alone is trained, under the pretrained statistics.
        train: the phase in which everything is.
        label_smoothing: the share of the loss in which all classes count alike.
        averaging: of weights.
        exact_statistics: whether the population statistics are recomputed over the source images
            after training.
        shrinkage: the number of images at which a domain's statistics, as measured after training,
            are half its own and half the average domain's; 0 takes each domain's own.
        lean: how far images lean on their own statistics when the trained network is used, 0 to 1;
            "auto" takes the shares that the method has learned or, if it learns none, the largest
            up to 0.1, or 0.2 for methods trained to lean, that costs held-out source images no more
            than a standard error. It is no part of what tells runs
            apart: accuracies are those of share 0, and those at other shares stand beside them.
        patience: epochs without a better source validation after which training stops; None goes
            on to the end.
    """

    method: str = "bne"
    target: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    backbone: str = "resnet18"
    weights: str | None = "torchvision"
    calibrate: bool = False
    seed: int = 0
    per_domain: int = 16
    domains_per_step: int | None = None
    accumulate: int = 1
    epoch: Literal["largest", "smallest"] | int = "largest"
    validation: Literal["auto", "official"] | float = "auto"
    group: str | None = None
    balance: Literal["none", "sampling", "weights"] = "none"
    augmentation: Literal["paper", "strong", "randaugment"] = "paper"
    strong: Strong = field(default_factory=Strong)
    amplitudes: Amplitudes = field(default_factory=Amplitudes)
    flip: bool = True
    size: int | None = None
    resize: int = 256
    fit: Literal["squash", "letterbox"] = "squash"
    range: Literal["full", "percentiles"] | tuple[float, ...] = "full"
    channels: int = 3
    precision: Literal["bf16", "float32"] = "bf16"
    head: HeadPhase = field(default_factory=lambda: HeadPhase(epochs=2))
    train: Phase = field(default_factory=lambda: Phase(20, 6, schedule=Schedule("cosine")))
    label_smoothing: float = 0.0
    averaging: Averaging = field(default_factory=Averaging)
    exact_statistics: bool = True
    shrinkage: float = 0.0
    lean: Literal["auto"] | float = "auto"
    patience: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dictionaries, for YAML and JSON."""
        return asdict(self)

    @property
    def statistics(self) -> int | None:
        """The version of how statistics and averages are made; None where there are none of them.

        Version 1 ran batches of one class, and averaged weights under other weights' statistics.
        Version 2 counted early weights in "ema" as much as late ones.
        """
        if self.averaging.name == "ema":
            return 3
        return 2 if self.exact_statistics or self.averaging.name else None


Settings = Mapping[str, Any]
"""Some of a recipe's values, nested as the recipe is."""

_HEAD = {
    "lr": "optimiser.learning_rate",
    "learning_rate": "optimiser.learning_rate",
    "weight_decay": "optimiser.weight_decay",
    "optimizer": "optimiser",
}
_TRAIN = {**_HEAD, "warmup": "warm_up"}
# What people type, and the setting it stands for: outside a phase, that of the training phase.
ALIASES: dict[Any, dict[str, str]] = {
    Optimiser: {"lr": "learning_rate"},
    HeadPhase: _HEAD,
    Phase: _TRAIN,
    Recipe: {
        **{name: f"train.{key}" for name, key in _TRAIN.items()},
        **{name: f"train.{name}" for name in ("epochs", "warm_up", "optimiser", "schedule")},
        "batch_size": "per_domain",
    },
}
RETIRED = ("head.warm_up",)  # what earlier versions wrote and no run ever heeded

_LIMITS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("head_factor clip", lambda x: x > 0, "above 0"),
    ("weight_decay seed shrinkage", lambda x: x >= 0, "at least 0"),
    (
        "per_domain domains_per_step accumulate size resize channels patience",
        lambda x: x >= 1,
        "at least 1",
    ),
    ("momentum validation label_smoothing", lambda x: 0 <= x < 1, "at least 0 and below 1"),
    ("lean jitter gray chance", lambda x: 0 <= x <= 1, "at least 0 and at most 1"),
    ("hue", lambda x: 0 <= x <= 0.5, "at least 0 and at most 0.5"),
    ("decay tail area", lambda x: 0 < x <= 1, "above 0 and at most 1"),
    ("learning_rate", lambda x: 0 < x <= 1e6, "above 0 and at most 1e6"),
    ("epochs warm_up", lambda x: 0 <= x <= 1e6, "at least 0 and at most 1,000,000"),
    ("epoch", lambda x: 1 <= x <= 1e6, "at least 1 and at most 1,000,000"),
)
# Every number has one, by the last part of its key.
LIMITS = {key: (within, words) for names, within, words in _LIMITS for key in names.split()}


def convert(hint: Any, value: Any) -> Any:
    """A value as the type it is declared to have, if that is one that is checked.

    Raises:
        TypeError: It is of another type; the message says what is expected.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for part in parts:
            try:
                return convert(part, value)
            except TypeError:
                continue
    elif hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(convert(parts[0], item) for item in value)
    elif _fits(hint, value):
        return value
    raise TypeError(_describe(hint))


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_NAMES |= {NoneType: "null"}


def _fits(hint: Any, value: Any) -> bool:
    if get_origin(hint) is Callable:
        return callable(value)
    if isinstance(value, bool):  # which is a whole number to Python
        return hint is bool or (hint not in _NAMES and get_origin(hint) is not Literal)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return hint not in _NAMES or isinstance(value, hint)


def _describe(hint: Any) -> str:
    """What a type means to somebody who writes a recipe."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_describe(part) for part in parts)
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    others = {tuple: "a list", Callable: "a function"}
    return others.get(origin) or _NAMES.get(hint, "a group of settings")


def checked(settings: Any, source: str = "", others: Iterable[str] = ()) -> Settings:
    """Some settings of a recipe, each of the type and within the limits that the recipe states.

    Args:
        settings: nested as the recipe is; any may be absent, `ALIASES` are understood.
        source: where they stand, to begin an error with.
        others: keys that may stand beside them, for the advice on a misspelled one.

    Raises:
        SettingsError: A key is unknown, at any depth, or there twice, or a value impossible; the
            message has the full dotted key and the nearest valid one.
    """
    try:
        return _checked_group(settings, Recipe, "", others)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}" if source else str(error)) from None


def nested(key: str, value: Any) -> Settings:
    """`train.epochs` and 20 as `{"train": {"epochs": 20}}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    settings: Settings = value
    return settings


def merged(settings: Settings, over: Settings) -> Settings:
    """Settings with others on top: groups are merged key by key, values and lists replaced."""
    result = dict(settings)
    for key, value in over.items():
        old = result.get(key)
        groups = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if groups else value  # type: ignore[arg-type]
    return result


def flat(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Settings by dotted keys."""
    result = {}
    for name, value in settings.items():
        group = isinstance(value, Mapping)
        result.update(flat(value, f"{prefix}{name}.") if group else {prefix + name: value})
    return result


def to_recipe(settings: Settings) -> Recipe:
    """The recipe of checked settings, the rest being its defaults."""
    if settings.get("size") is not None:
        settings = {"resize": round(settings["size"] * 256 / 224), **settings}
    recipe: Recipe = _replaced(Recipe(), settings)
    return recipe


def keys(kind: Any = Recipe, prefix: str = "") -> dict[str, Any]:
    """All settings by their dotted keys, with the types of their values."""
    found = {}
    for name, hint in _hints(kind).items():
        key = prefix + name
        found.update(keys(hint, f"{key}.") if is_dataclass(hint) else {key: hint})
    return found


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Mapping": Mapping})


def _checked_group(settings: Any, kind: Any, prefix: str, others: Iterable[str] = ()) -> Settings:
    known, result = _hints(kind), dict[str, Any]()
    if isinstance(settings, str) and "name" in known:  # `optimizer: adam`
        settings = {"name": settings}
    if not isinstance(settings, Mapping):
        place = prefix.rstrip(".") or "the recipe"
        raise SettingsError(f"{place} is {settings!r}; it must be a group of settings.")
    for given, value in settings.items():
        if f"{prefix}{given}" in RETIRED:
            continue
        key = ALIASES.get(kind, {}).get(given, given)
        name, dot, rest = str(key).partition(".")
        if name not in known:
            near = _near(prefix, str(given), [*known, *others])
            raise SettingsError(f"{prefix}{given} is no setting; {near}.")
        check = _checked_group if is_dataclass(known[name]) else _checked_value
        one = check(nested(rest, value) if dot else value, known[name], f"{prefix}{name}.")
        twice = flat(nested(name, one)).keys() & flat(result).keys()
        if twice:
            raise SettingsError(f"{prefix}{min(twice)} is there twice, once as {prefix}{given}.")
        result = dict(merged(result, {name: one}))
    return result


def _near(prefix: str, name: str, siblings: Iterable[str]) -> str:
    """The setting that an unknown one may be meant to be."""
    elsewhere = [key for key in keys() if key.split(".")[-1] == name]
    if elsewhere and not prefix:
        return f"the nearest is {' or '.join(map(repr, elsewhere))}"
    if not prefix:
        siblings = [*siblings, *ALIASES[Recipe]]
    return did_you_mean(prefix + name, [*(prefix + sibling for sibling in siblings), *elsewhere])


def _checked_value(value: Any, hint: Any, prefix: str) -> Any:
    key = prefix.rstrip(".")
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise SettingsError(f"{key} is {value!r}; it must be a group of settings.")
        return value
    try:
        result = convert(hint, value)
    except TypeError as error:
        raise SettingsError(f"{key} is {value!r}; it must be {error}.") from None
    if isinstance(result, int | float) and not isinstance(result, bool):
        within, words = LIMITS[key.split(".")[-1]]
        if not within(result):
            raise SettingsError(f"{key} is {value!r}; it must be {words}.")
    return result


def _replaced(group: Any, settings: Settings) -> Any:
    """A copy of a dataclass with some of its values replaced, groups value by value."""
    changes = {}
    for name, value in settings.items():
        old = getattr(group, name)
        changes[name] = _replaced(old, value) if is_dataclass(old) else value
    return replace(group, **changes)
