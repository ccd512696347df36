"""What was trained and how that went, as parts of a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bne.methods.registry import find
from bne.report import curves, look
from bne.report.run_folder import UNFINISHED
from bne.training.scores import RULES, Rule, choose, pooled
from bne.words import counted, duration, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bne.report.look import Look
    from bne.report.run_folder import Training
    from bne.training.events import Epoch, Score

NAMES = {"platform": "system", "weights": "initial weights"}
SHOWN = 12  # characters of a checksum


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings by dotted key, their values as `--set` takes them."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            path = prefix + name == "weights" and value  # the folder it lay in says nothing
            found[prefix + name] = value_text(Path(value).name if path else value)
    return found


def value_text(value: Any) -> str:
    """A setting's value, short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) or "[]"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={value_text(own)}" for key, own in value.items()) or "{}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_table(caption: str, settings: Mapping[str, str]) -> str:
    """A table of flat settings, folded."""
    return look.folded(caption, look.table(caption, ("setting", "value"), settings.items()))


def environment_table(environments: Sequence[Mapping[str, Any]]) -> str:
    """What runs ran in; where they differ, how many had which.

    Args:
        environments: as `bne.training.environment.describe` gives them, at least one.
    """
    names = dict.fromkeys(name for one in environments for name in one)
    rows = []
    for name in names:
        texts = [_environment_text(name, one.get(name)) for one in environments]
        kinds = {text: texts.count(text) for text in dict.fromkeys(texts)}
        told = [f"{text} ({counted(n, 'run')})" for text, n in kinds.items()]
        rows.append((NAMES.get(name, name), "; ".join(told) if len(kinds) > 1 else texts[0]))
    return look.table("What it ran in", ("", ""), rows)


def _environment_text(name: str, value: Any) -> str:
    if name == "weights" and isinstance(value, Mapping):
        checksum = value.get("sha256")
        end = f", SHA-256 {str(checksum)[:SHOWN]}…" if checksum else ""
        return f"{value.get('name') or 'random'}{end}"
    return "not known" if value is None else value_text(value)


def what_was_trained(training: Training, sources: Sequence[str]) -> list[str]:
    """Sentences for somebody who knows neither the code nor the run.

    Args:
        training: of the run.
        sources: the domains trained on.
    """
    settings = training.settings
    if not settings:
        return []
    weights = settings["weights"]
    start = f"the weights {Path(weights).name}" if weights else "random weights"
    joined = training.result is not None and training.result.target_images == "unlabelled"
    known = "whose images joined training without their labels" if joined else "which it never saw"
    tested = listed(training.target)
    sentences = [
        f"A network, {settings['backbone']} starting from {start}, was trained by the method "
        f"{settings['method']} to classify images of {listed(sources or ('other domains',))}, and "
        f"tested on images of {tested}, {known}.",
        f"{_length(settings)} The seed is {settings['seed']}.{_time(training)}",
    ]
    try:
        sentence = find(settings["method"]).sentence
    except ValueError:  # a method that was registered elsewhere
        return sentences
    return [*sentences, f"What the paper says of {settings['method']}: “{sentence}”."]


def recorded_accuracy(training: Training) -> dict[Rule, Epoch]:
    """The epochs that count, by the rule that chooses them."""
    if not any(epoch.phase == "train" for epoch in training.epochs):
        return {}
    return choose(training.epochs)


def accuracy_section(training: Training) -> list[str]:
    """The accuracy on every domain, under every rule."""
    chosen = recorded_accuracy(training)
    if not chosen:
        return []
    final = chosen["last"]
    rows = [("epoch", *(_epoch_text(epoch) for epoch in chosen.values()), "")]
    for domain, score in final.target.items():
        scores = [epoch.target[domain] for epoch in chosen.values()]
        rows.append((f"{domain}, the target", *map(_percent, scores), str(score.images)))
    if len(final.target) > 1:
        whole = [pooled(epoch.target.values()) for epoch in chosen.values()]
        rows.append(("all of the target", *map(_percent, whole), str(whole[0].images)))
    for domain, score in final.validation.items():
        scores = [epoch.validation[domain] for epoch in chosen.values()]
        rows.append((f"{domain}, held out", *map(_percent, scores), str(score.images)))
    note = (
        "How often the network named the right class, in percent, as recorded during training. "
        "Nothing was chosen by the target's images, except in the column that says so."
    )
    head = ("images of", *(RULES[rule] for rule in chosen), "images")
    return [look.paragraph(note), look.table("Accuracy, %", head, rows)]


def curve_data(training: Training, styles: Mapping[str, Look]) -> dict[str, Any]:
    """Lines of the loss and of the accuracies, for scripts and figures.

    Args:
        training: with at least one epoch.
        styles: of the domains, by name.
    """
    epochs = training.epochs

    def line(name: str, colour: str, dash: str, value: Callable[[Epoch], float | None]) -> Any:
        return {"name": name, "colour": colour, "dash": dash, "y": curves.line(epochs, value)}

    sources = [
        line(f"{domain}, held-out images", styles[domain].colour, "solid", curves.on_source(domain))
        for domain in epochs[-1].validation
    ]
    note = "target, not used for choosing"
    targets = [
        line(f"{domain}, {note}", styles[domain].colour, "dash", curves.on_target(domain))
        for domain in epochs[-1].target
    ]
    return {
        "stages": curves.plain_stages(epochs),
        "loss": [line("loss", "#333333", "solid", lambda epoch: epoch.loss)],
        "accuracy": [*sources, *targets],
    }


def curve_section(data: Mapping[str, Any] | None, still: bytes | None) -> list[str]:
    """The curves, or a picture of them where there is no script to draw them."""
    if data is None:
        return []
    note = look.paragraph(
        "How training went, epoch by epoch. Dotted vertical lines mark where something else began "
        "to be trained. The target's accuracy is recorded, but nothing is chosen by it."
    )
    alt = "The loss and the accuracy on every domain, epoch by epoch."
    if still is not None:
        return [note, look.picture(still, alt)]
    charts = "".join(
        f'<figure class="chart-box"><figcaption>{title}</figcaption>'
        f'<div class="chart" id="curve-{name}" role="img" aria-label="{title}"></div></figure>'
        for name, title in (("loss", "Loss, mean of each epoch"), ("accuracy", "Accuracy, %"))
    )
    return [note, f'<div class="charts">{charts}</div>', look.json_script("curve-data", data)]


def _epoch_text(epoch: Epoch) -> str:
    return f"{epoch.epoch}{', exact statistics' if epoch.statistics == 'exact' else ''}"


def _percent(score: Score) -> str:
    return f"{score.accuracy:.1f}"


def _length(settings: Mapping[str, Any]) -> str:
    head, train = settings["head"]["epochs"], settings["train"]["epochs"]
    if not head:
        return f"The whole network was to be trained for {counted(train, 'epoch')}."
    return (
        f"First the last layer alone was to be trained for {counted(head, 'epoch')}, then the "
        f"whole network for {train}."
    )


def _time(training: Training) -> str:
    if UNFINISHED in training.left_out:
        return (
            f" The run is not finished: {counted(len(training.epochs), 'epoch')} recorded so far."
        )
    if training.result is None:
        return ""
    took = f" It took {duration(training.result.seconds)}"
    if "device" not in training.environment:
        return f"{took}."
    device = str(training.environment["device"])
    return f"{took} on {device if 'CUDA' in device else f'a CPU ({device})'}."
