"""The numbers of an analysis against those that training records of the same images."""

import json
from dataclasses import replace
from math import nan

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from bne.data.splits import Split
from bne.errors import DataError
from bne.inspection.analysis import analyse
from bne.inspection.numbers import HELD_OUT, NO_BRANCHES, NO_POINTS, NONE_SEEN
from bne.inspection.observe import sample
from bne.methods import DeepAll
from bne.report import content
from bne.report.content import SAME_WEIGHTS
from tests.inspection.models import SOURCES, TARGET, images_of
from tests.report.models import analysis

EVERYTHING = (*SOURCES, *TARGET)


@pytest.fixture(autouse=True)
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "POINTS", 10)


def recorded(model):
    """What a run would record if it tested on all domains and held nothing out."""
    images = model.prepared.images
    splits = {source: Split(tuple(images.indices_of([source])), ()) for source in SOURCES}
    recipe = replace(model.recipe, target=EVERYTHING)
    return analyse(replace(model, splits=splits, recipe=recipe))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("bne", {}),
        ("bne", {"mix": "probabilities", "distance": "bhattacharyya"}),
        ("dnet", {}),
        ("deepall", {}),
    ],
)
def test_numbers_are_those_of_a_run(method: str, options: dict[str, object]) -> None:
    model, found = analysis(method, options=options)
    expected, numbers = recorded(model), found.numbers
    assert numbers["accuracy"] == expected["target"]["accuracy"]
    assert numbers["confusion"] == expected["target"]["confusion"]
    for domain, error in expected["target"]["calibration_error"].items():
        assert numbers["calibration_error"][domain] == pytest.approx(error, abs=1e-5)
    if method == "deepall":
        assert "weights" not in numbers
        return
    for domain, row in expected["target"]["weights"].items():
        assert numbers["weights"][domain] == pytest.approx(row, rel=1e-4)
    sources = expected["sources"]
    assert numbers["domain_accuracy"] == sources["domain_accuracy"]["train"]
    assert ("similarity" in numbers) == ("similarity" in sources)
    for domain, row in sources.get("similarity", {}).items():
        assert numbers["similarity"][domain] == pytest.approx(row, rel=1e-4)
    for layer, own in sources.get("layers", {}).items():
        assert numbers["layers"][layer]["share"] == pytest.approx(own["share"], rel=1e-4)
        assert numbers["layers"][layer]["domain_accuracy"] == own["domain_accuracy"]


@pytest.mark.parametrize("method", ["bne", "dnet"])
def test_held_out_images_do_not_tell_where_domains_lie(method: str) -> None:
    """The same split as a run's own analysis, which looks at training images only."""
    model, everything = analysis(method)
    held_out = {n for split in model.splits.values() for n in split.validation}
    _, found = analysis(method, held_out=held_out)
    expected, numbers = analyse(model)["sources"], found.numbers
    assert numbers["domain_accuracy"] == expected["domain_accuracy"]["train"]
    assert numbers["domain_accuracy"]["art"]["images"] == 25 - len(model.splits["art"].validation)
    for source in SOURCES:
        assert numbers["weights"][source] == pytest.approx(expected["weights"][source], rel=1e-4)
        for key in ("similarity",) if method == "bne" else ():
            row = pytest.approx(expected[key][source], rel=1e-4)
            assert numbers[key][source] == row
            assert everything.numbers[key][source] != row
    for layer, own in expected.get("layers", {}).items():
        assert numbers["layers"][layer]["share"] == pytest.approx(own["share"], rel=1e-4)
        assert numbers["layers"][layer]["domain_accuracy"] == own["domain_accuracy"]
    assert numbers["accuracy"] == everything.numbers["accuracy"]
    assert found.images["art"]["held_out"] == len(model.splits["art"].validation)
    assert found.images["dslr"]["held_out"] == 0


def test_a_domain_of_which_only_held_out_images_were_drawn() -> None:
    model, _ = analysis(images=2)
    art = set(model.prepared.images.indices_of(["art"]))
    _, found = analysis(images=2, held_out=art)
    assert "art" not in found.numbers["similarity"]
    assert "art" not in found.numbers["domain_accuracy"]
    assert HELD_OUT.format("art") in found.numbers["left_out"]
    json.dumps(found.to_dict(), allow_nan=False)
    _, none = analysis(domains=("art",), held_out=art)
    assert "similarity" not in none.numbers


def test_shares_add_up_and_bins_hold_every_image() -> None:
    _, found = analysis()
    for domain, row in found.numbers["similarity_share"].items():
        assert sum(row.values()) == pytest.approx(1)
        assert max(row, key=row.get) == max(
            found.numbers["similarity"][domain], key=found.numbers["similarity"][domain].get
        )
    for domain, bins in found.numbers["reliability"].items():
        score = found.numbers["accuracy"]["prediction"][domain]
        assert sum(b["images"] for b in bins) == score["images"]
        right = sum(b["images"] * b["accuracy"] for b in bins)
        assert right == pytest.approx(score["correct"])


def test_examples_are_the_extremes_of_each_domain() -> None:
    _, found = analysis()
    weights = found.observed.weighing.weights.numpy()
    entropy = -(weights * np.log(weights)).sum(1)
    for domain in EVERYTHING:
        rows = found.observed.rows_of(domain).numpy()
        order = rows[np.argsort(entropy[rows])]
        for kind, expected in (("most confident", order[:4]), ("most mixed", order[::-1][:4])):
            own = [e.number for e in found.examples[kind] if e.domain == domain]
            assert own == found.observed.numbers[expected.copy()].tolist()
    truth = [e.truth for e in found.examples["most mixed"]]
    names = [e.name.split("/")[1] for e in found.examples["most mixed"]]
    assert accuracy_score(truth, names) == 1


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        ("deepall", {}, NO_BRANCHES),
        ("dnet", {}, NO_POINTS),
        ("bne", {"domains": TARGET}, NONE_SEEN),
        ("bne", {"options": {"distance": "uniform"}}, SAME_WEIGHTS),
    ],
)
def test_what_does_not_apply_is_left_out(method, settings, sentence) -> None:
    _, found = analysis(method, **settings)
    assert sentence in found.numbers["left_out"]
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["left_out"] == found.numbers["left_out"]


@pytest.mark.parametrize("options", [{"nearest": 1}, {"mix": "statistics"}], ids=str)
def test_branches_that_the_answer_left_out_are_scored_too(options) -> None:
    _, found = analysis(options=options)
    assert found.numbers["left_out"] == []
    assert len(found.numbers["accuracy"]["by_rank"]) == 3
    if "nearest" in options:
        assert found.numbers["accuracy"]["by_rank"][0] == found.numbers["accuracy"]["prediction"]


def test_samples_are_drawn_by_the_seed() -> None:
    images = images_of({"art": 25, "photo": 9}).images
    drawn = sample(images, ("photo", "art"), 10, seed=1)
    assert {domain: len(numbers) for domain, numbers in drawn.items()} == {"photo": 9, "art": 10}
    assert set(drawn["photo"]) == set(images.indices_of(["photo"]))
    assert drawn == sample(images, ("photo", "art"), 10, seed=1)
    assert set(drawn["art"]) != set(sample(images, ("art",), 10, seed=2)["art"])


def test_a_network_that_diverged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        DeepAll, "predict", lambda _, images: images.new_full((len(images), 3), nan)
    )
    with pytest.raises(DataError, match="answers are not finite: its training has diverged"):
        analysis("deepall", images=2)


def test_unknown_layers_are_named() -> None:
    with pytest.raises(DataError, match=r"--layers bn9: .* choose from bn1, bn2, bn3, bn4\."):
        analysis(layers=["bn9"])
