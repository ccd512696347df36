"""Scores of domains left out, and what they choose."""

import random
from itertools import combinations
from statistics import fmean
from typing import Any

import pytest
from scipy.stats import sem

from bne.benchmark.records import Record
from bne.errors import SettingsError
from bne.training.events import BALANCED
from bne.tuning.objective import Candidate, Fold, choose, measure_of, questions, score
from tests.benchmark.examples import item
from tests.benchmark.examples import record as recorded
from tests.tuning.pretend import DOMAINS


def test_every_source_is_left_out_in_turn() -> None:
    (one,) = questions(DOMAINS, ["sketch"])
    assert [fold.domain for fold in one.folds] == ["art", "cartoon", "photo"]
    assert one.targets == (("art",), ("cartoon",), ("photo",))
    (new,) = questions(DOMAINS)
    assert new.targets == tuple((domain,) for domain in DOMAINS)
    assert new.target == ()


def test_six_runs_of_two_sources_serve_four_targets() -> None:
    asked = questions(DOMAINS, every=True)
    runs = {target for one in asked for target in one.targets}
    assert runs == set(combinations(DOMAINS, 2))
    for one in asked:
        assert len(one.folds) == 3
        for fold in one.folds:  # a run that saw nothing of the target, nor of the domain scored
            assert set(fold.target) == {fold.domain, *one.target}


def test_with_two_sources_left_their_held_out_images_have_to_do() -> None:
    (one,) = questions(DOMAINS[:3], ["art"])
    assert one.by_validation
    assert one.folds == (Fold("cartoon", ()), Fold("photo", ()))
    assert "cartoon and photo are two sources" in one.note
    assert {two.targets for two in questions(DOMAINS[:3], every=True)} == {
        ((domain,),) for domain in DOMAINS[:3]
    }
    with pytest.raises(SettingsError, match="at least two source domains"):
        questions(DOMAINS[:2], ["art"])


def leaning(share: Any, target: int, validation: int, gained: int = 0, lost: int = 0) -> Any:
    scores = {"target": {"art": target}, "validation": {"photo": validation}}
    told = {
        key: {d: {"correct": n, "images": 100} for d, n in own.items()}
        for key, own in scores.items()
    }
    return {"share": share, "gained": gained, "lost": lost, **told}


def test_scores_come_from_any_share_without_a_run_of_its_own() -> None:
    shares = (leaning(0.0, 50, 90), leaning(0.1, 60, 80, lost=10), leaning(0.2, 70, 70, lost=20))
    one = recorded(item("bne", "art"), 500, leaning=shares)
    own, held_out = Fold("art", ("art",)), Fold("photo", ("art",))
    assert [score(one, own, share) for share in (0.0, 0.1, 0.2, 0.3)] == [50, 60, 70, None]
    assert score(one, own, "auto") == 50  # the shares that cost held-out images are not taken
    assert score(one, held_out, 0.1) == 80
    plain = recorded(item("deepall", "art"), 500)
    assert [score(plain, own, share) for share in (0.0, "auto", 0.1)] == [50, 50, None]


def test_balanced_accuracy_leads_if_classes_are_unbalanced() -> None:
    scores = {"art": {"correct": 90, "images": 100, "balanced": 55.0, "unbalanced": True}}
    one = recorded(item("deepall", "art"), 0, accuracy={"last": scores})
    assert measure_of([one]) == BALANCED
    assert score(one, Fold("art", ("art",)), 0.0, BALANCED) == 55


def candidate(values: dict[str, list[float]], distance: int = 0) -> Candidate:
    return Candidate({}, 0.0, {d: dict(enumerate(own)) for d, own in values.items()}, distance)


def test_means_and_standard_errors_are_those_of_scipy() -> None:
    one = candidate({"art": [70, 74], "photo": [90, 92], "sketch": [60, 61]})
    assert one.mean == pytest.approx(fmean([72, 91, 60.5]))
    assert one.error == pytest.approx(sem([72, 91, 60.5]))
    other = candidate({"art": [69], "photo": [91], "sketch": [58]})
    lead, error = one.lead(other)  # over the seed that both have
    assert lead == pytest.approx(fmean([1, -1, 2]))
    assert error == pytest.approx(sem([1, -1, 2]))
    assert (one.seeds, other.seeds) == (2, 1)


def test_within_a_standard_error_the_fewest_changes_are_chosen() -> None:
    best = candidate({"a": [80], "b": [70], "c": [62]}, distance=3)
    near = candidate({"a": [79], "b": [71], "c": [60]}, distance=1)  # -0.7 ± 0.9
    same = candidate({"a": [79], "b": [71], "c": [59]}, distance=1)  # -1.0 ± 1.2
    worse = candidate({"a": [78], "b": [68.1], "c": [60]}, distance=0)  # -2 ± 0.03
    found = choose([worse, same, near, best])
    assert found.best is best
    assert found.chosen is near
    assert choose([worse, best]).chosen is best


def test_a_gap_of_a_standard_error_is_within_it_whatever_rounding_makes_of_it() -> None:
    best = candidate({"a": [100 * 47 / 60], "b": [50], "c": [30]}, distance=1)
    recipe = candidate({"a": [100 * 10 / 60], "b": [50], "c": [30]})
    behind, error = best.lead(recipe)
    assert behind == pytest.approx(error, abs=1e-12)
    assert behind > error
    assert choose([best, recipe]).chosen is recipe


def test_a_setting_that_fails_on_one_domain_is_not_within_its_own_error() -> None:
    best = candidate({"a": [50.0], "b": [51.0], "c": [52.0]}, distance=2)
    near = candidate({"a": [49.0], "b": [48.0], "c": [50.0]}, distance=3)
    near_too = candidate({"a": [48.0], "b": [49.0], "c": [50.0]}, distance=3)
    failing = candidate({"a": [50.0], "b": [51.0], "c": [5.0]})
    behind, error = best.lead(failing)
    assert behind <= error
    assert choose([failing, near, near_too, best]).chosen is best


def settings_by_domainbed(records: list[Record], test: str) -> dict[int, float]:
    """DomainBed's leave-one-domain-out validation in plain loops, by number of the setting."""
    found = {}
    for number in {one.settings["number"] for one in records}:
        values = []
        for domain in DOMAINS:
            for one in records:
                held_out = set(one.settings["target"])
                if one.settings["number"] == number and held_out == {test, domain} != {test}:
                    score = one.accuracy["last"][domain]
                    values.append(score["correct"] / score["images"])
        if len(values) == len(DOMAINS) - 1:
            found[number] = sum(values) / (len(DOMAINS) - 1)
    return found


def sweep() -> list[Record]:
    """Eight settings: the pairs of domains, and each domain alone."""
    draw = random.Random(0)
    records = []
    for number in range(8):
        for target in [*combinations(DOMAINS, 2), *((domain,) for domain in DOMAINS)]:
            run = item("deepall", "+".join(target), per_domain=number + 1)
            correct = {domain: draw.randrange(300, 900) for domain in target}
            one = recorded(run, correct)
            records.append(
                Record(**{**vars_of(one), "settings": {**one.settings, "number": number}})
            )
    return records


def vars_of(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def ours(records: list[Record], test: str) -> dict[int, Candidate]:
    (asked,) = [one for one in questions(DOMAINS, every=True) if one.target == (test,)]
    found = {}
    for number in range(8):
        own = {
            tuple(one.settings["target"]): one
            for one in records
            if one.settings["number"] == number
        }
        values = {f.domain: {0: score(own[f.target], f, 0.0)} for f in asked.folds}
        found[number] = Candidate({"number": number}, 0.0, values)
    return found


@pytest.mark.parametrize("test", DOMAINS)
def test_the_highest_mean_is_what_leave_one_out_in_plain_loops_selects(test: str) -> None:
    records = sweep()
    theirs, own = settings_by_domainbed(records, test), ours(records, test)
    for number, value in theirs.items():
        assert own[number].mean == pytest.approx(100 * value)
    best = choose(list(own.values())).best
    assert best.changes["number"] == max(theirs, key=theirs.__getitem__)


@pytest.mark.parametrize("test", DOMAINS)
def test_the_highest_mean_is_what_domainbed_selects(test: str) -> None:
    selection = pytest.importorskip("domainbed.model_selection", reason="needs DomainBed")
    query = pytest.importorskip("domainbed.lib.query")
    records = sweep()
    lines = []
    for one in records:
        scores = {
            DOMAINS.index(d): own["correct"] / own["images"]
            for d, own in one.accuracy["last"].items()
        }
        environments = {f"env{k}_in_acc": scores.get(k, 0.5) for k in range(len(DOMAINS))}
        environments |= {f"env{k}_out_acc": 0.5 for k in range(len(DOMAINS))}
        arguments = {"test_envs": sorted(scores), "hparams_seed": one.settings["number"]}
        lines.append({"step": 0, "args": arguments, **environments})
    place = DOMAINS.index(test)
    group = query.Q([line for line in lines if place in line["args"]["test_envs"]])
    ranked = selection.LeaveOneOutSelectionMethod.hparams_accs(group)
    own = ours(records, test)
    means = sorted((one.mean for one in own.values()), reverse=True)
    assert [100 * accuracies["val_acc"] for accuracies, _ in ranked] == pytest.approx(means)
    best = choose(list(own.values())).best.changes["number"]
    assert ranked[0][1][0]["args"]["hparams_seed"] == best
    (outer,) = [
        r for r in records if r.settings["number"] == best and r.settings["target"] == [test]
    ]
    assert ranked[0][0]["test_acc"] == pytest.approx(outer.accuracy["last"][test]["correct"] / 1000)
