"""Models on the Hugging Face Hub: the model file with a card made from the run's record."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from bne.errors import DataError
from bne.training.manifest import BUNDLE
from bne.training.scores import RULES, UNTESTED
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bne.deploy.classifier import Classifier
    from bne.deploy.manifest import Manifest

FAILURES: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, HFValidationError, OSError)
"""Bases are errors of the library that reaches the Hub, which is another in other versions."""
TAGS = ["domain-generalization", "batch-normalization", "image-classification"]


class HubModel(ModelHubMixin, library_name="bne", pipeline_tag="image-classification", tags=TAGS):
    """A classifier in the terms of huggingface_hub.

    Args:
        model: the classifier.
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        self.model.save(save_directory / BUNDLE)
        known = self.model.info
        config = {
            "id": self.model.id,
            "backbone": known.backbone,
            "method": known.method,
            "classes": known.classes,
            "domains": known.domains,
            "bne": known.bne,
        }
        (save_directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> HubModel:
        load: Callable[[Path], Classifier] = model_kwargs["load"]
        if Path(model_id).is_dir():
            return cls(load(Path(model_id) / BUNDLE))
        found = hf_hub_download(
            model_id,
            BUNDLE,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            token=token,
            local_files_only=local_files_only,
        )
        return cls(load(Path(found)))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """A card of what the model is, how it was trained and how well it does."""
        data = ModelCardData(library_name="bne", pipeline_tag="image-classification", tags=TAGS)
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(_body(self.model.info)))


def _body(model: Manifest) -> Iterator[str]:
    yield f"# {model.backbone}, trained by {model.method} on {listed(model.domains)}\n"
    classes = listed(model.classes)
    yield (
        f"An image classifier for {len(model.classes)} classes: {classes}. "
        f"It was trained on images of {listed(model.domains)}, to be used on domains that it has "
        "never seen.\n"
    )
    yield "## Use\n\n```python\nimport bne\n"
    yield 'model = bne.from_pretrained("owner/name")  # this repository'
    yield 'answers = model.predict("photo.jpg")'
    places = ", answers.nearest_domains" if model.branches else ""
    yield f"print(answers.classes, answers.probabilities{places})\n```\n"
    accuracy = model.accuracy
    if accuracy:
        share = accuracy["lean"]
        words = "a learned share at each layer" if share == "learned" else f"a share of {share:g}"
        yield f"## Accuracy\n\nOf {RULES[accuracy['rule']]}, leaning by {words}.\n"
        yield "| domain | images | correct | accuracy | balanced accuracy |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        kinds = {"target": "unseen", "validation": "known, held-out images"}
        for kind, which in kinds.items():
            for domain, own in accuracy[kind].items():
                percent = 100 * own["correct"] / own["images"]
                balanced = f"{own['balanced']:.1f} %" if "balanced" in own else "–"
                cells = (own["images"], own["correct"], f"{percent:.1f} %", balanced)
                yield f"| {domain} ({which}) | {' | '.join(map(str, cells))} |"
        yield "" if accuracy["target"] or model.expected else f"\n{UNTESTED}\n"
    if model.expected:
        yield f"{model.expected['sentence']}\n"
    scale = model.calibration
    if scale.images:
        yield (
            f"Probabilities are calibrated on {scale.images} held-out images of the known domains, "
            f"by a temperature of {scale.temperature:.2f}. On unseen domains they tend to be too "
            "high.\n"
        )
    if model.recipe:
        yield "## Training\n\n```json"
        yield json.dumps(model.recipe, indent=1, default=str)
        yield "```\n"


def push(model: Classifier, name: str, **options: Any) -> str:
    """Writes a model to a repository of the Hub; see `ModelHubMixin.push_to_hub`.

    Raises:
        DataError: The Hub does not take it, or cannot be reached.
    """
    with _explained(name, "the model cannot be pushed to the Hub"):
        return HubModel(model).push_to_hub(name, **options)


def save(model: Classifier, folder: Path) -> None:
    """Writes into a folder what a repository of the Hub would hold."""
    HubModel(model).save_pretrained(folder)


def pull(name: str, load: Callable[[Path], Classifier], **options: Any) -> Classifier:
    """Reads a model from a repository of the Hub, or from a folder with the same files.

    Args:
        name: `owner/name`, or a folder.
        load: reads the model file.
        **options: of `ModelHubMixin.from_pretrained`: revision, token, cache_dir and others.

    Raises:
        DataError: There is no such repository or no model in it, or it is damaged.
    """
    with _explained(name, "no model can be had from the Hub"):
        found: HubModel = HubModel.from_pretrained(name, load=load, **options)
    return found.model


@contextmanager
def _explained(name: str, what: str) -> Iterator[None]:
    """A context whose errors say in a sentence what could not be done, and why."""
    try:
        yield
    except FAILURES as error:
        said = str(error).strip() or type(error).__name__
        reason = said.splitlines()[0].removesuffix(".")
        raise DataError(f"{name}: {what} ({reason}).") from error
