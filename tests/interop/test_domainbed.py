"""Methods under DomainBed's contract, driven by a stand-in of its trainer."""

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.interop.domainbed import domainbed_algorithm
from bne.methods import create, entries
from bne.models import build
from bne.training.loop import TrainingStep

HPARAMS = {"lr": 1e-3, "weight_decay": 1e-2, "batch_size": 4, "warm_up": 2}
SIZES = (4, 4, 4)
Minibatches = list[tuple[Tensor, Tensor]]


def minibatches(step: int, sizes: tuple[int, ...] = SIZES) -> Minibatches:
    draw = torch.Generator().manual_seed(step)
    return [
        (
            torch.randn(n, 3, 32, 32, generator=draw) + domain,
            torch.randint(5, (n,), generator=draw),
        )
        for domain, n in enumerate(sizes)
    ]


def make(kind: type[nn.Module], **hparams: Any) -> Any:
    torch.manual_seed(0)
    return kind((3, 32, 32), 5, len(SIZES), {**HPARAMS, **hparams})


def train(algorithm: Any, steps: int = 4, sizes: tuple[int, ...] = SIZES) -> list[float]:
    """What DomainBed's trainer does: update, and test after every step."""
    losses = []
    for step in range(steps):
        losses.append(algorithm.update(minibatches(step, sizes), None)["loss"])
        algorithm.eval()
        with torch.no_grad():
            assert algorithm.predict(torch.randn(6, 3, 32, 32)).shape == (6, 5)
        algorithm.train()
    return losses


@pytest.mark.parametrize("sizes", [SIZES, (5, 2, 4)])
@pytest.mark.parametrize("name", ["deepall", "bne"])
def test_it_trains_as_our_own_step_does(name: str, sizes: tuple[int, ...]) -> None:
    algorithm = make(domainbed_algorithm(name, "small_cnn"))
    losses = train(algorithm, 4, sizes)

    torch.manual_seed(0)
    own = create(name, build("small_cnn", 5), ["a", "b", "c"])
    optimiser = torch.optim.Adam(own.parameters(), lr=1e-3, weight_decay=1e-2)
    total = torch.zeros(())
    step = TrainingStep(own, optimiser, total)
    domains = torch.tensor([d for d, n in enumerate(sizes) for _ in range(n)])
    stages = []
    for number in range(4):
        own.begin_epoch(number, 2)
        stages.append(own.stage)
        images, labels = (torch.cat(part) for part in zip(*minibatches(number, sizes), strict=True))
        step(images, labels, domains)
    assert len(set(stages)) == (2 if name == "bne" else 1)
    assert sum(losses) == pytest.approx(float(total))
    for key, value in own.state_dict().items():
        torch.testing.assert_close(algorithm.method.state_dict()[key], value, msg=key)
    x = torch.randn(3, 3, 32, 32)
    torch.testing.assert_close(algorithm.predict(x), own.eval().predict(x))


def test_deepall_is_plain_empirical_risk_minimisation() -> None:
    algorithm = make(domainbed_algorithm("deepall", "small_cnn"))
    torch.manual_seed(0)
    net = build("small_cnn", 5)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-2)
    for number, loss in enumerate(train(algorithm)):
        images, labels = (torch.cat(part) for part in zip(*minibatches(number), strict=True))
        expected = F.cross_entropy(net(images), labels)
        optimiser.zero_grad()
        expected.backward()
        optimiser.step()
        assert loss == pytest.approx(expected.item())


def test_the_warm_up_is_counted_in_steps_and_resumes() -> None:
    kind = domainbed_algorithm("bne", "small_cnn")
    algorithm, resumed = make(kind), make(kind)
    train(algorithm, 2)
    assert algorithm.method.stage == "warm-up"
    resumed.load_state_dict(algorithm.state_dict())
    train(resumed, 1)
    assert resumed.method.stage == "distance training"


def test_predict_leaves_everything_as_it_was() -> None:
    algorithm = make(domainbed_algorithm("bne", "small_cnn"))
    train(algorithm, 1)
    before = {key: value.clone() for key, value in algorithm.state_dict().items()}
    x = torch.randn(4, 3, 32, 32)
    together = algorithm.train().predict(x)
    assert algorithm.training
    assert all(torch.equal(before[key], value) for key, value in algorithm.state_dict().items())
    one_by_one = torch.cat([algorithm.predict(image.unsqueeze(0)) for image in x])
    torch.testing.assert_close(together, one_by_one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_every_method_runs_or_says_why_not(name: str) -> None:
    if name in ("bne-pseudo", "mmld"):
        with pytest.raises(ValueError, match=f"'{name}' sorts all training images"):
            domainbed_algorithm(name, "small_cnn")
        return
    algorithm = make(domainbed_algorithm(name, "small_cnn"), warm_up=0)
    unlabelled = [torch.randn(3, 3, 32, 32), torch.randn(2, 3, 32, 32)]
    before = [p.clone() for p in algorithm.parameters()]
    assert algorithm.update(minibatches(0), unlabelled)["loss"] > 0
    assert any(not torch.equal(b, p) for b, p in zip(before, algorithm.parameters(), strict=True))
    assert algorithm.predict(torch.randn(2, 3, 32, 32)).isfinite().all()


def test_unbalanced_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="sorts all training images"):
        domainbed_algorithm("deepall", "small_cnn", balanced=False)


def test_it_is_a_subclass_of_domainbeds_where_that_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Algorithm(nn.Module):
        def __init__(self, input_shape: Any, num_classes: int, num_domains: int, hparams: Any):
            super().__init__()
            self.hparams = hparams

    package, module = ModuleType("domainbed"), ModuleType("domainbed.algorithms")
    module.Algorithm = Algorithm  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "domainbed", package)
    monkeypatch.setitem(sys.modules, "domainbed.algorithms", module)
    kind = domainbed_algorithm("bne", "small_cnn")
    assert issubclass(kind, Algorithm)
    algorithm = make(kind)
    assert algorithm.hparams == HPARAMS
    train(algorithm, 1)


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="nearest is 'distance'"):
        domainbed_algorithm("bne", distnce="wasserstein")
    with pytest.raises(ValueError, match="unknown backbone 'resnet19'"):
        domainbed_algorithm("bne", "resnet19")
    with pytest.raises(ValueError, match="'alexnet_cvgj' are for images normalized by mean"):
        domainbed_algorithm("bne", "alexnet_cvgj", "some.caffemodel")
    with pytest.raises(ValueError, match="2 channels"):
        domainbed_algorithm("bne", "small_cnn")((2, 28, 28), 2, 3, HPARAMS)
    with pytest.raises(ValueError, match="2 minibatches, but 3 domains"):
        make(domainbed_algorithm("bne", "small_cnn")).update(minibatches(0)[:2])
    with pytest.raises(ValueError, match="--task domain_adaptation"):
        make(domainbed_algorithm("bne-adapt", "small_cnn")).update(minibatches(0))
