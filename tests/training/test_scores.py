import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss

from bne.training import scores as selection
from bne.training.events import Epoch, Leaning, Score, Share
from bne.training.model_folder import load_model
from tests.training import small


def epoch(number: int, validation: dict, target: dict, phase: str = "train") -> Epoch:
    def scores(correct: dict) -> dict:
        return {domain: Score(*pair) for domain, pair in correct.items()}

    return Epoch(phase, number, "train", 1, 0.5, 0.1, 1.0, 1.0, scores(validation), scores(target))


RECORDS = [
    epoch(1, {"a": (10, 10), "b": (100, 100)}, {"t": (9, 9)}, phase="head"),
    epoch(1, {"a": (5, 10), "b": (90, 100)}, {"t": (6, 9)}),  # mean 70, pooled 86
    epoch(2, {"a": (8, 10), "b": (60, 100)}, {"t": (1, 9)}),  # mean 70, pooled 62
    epoch(3, {"a": (6, 10), "b": (70, 100)}, {"t": (2, 9)}),  # mean 65
]


def test_rules_choose_among_the_training_phase_only() -> None:
    assert selection.last(RECORDS) is RECORDS[3]
    assert selection.best_on_validation(RECORDS) is RECORDS[2]  # domains count alike; later wins
    assert selection.oracle(RECORDS) is RECORDS[1]
    chosen = {rule: scores["t"].correct for rule, scores in selection.select(RECORDS).items()}
    assert chosen == {"last": 2, "validation": 1, "oracle": 6}


def start_of(loss: float, after: int, *, head: bool = True, held_out: bool = True) -> list[Epoch]:
    """A run that had 8 of 10 held-out images right with the last layer trained alone."""

    def one(right: int, number: int, phase: str = "train") -> Epoch:
        return epoch(number, {"a": (right, 10)} if held_out else {}, {"t": (1, 9)}, phase)

    return [
        *([one(8, 1, "head")] if head else []),
        replace(one(after, 1), loss=loss),
        one(9, 2),
    ]


def test_a_network_that_is_undone_shows_in_its_loss_and_on_held_out_images() -> None:
    guess = log_loss([0, 1, 2], np.full((3, 3), 1 / 3))
    assert selection.undone(start_of(guess + 0.01, 7), 3)
    assert not selection.undone(start_of(guess - 0.01, 7), 3)
    assert not selection.undone(start_of(guess + 0.01, 8), 3)
    assert not selection.undone(start_of(guess + 0.01, 7), 4)
    assert not selection.undone(start_of(guess + 0.01, 7, head=False), 3)
    assert not selection.undone(start_of(guess + 0.01, 7, held_out=False), 3)
    assert not selection.undone(start_of(guess + 0.01, 7)[:1], 3)
    later = [*start_of(guess - 0.01, 9), replace(start_of(guess + 0.01, 7)[1], epoch=3)]
    assert not selection.undone([*later[:-1], replace(later[-1], validation={})], 3)
    assert selection.undone(later, 3)


def test_the_oracle_pools_all_images_of_all_targets() -> None:
    small = epoch(1, {}, {"s": (10, 10), "t": (40, 100)})
    large = epoch(2, {}, {"s": (1, 10), "t": (60, 100)})
    assert selection.oracle([small, large]) is large
    assert selection.best_on_validation([small, large]) is None


def test_staleness_counts_epochs_since_the_first_best() -> None:
    assert [selection.stale(RECORDS[:n]) for n in range(5)] == [0, 0, 0, 1, 2]


def test_staleness_knows_nothing_of_the_target() -> None:
    better = [epoch(n, {"a": (10 - n, 10)}, {"t": (n, 9)}) for n in range(1, 5)]
    worse = [epoch(n, {"a": (n, 10)}, {"t": (9 - n, 9)}) for n in range(1, 5)]
    assert (selection.stale(better), selection.stale(worse)) == (3, 0)


def leaning(share: Share, gained: int, lost: int, images: int = 100) -> Leaning:
    return Leaning(share, {"a": Score(50, images)} if images else {}, {}, gained, lost)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (0, 1), (0, 2), (5, 8), (5, 9)])
def test_a_share_may_cost_held_out_images_a_standard_error(gained: int, lost: int) -> None:
    difference = np.repeat([1, -1, 0], [lost, gained, 100 - lost - gained])
    free = difference.mean() <= difference.std() / 10
    found = [leaning(0.0, 0, 0), leaning(0.1, gained, lost)]
    assert selection.choose_share(found, 0.5) == (0.1 if free else 0.0)


def test_the_largest_such_share_is_chosen_and_none_without_held_out_images() -> None:
    found = [leaning(0.0, 0, 0), leaning(0.1, 0, 30), leaning(0.2, 1, 1), leaning(0.3, 0, 9)]
    assert selection.choose_share(found, 0.5) == 0.2
    assert selection.choose_share(found, 0.15) == 0
    assert selection.choose_share([leaning(0.0, 0, 0, 0), leaning(0.3, 0, 0, 0)], 0.5) == 0
    assert selection.choose_share([], 0.5) == 0


def test_learned_shares_go_before_the_chosen_one_and_have_no_part_in_its_choice() -> None:
    found = [leaning(0.0, 0, 0), leaning(0.1, 1, 1), leaning("learned", 9, 0)]
    assert selection.choose_share(found, 0.5) == 0.1
    assert selection.choose_leaning(found, 0.5) is found[2]
    assert selection.choose_leaning(found[:2], 0.5) is found[1]


def test_balanced_accuracy_is_that_of_scikit_learn_over_the_classes_there_are() -> None:
    noise = np.random.default_rng(0)
    truth = noise.choice(4, 200, p=[0.7, 0.2, 0.1, 0.0])  # the last class is lacking
    answers = np.where(noise.random(200) < 0.6, truth, noise.choice(4, 200))
    right = np.bincount(truth[truth == answers], minlength=4).tolist()
    score = Score.of(right, np.bincount(truth, minlength=4).tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of answers that are no true class
        expected = balanced_accuracy_score(truth, answers)
    assert score.balanced == pytest.approx(100 * expected)
    assert score.accuracy == pytest.approx(100 * accuracy_score(truth, answers))
    assert (score.unbalanced, score.by("balanced_accuracy")) == (True, score.balanced)


def test_balanced_accuracy_leads_above_three_to_one() -> None:
    even, uneven = Score.of([3, 0, 1], [3, 0, 1]), Score.of([4, 0, 0], [4, 0, 1])
    assert (even.unbalanced, uneven.unbalanced) == (False, True)
    assert selection.leading([even]) == "accuracy"
    assert selection.leading([even, uneven]) == "balanced_accuracy"
    assert selection.pooled([even, uneven]) == Score(8, 9, 75.0, True)
    before = Score(4, 5)  # of an earlier version
    assert selection.pooled([before, uneven]) == Score(8, 10)
    assert (selection.leading([before]), before.by("balanced_accuracy")) == ("accuracy", None)


def test_runs_record_the_balanced_accuracy_of_their_answers(tmp_path) -> None:
    whole = small.images()
    keep = [n for n, f in enumerate(whole.images.files) if f.domain < 3 or f.label or n % 4 == 0]
    uneven = small.only(whole, keep)
    result = small.run(small.recipe(lean="auto"), uneven, tmp_path / "run")
    method, transform, _ = load_model(tmp_path / "run")
    numbers = uneven.images.indices_of(["sketch"])
    pixels = uneven.pixels[numbers].permute(0, 3, 1, 2)
    truth = [uneven.images.files[n].label for n in numbers]
    for found in result.leaning:
        method.lean = found.share
        with torch.inference_mode():
            answers = method.predict(transform(pixels)).argmax(1)
        expected = 100 * balanced_accuracy_score(truth, answers)
        assert found.target["sketch"].balanced == pytest.approx(expected)
    assert result.leaning[0].target == result.accuracy["last"]
    assert result.accuracy["last"]["sketch"].unbalanced
    assert not result.epochs[-1].validation["art"].unbalanced


@pytest.mark.parametrize(
    ("size", "device", "count"),
    [(112, "cuda", 1024), (224, "cuda", 256), (299, "cuda", 256), (112, "cpu", 256)],
)
def test_small_images_are_scored_more_at_a_time_on_a_gpu(
    size: int, device: str, count: int
) -> None:
    assert selection.at_once(size, torch.device(device)) == count


def test_batches_spread_over_a_domain() -> None:
    parts = selection.batches(torch.arange(10), 4)
    assert [part.tolist() for part in parts] == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
