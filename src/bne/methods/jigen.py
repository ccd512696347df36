"""JiGen of Carlucci et al.: a second head tells how the tiles of an image were shuffled."""

import math
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.core.options import check_least, check_share
from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, with_features
from bne.methods.method import register

CANDIDATES = 2000  # random orders among which those far apart are looked for


@cache
def far_orders(tiles: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Orders of tiles, each in turn as far as possible from all before it in Hamming distance.

    Args:
        tiles: of an image.
        count: the number of orders besides the first, which leaves the tiles where they are.

    Raises:
        ValueError: There are not so many.
    """
    if not 1 <= count < math.factorial(tiles):
        most = math.factorial(tiles) - 1
        raise ValueError(f"{tiles} tiles have 1 to {most} permutations, not {count}")
    with torch.device("cpu"):  # also where a network is only being tried out, without values
        generator = torch.Generator().manual_seed(0)
        drawn = torch.stack([torch.randperm(tiles, generator=generator) for _ in range(CANDIDATES)])
        chosen = [torch.arange(tiles)]
        nearest, total = torch.full((CANDIDATES,), tiles), torch.zeros(CANDIDATES)
        for _ in range(count):
            distance = (drawn != chosen[-1]).sum(1)
            nearest, total = torch.minimum(nearest, distance), total + distance
            # The nearest counts first, then all of them.
            chosen.append(drawn[(nearest * tiles * (count + 1) + total).argmax()])
    return tuple(tuple(order.tolist()) for order in chosen)


@register(
    "jigen",
    "teaching a model to simultaneously solve jigsaw puzzles and perform well on a task of "
    "interest",
)
class JiGen(DeepAll):
    """DeepAll with a second head, which tells the order of an image's shuffled tiles.

    Only images in order train the classifier; all train the second head.

    Args:
        model: the plain network.
        domains: the source domains' names, which play no part.
        jigsaw_loss: factor of the cross-entropy of the orders.
        ordered: the share of the images in a batch that stay in order.
        grid: the number of tiles in a row and in a column.
        permutations: the number of orders besides the right one.
    """

    orders: Tensor

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        jigsaw_loss: float = 0.7,
        ordered: float = 0.9,
        grid: int = 3,
        permutations: int = 30,
    ) -> None:
        super().__init__(model, domains)
        check_share("ordered", ordered)
        check_least(0, jigsaw_loss=jigsaw_loss)
        check_least(2, grid=grid)
        self.jigsaw_loss, self.ordered, self.grid = jigsaw_loss, ordered, grid
        self.register_buffer("orders", torch.tensor(far_orders(grid * grid, permutations)))
        old = classifier(model)
        self.jigsaw = nn.Linear(old.in_features, permutations + 1).to(old.weight)

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of the images in order and, times its factor, of the orders."""
        orders = self.draw(len(images), images.device)
        shuffled = shuffle(images, self.orders[orders], self.grid)
        logits, features = with_features(self.net, shuffled)
        known = labels.masked_fill(orders != 0, -100)
        puzzle = F.cross_entropy(self.jigsaw(features), orders)
        return self.cross_entropy(logits, known) + self.jigsaw_loss * puzzle

    def draw(self, count: int, device: torch.device) -> Tensor:
        """(N,), the number of each image's order; 0 for the share that stays in order."""
        others = torch.randint(1, len(self.orders), (count,), device=device)
        rank = torch.rand(count, device=device).argsort()
        return others.masked_fill(rank < max(1, round(self.ordered * count)), 0)


def shuffle(images: Tensor, orders: Tensor, grid: int) -> Tensor:
    """Puts the tiles of images into other places.

    Where the size is no multiple of the grid, what is left over at the end repeats the last row and
    column of the tiles, so that it does not tell what was there.

    Args:
        images: (N, C, H, W).
        orders: (N, tiles), at each place, row by row, the number of the tile to put there.
        grid: the number of tiles in a row and in a column.
    """
    count, channels, *size = images.shape
    height, width = (length // grid for length in size)
    whole = images[:, :, : grid * height, : grid * width]
    tiles = whole.unflatten(3, (grid, width)).unflatten(2, (grid, height)).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.reshape(count, grid * grid, channels, height, width)
    rows = torch.arange(count, device=images.device).unsqueeze(1)
    moved = tiles[rows, orders].unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
    moved = moved.reshape(count, channels, grid * height, grid * width)
    left = (0, size[1] - grid * width, 0, size[0] - grid * height)
    return F.pad(moved, left, mode="replicate") if any(left) else moved
