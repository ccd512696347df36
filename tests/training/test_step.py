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


def test_parts_add_up_to_the_whole_and_hold_an_equal_share_of_every_domain() -> None:
    torch.manual_seed(0)
    methods = [Plain(), Plain()]
    methods[1].load_state_dict(methods[0].state_dict())
    sums = []
    for method, parts in zip(methods, (1, PARTS), strict=True):
        losses = torch.zeros((), dtype=torch.double)
        optimiser = torch.optim.SGD(method.parameters(), 0.1)
        TrainingStep(method, optimiser, losses, accumulate=parts)(*batch())
        sums.append(losses)
    torch.testing.assert_close(sums[0], sums[1])
    for key, value in methods[0].state_dict().items():
        torch.testing.assert_close(methods[1].state_dict()[key], value)
    assert [d.tolist() for d in methods[1].seen] == [[0, 0, 1, 1, 2, 2]] * PARTS


def test_gradients_are_clipped_by_their_common_norm() -> None:
    torch.manual_seed(0)
    method = Plain()
    plain = copy.deepcopy(method)
    losses = torch.zeros((), dtype=torch.double)
    TrainingStep(method, torch.optim.SGD(method.parameters(), 1.0), losses, clip=0.01)(*batch())
    moved = [
        (after - before).detach().flatten()
        for after, before in zip(method.parameters(), plain.parameters(), strict=True)
    ]
    torch.testing.assert_close(torch.cat(moved).norm(), torch.tensor(0.01))


def test_steps_add_their_losses() -> None:
    torch.manual_seed(0)
    method = Plain()
    losses = torch.zeros((), dtype=torch.double)
    step = TrainingStep(method, torch.optim.SGD(method.parameters(), 0.0), losses)
    step(*batch())
    step(*batch())
    torch.testing.assert_close(losses.float(), 2 * method(*batch()).detach())
