"""Rare classes: sampling and weights, as training uses them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight

from bne.recipes.inputs import Inputs
from bne.recipes.schema import HeadPhase, Phase
from bne.training.distributed import Processes
from bne.training.loop import Head, PhaseTraining
from bne.training.run import _make_method, make_model
from bne.training.runtime import Runtime
from tests.training import small

STEP = {"dog": 1, "house": 2, "tree": 4}


@pytest.fixture(scope="module")
def images():
    """All images of dogs, half of those of houses, a quarter of those of trees."""
    every = small.images()
    names = [file.name.split("/") for file in every.images.files]
    return small.only(every, [n for n, (_, c, i) in enumerate(names) if int(i) % STEP[c] == 0])


def runtime(images, balance: str, method: str = "bne") -> Runtime:
    recipe = small.recipe(method, balance=balance, validation=0.0, backbone="tiny-dry")
    inputs = Inputs.of(recipe, images.images)
    return Runtime.of(inputs, images, Processes(torch.device("cpu")))


def test_weights_are_those_of_scikit_learn(images) -> None:
    own = runtime(images, "weights")
    labels = list(own.inputs.train_labels.values())  # in domains of equal size
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(own.class_weights, theirs, rtol=1e-6)
    assert runtime(images, "none").class_weights is None
    assert runtime(images, "sampling").class_weights is None


def test_weights_make_up_for_what_is_drawn_of_domains_of_any_size(images) -> None:
    files = images.images.files
    fewer = [n for n, f in enumerate(files) if f.domain or f.name in ("art/dog/0", "art/tree/4")]
    recipe = small.recipe(per_domain=2, validation=0.0)
    inputs = Inputs.of(recipe, small.only(images, fewer).images, allow_gaps=True)
    weights, drawn = inputs.class_weights, np.zeros(3)
    for numbers in inputs.train.values():
        for number in numbers:
            drawn[inputs.images.files[number].label] += 1 / len(numbers) / 3
    np.testing.assert_allclose(drawn * weights, np.full(3, 1 / 3))


def test_images_without_a_label_and_parts_of_a_batch_count_right(images) -> None:
    own = runtime(images, "weights")
    model = Head(make_model(own, resumed=False)[0])
    method = PhaseTraining(own, "head", model, graphs=False).method
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, -100, -100])
    each = F.cross_entropy(logits[:4], labels[:4], reduction="none")
    expected = (each * own.class_weights[labels[:4]]).mean()
    torch.testing.assert_close(method.cross_entropy(logits, labels), expected)
    halves = [method.cross_entropy(logits[i : i + 2], labels[i : i + 2]) for i in (0, 2)]
    torch.testing.assert_close(torch.stack(halves).mean(), expected)


@pytest.mark.parametrize("method", ["bne", "bne-a", "deepall", "points", "dnet", "head-only"])
def test_every_stage_of_a_method_heeds_the_weights(images, method: str) -> None:
    own = runtime(images, "weights", method)
    made = _make_method(own, make_model(own, resumed=False)[0])
    phase = PhaseTraining(own, "train", made, graphs=False)
    batches = own.batches(own.inputs.train, 0)
    ((pixels, labels),) = own.feed.gather([batches.batch(0)])
    for epoch in (0, 3):
        phase.begin_epoch(epoch)
        losses = []
        for weights in (None, torch.full((3,), 2.0)):
            made.class_weights = weights
            torch.manual_seed(0)
            losses.append(made(own.transform(pixels), labels, batches.domains(0)))
        torch.testing.assert_close(losses[1], 2 * losses[0], rtol=1e-4, atol=1e-6)


def test_sampling_draws_every_class_equally_often(images) -> None:
    for balance, expected in {"sampling": [1 / 3] * 3, "none": [4 / 7, 2 / 7, 1 / 7]}.items():
        own = runtime(images, balance)
        batches = own.batches(own.inputs.train, 0)
        labels = images.labels[torch.cat([batches.batch(step) for step in range(84)])]
        np.testing.assert_allclose(labels.bincount() / len(labels), expected, atol=1e-6)


def test_runs_differ_by_what_is_done_for_rare_classes(images, tmp_path) -> None:
    recipe = small.recipe("deepall", head=HeadPhase(1), train=Phase(1), validation=0.0)
    losses = set()
    for balance in ("none", "sampling", "weights"):
        found = small.run(replace(recipe, balance=balance), images, tmp_path / balance)
        losses |= {(epoch.phase, epoch.loss) for epoch in found.epochs}
    assert len(losses) == 6
