"""Trains with two processes what one process can train, and stops and resumes some of it.

    python -m tests.training.two_processes FOLDER

The processes are forks of this one, which has imported everything.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from bne.errors import Interrupted
from bne.methods import create, entries
from bne.methods.points import PointsMethod
from bne.recipes.schema import Amplitudes, Averaging, Optimiser, Phase
from bne.training.distributed import Processes, synchronise
from bne.training.loop import TrainingStep
from bne.training.optim import make_optimiser, set_learning_rate
from tests.networks import DOMAINS, randomise_norms, small_cnn
from tests.training import small
from tests.training.small import StopAt, run

CPU = torch.device("cpu")
RUNS = ("bne", "deepall")
# Each process of points draws other domains for itself; tests/core has them with fixed draws.
METHODS = [entry.name for entry in entries() if not issubclass(entry.method, PointsMethod)]
# Without what each process draws, or chooses, among its own images alone.
OPTIONS = {
    "rsc": {"images": 1.0},
    "jigen": {"ordered": 1.0},
    "mixstyle": {"probability": 0.0},
    "mmld": {"dropout": 0.0},
    "dnet-ce": {"distance_training": "after statistics"},  # a stage without any gradient
}
PER_DOMAIN = 4
STAGES = 2  # before and after the warm-up
STEPS = 3  # of each: what is exchanged first, and by what was learned from it


def batch(domains: int, step: int, part: slice) -> tuple[torch.Tensor, ...]:
    """A part of every domain's images at a step; those of a last, unlabelled domain have -100."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(domains, PER_DOMAIN, 3, 12, 12, dtype=torch.double, generator=generator)
    images = images * torch.arange(1, domains + 1).view(-1, 1, 1, 1, 1)
    labels = torch.randint(4, (domains, PER_DOMAIN), generator=generator)
    labels[len(DOMAINS) :] = -100
    ids = torch.arange(domains).unsqueeze(1).expand(-1, PER_DOMAIN)
    return tuple(tensor[:, part].flatten(0, 1) for tensor in (images, labels, ids))


def trained(name: str, processes: Processes) -> dict[str, torch.Tensor]:
    """Everything a method consists of after some steps of each stage."""
    torch.manual_seed(0)
    entry = next(entry for entry in entries() if entry.name == name)
    domains = [*DOMAINS, "target"] if entry.method.uses_target else DOMAINS
    method = create(name, randomise_norms(small_cnn()), domains, OPTIONS.get(name)).double().train()
    if processes.count > 1:
        synchronise(method)
    share = PER_DOMAIN // processes.count
    part = slice(processes.rank * share, (processes.rank + 1) * share)
    losses = torch.zeros((), dtype=torch.double)
    optimiser = make_optimiser(method, Optimiser("sgd", weight_decay=1e-3, head_factor=1.0), CPU)
    set_learning_rate(optimiser, 0.05)
    for epoch in range(STAGES):
        method.begin_epoch(epoch, warm_up=1)
        step = TrainingStep(processes.wrap(method), optimiser, losses, clip=1.0, accumulate=2)
        for number in range(STEPS):
            step(*batch(len(domains), epoch * STEPS + number, part))
    return {**method.state_dict(), "losses": processes.sum(losses) / processes.count}


def recipe(method: str = "bne"):
    """Without dropout, which differs from process to process."""
    phase = Phase(4, warm_up=2, optimiser=Optimiser("sgd", 0.02, head_factor=1.0, clip=5.0))
    how = {"averaging": Averaging("ema", decay=0.9), "exact_statistics": True}
    how["amplitudes"] = Amplitudes("other domain")
    return small.recipe(method, backbone="tiny-dry", train=phase, **how)


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for name in METHODS:
        torch.save(trained(name, Processes(CPU, rank, 2)), folder / f"{name}-{rank}.pt")
    images = small.images()
    for method in RUNS:
        run(recipe(method), images, folder / f"two-{method}")
    with pytest.raises(Interrupted):
        run(recipe(), images, folder / "two-then-one", listeners=[StopAt(22)])
    run(recipe(), images, folder / "one-then-two", resume=True)
    distributed.destroy_process_group()


def main() -> None:
    torch.set_num_threads(1)
    folder, images = Path(sys.argv[1]), small.images()
    with pytest.raises(Interrupted):
        run(recipe(), images, folder / "one-then-two", listeners=[StopAt(17)])
    torch.multiprocessing.start_processes(work, (folder,), nprocs=2, start_method="fork")
    run(recipe(), images, folder / "two-then-one", resume=True)
    for method in RUNS:
        run(recipe(method), images, folder / f"one-{method}")


if __name__ == "__main__":
    main()
