import copy

import torch
import torch.nn.functional as F
from torch import nn

from bne.training.loop import TrainingStep

PARTS = 2
DOMAINS = torch.arange(3).repeat_interleave(4)


class Plain(nn.Module):
    """A method without batch norm, which notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 9, 5))
        self.seen: list[torch.Tensor] = []

    def forward(self, images, labels, domains):
        self.seen.append(domains)
        return F.cross_entropy(self.net(images), labels)


def batch():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(12, 3, 5, 5, generator=generator)
    return images, torch.randint(5, (12,), generator=generator), DOMAINS


def take_steps(method: Plain, rate: float, count: int = 1, **options: object) -> torch.Tensor:
    """The sum of the losses."""
    losses = torch.zeros((), dtype=torch.double)
    step = TrainingStep(method, torch.optim.SGD(method.parameters(), rate), losses, **options)
    for _ in range(count):
        step(*batch())
    return losses


def test_parts_add_up_to_the_whole_and_hold_an_equal_share_of_every_domain() -> None:
    torch.manual_seed(0)
    whole = Plain()
    parts = copy.deepcopy(whole)
    sums = take_steps(whole, 0.1), take_steps(parts, 0.1, accumulate=PARTS)
    torch.testing.assert_close(*sums)
    torch.testing.assert_close(parts.state_dict(), whole.state_dict())
    assert [d.tolist() for d in parts.seen] == [[0, 0, 1, 1, 2, 2]] * PARTS


def test_gradients_are_clipped_by_their_common_norm() -> None:
    torch.manual_seed(0)
    method = Plain()
    plain = copy.deepcopy(method)
    take_steps(method, 1.0, clip=0.01)
    moved = [
        (after - before).detach().flatten()
        for after, before in zip(method.parameters(), plain.parameters(), strict=True)
    ]
    torch.testing.assert_close(torch.cat(moved).norm(), torch.tensor(0.01))


def test_steps_add_their_losses() -> None:
    torch.manual_seed(0)
    method = Plain()
    losses = take_steps(method, 0.0, count=2)
    torch.testing.assert_close(losses.float(), 2 * method(*batch()).detach())
