"""The figures of a page; those that records have too are in `test_analysis`."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

import bne
from bne.errors import DataError
from bne.inspection import analysis as page
from bne.inspection.analysis import analyse
from bne.inspection.numbers import alike
from bne.inspection.observe import sample
from bne.models import build
from tests.inspection.models import SOURCES, TARGET, analysis, images_of

EVERYTHING = (*SOURCES, *TARGET)


@pytest.fixture(autouse=True)
def small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "POINTS", 10)


@pytest.mark.parametrize("method", ["bne", "dnet"])
def test_held_out_images_do_not_tell_where_domains_lie(method: str) -> None:
    """As in records, which have figures of training images."""
    model, everything = analysis(method)
    held_out = {n for split in model.splits.values() for n in split.validation}
    _, found = analysis(method, held_out=held_out)
    expected, numbers = analyse(model)["sources"], found.numbers
    assert numbers["domain_accuracy"] == expected["domain_accuracy"]["train"]
    assert numbers["domain_accuracy"]["art"]["images"] == 25 - len(model.splits["art"].validation)
    assert numbers.get("layers") == expected.get("layers")
    for key in ("weights", "similarity") if method == "bne" else ("weights",):
        for source in SOURCES:
            assert numbers[key][source] == pytest.approx(expected[key][source])
            assert everything.numbers[key][source] != pytest.approx(expected[key][source])
    assert numbers["accuracy"] == everything.numbers["accuracy"]
    assert found.images["art"]["held_out"] == len(model.splits["art"].validation)
    assert found.images["dslr"]["held_out"] == 0


def test_a_domain_of_which_only_held_out_images_were_drawn() -> None:
    model, _ = analysis(images=2)
    art = set(model.prepared.images.indices_of(["art"]))
    _, found = analysis(images=2, held_out=art)
    assert "art" not in found.numbers["similarity"]
    assert "art" not in found.numbers["domain_accuracy"]
    assert page.HELD_OUT.format("art") in found.numbers["left_out"]
    json.dumps(found.to_dict(), allow_nan=False)
    _, none = analysis(domains=("art",), held_out=art)
    assert "similarity" not in none.numbers


def test_shares_add_up_and_bins_hold_every_image() -> None:
    _, found = analysis()
    for domain, row in found.numbers["similarity_share"].items():
        assert sum(row.values()) == pytest.approx(1)
        similarity = found.numbers["similarity"][domain]
        assert max(row, key=row.get) == max(similarity, key=similarity.get)
    for domain, bins in found.numbers["reliability"].items():
        score = found.numbers["accuracy"]["prediction"][domain]
        assert sum(b["images"] for b in bins) == score["images"]
        assert sum(b["images"] * b["accuracy"] for b in bins) == pytest.approx(score["correct"])


def test_examples_are_the_extremes_of_each_domain() -> None:
    _, found = analysis()
    weights = found.observed.weights.numpy()
    entropy = -(weights * np.log(weights)).sum(1)
    for domain in EVERYTHING:
        rows = found.observed.rows()[domain].numpy()
        order = rows[np.argsort(entropy[rows])]
        for kind, expected in (("most confident", order[:4]), ("most mixed", order[::-1][:4])):
            own = [e.number for e in found.examples[kind] if e.domain == domain]
            assert own == found.observed.numbers[expected.copy()].tolist()
        wrong = rows[(found.observed.answers != found.observed.truth)[rows].numpy()]
        surest = wrong[np.argsort(-found.observed.confidence.numpy()[wrong], kind="stable")][:4]
        own = [e.number for e in found.examples["surely wrong"] if e.domain == domain]
        assert own == found.observed.numbers[surest.copy()].tolist()
    truth = [e.truth for e in found.examples["most mixed"]]
    names = [e.name.split("/")[1] for e in found.examples["most mixed"]]
    assert accuracy_score(truth, names) == 1


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        ("deepall", {}, page.NO_BRANCHES),
        ("dnet", {}, page.NO_POINTS),
        ("bne", {"domains": TARGET}, page.NONE_SEEN),
        ("bne", {"options": {"distance": "uniform"}}, page.SAME_WEIGHTS),
    ],
)
def test_what_does_not_apply_is_left_out(method, settings, sentence) -> None:
    _, found = analysis(method, **settings)
    assert sentence in found.numbers["left_out"]
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["left_out"] == found.numbers["left_out"]


def test_samples_are_drawn_by_the_seed() -> None:
    images = images_of({"art": 25, "photo": 9}).images
    drawn = sample(images, ("photo", "art"), 10, seed=1)
    assert {domain: len(numbers) for domain, numbers in drawn.items()} == {"photo": 9, "art": 10}
    assert set(drawn["photo"]) == set(images.indices_of(["photo"]))
    assert drawn == sample(images, ("photo", "art"), 10, seed=1)
    assert set(drawn["art"]) != set(sample(images, ("art",), 10, seed=2)["art"])


def test_unknown_layers_are_named() -> None:
    with pytest.raises(DataError, match=r"--layers bn9: .* choose from bn1, bn2, bn3, bn4\."):
        analysis(layers=["bn9"])


def placed(shares: dict[tuple[str, str], float], count: int = 20) -> SimpleNamespace:
    """Images of domains "a", "b", …, of which a share lies nearer to their own of two domains."""
    names = sorted({name for pair in shares for name in pair})
    nearness = torch.zeros(len(names) * count, len(names))
    for i, one in enumerate(names):
        for k, other in enumerate(names):
            share = shares.get((one, other), shares.get((other, one), 1.0))
            nearness[i * count : i * count + round(share * count), k] = -1.0
            nearness[i * count + round(share * count) : (i + 1) * count, k] = 1.0
        nearness[i * count : (i + 1) * count, i] = 0.0
    return SimpleNamespace(branches=tuple(names), nearness=nearness)


def rows_of(names: str, count: int = 20) -> dict[str, torch.Tensor]:
    return {n: torch.arange(i * count, (i + 1) * count) for i, n in enumerate(names)}


def test_domains_that_chance_would_tell_apart_as_well_are_to_be_merged() -> None:
    pairs = {("a", "b"): 0.5, ("b", "c"): 0.55, ("a", "c"): 0.9, ("d", "a"): 1.0}
    found = alike(placed(pairs), rows_of("abcd"))
    # Not c, which a is told apart from.
    assert found == [{"domains": ["a", "b"], "told_apart": pytest.approx(0.5)}]
    assert alike(placed({("a", "b"): 0.9}), rows_of("ab")) == []
    assert alike(placed({("a", "b"): 0.5}, 9), rows_of("ab", 9)) == []  # too few to tell


def test_a_domain_under_two_names_is_found() -> None:
    torch.manual_seed(0)
    net = bne.convert(build("small_cnn", 3), ["one", "again", "other"])
    images = torch.randn(90, 3, 32, 32)
    images[60:] = images[60:] * 3 + 1
    bne.recompute_statistics(net, [(images, torch.arange(3).repeat_interleave(30))])
    new = torch.randn(60, 3, 32, 32)
    with torch.no_grad():
        nearness = -net.eval()(torch.cat([new, 3 * new[:30] + 1]), details=True).distances
    found = alike(
        SimpleNamespace(branches=net.domains, nearness=nearness),
        {name: torch.arange(30) + 30 * place for place, name in enumerate(net.domains)},
    )
    assert [group["domains"] for group in found] == [["one", "again"]]
