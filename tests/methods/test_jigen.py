import itertools

import pytest
import torch
import torch.nn.functional as F

from bne.methods import JiGen
from bne.methods.jigen import far_orders, shuffle
from tests.networks import DOMAINS, randomise_norms, small_cnn


def test_the_orders_lie_far_apart() -> None:
    orders = far_orders(9, 30)
    assert orders[0] == tuple(range(9))
    assert all(sorted(order) == list(range(9)) for order in orders)
    pairs = itertools.combinations(orders, 2)
    distances = [sum(a != b for a, b in zip(*pair, strict=True)) for pair in pairs]
    assert min(distances) >= 7  # of random ones, below 5
    assert sum(distances) / len(distances) > 8


def test_all_orders_of_few_tiles_can_be_had() -> None:
    assert set(far_orders(4, 23)) == set(itertools.permutations(range(4)))
    with pytest.raises(ValueError, match="4 tiles have 1 to 23 permutations, not 24"):
        far_orders(4, 24)


@pytest.mark.parametrize("size", [(9, 12), (11, 13), (10, 9)])
def test_tiles_are_moved_as_told(size) -> None:
    images = torch.randn(2, 3, *size, dtype=torch.double)
    orders = torch.stack([torch.randperm(9) for _ in range(2)])
    found = shuffle(images, orders, 3)
    height, width = size[0] // 3, size[1] // 3
    for n, y, x in itertools.product(range(2), range(size[0]), range(size[1])):
        inner_y, inner_x = min(y, 3 * height - 1), min(x, 3 * width - 1)  # what is left repeats
        place = inner_y // height * 3 + inner_x // width
        tile = int(orders[n, place])
        source = tile // 3 * height + inner_y % height, tile % 3 * width + inner_x % width
        assert torch.equal(found[n, :, y, x], images[n, :, source[0], source[1]])


def test_the_loss_by_hand(batch) -> None:
    images, labels, domains = (tensor.clone() for tensor in batch)
    model = randomise_norms(small_cnn()).double()
    method = JiGen(model, DOMAINS, jigsaw_loss=0.3, ordered=0.5).train()
    torch.manual_seed(5)
    loss = method(images.double(), labels, domains)
    torch.manual_seed(5)
    orders = method.draw(9, images.device)
    shuffled = shuffle(images.double(), method.orders[orders], 3)
    features = model[:-1](shuffled)
    classes = [
        F.cross_entropy(model[-1](features[n : n + 1]), labels[n : n + 1])
        for n in range(9)
        if orders[n] == 0
    ]
    puzzles = [F.cross_entropy(method.jigsaw(features[n]), orders[n]) for n in range(9)]
    expected = sum(classes) / len(classes) + 0.3 * sum(puzzles) / 9
    torch.testing.assert_close(loss, expected)
    assert 0 < len(classes) < 9


def test_the_wanted_share_stays_in_order_and_at_least_one_image() -> None:
    for share, expected in ((0.9, 45), (0.5, 25), (0.0, 1), (1.0, 50)):
        orders = JiGen(small_cnn(), DOMAINS, ordered=share).draw(50, torch.device("cpu"))
        assert int((orders == 0).sum()) == expected
        assert int(orders.max()) <= 30


@pytest.mark.parametrize(
    ("option", "value"), [("ordered", 2), ("jigsaw_loss", -1), ("grid", 1), ("permutations", 0)]
)
def test_impossible_options_are_refused(option, value) -> None:
    with pytest.raises(ValueError, match=f"{option}|permutations"):
        JiGen(small_cnn(), DOMAINS, **{option: value})
