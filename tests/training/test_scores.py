import numpy as np
import pytest

from bne.training import scores as selection
from bne.training.events import Epoch, Leaning, Score, Share


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
