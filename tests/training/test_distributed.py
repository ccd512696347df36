"""Two processes against one: every method on the same global batches, and whole runs."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from bne.errors import TrainingError
from bne.training.distributed import Processes, SynchronisedBatchNorm, joined, synchronise
from tests.networks import randomise_norms
from tests.training import small
from tests.training.two_processes import CPU, METHODS, RUNS, trained


@pytest.fixture(scope="module")
def folder(made_once):
    return made_once(
        "training-processes",
        lambda folder: small.in_another_process("two_processes", str(folder)),
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_as_in_one_process(folder, name) -> None:
    expected = trained(name, Processes(CPU))
    for rank in range(2):
        actual = torch.load(folder / f"{name}-{rank}.pt", weights_only=True)
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("model/model", "checkpoints/step-00000030/tensors"):
        tensors, others = (small.tensors(run / f"{name}.safetensors") for run in (one, other))
        torch.testing.assert_close(others, tensors, rtol=1e-3, atol=1e-5)
    records, others = (json.loads((run / "result.json").read_text()) for run in (one, other))
    for record, other_record in zip(records["epochs"], others["epochs"], strict=True):
        assert other_record["loss"] == pytest.approx(record["loss"], rel=1e-4)
        assert other_record["target"] == record["target"]


@pytest.mark.parametrize("method", RUNS)
def test_a_run_of_two_processes_is_that_of_one(folder, method) -> None:
    assert_same_run(folder / f"one-{method}", folder / f"two-{method}")


@pytest.mark.parametrize("name", ["one-then-two", "two-then-one"])
def test_a_run_goes_on_with_another_number_of_processes(folder, name) -> None:
    assert_same_run(folder / "one-bne", folder / name)


def test_a_process_that_has_lost_another_says_so() -> None:
    with pytest.raises(TrainingError, match="Another process"), joined("cpu"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer [::1]:38797")
    with pytest.raises(RuntimeError, match="something else"), joined("cpu"):
        raise RuntimeError("something else")


@pytest.mark.parametrize(("momentum", "track"), [(0.1, True), (None, True), (0.1, False)])
@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 5), (6, 4, 3, 3)])
def test_the_synchronised_layer_alone_is_torchs(shape, momentum, track) -> None:
    """Over several steps, in training and evaluation, with gradients."""
    torch.manual_seed(0)
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    plain = randomise_norms(kind(4, momentum=momentum)).double()
    plain.track_running_stats = track  # set later, which freezes the statistics that are there
    ours = SynchronisedBatchNorm(copy.deepcopy(plain))
    for step in range(4):
        training = step != 2
        inputs = [torch.randn(shape, dtype=torch.double)] * 2
        inputs = [x.clone().requires_grad_() for x in inputs]
        outputs = [layer.train(training)(x) for layer, x in zip((plain, ours), inputs, strict=True)]
        torch.testing.assert_close(outputs[1], outputs[0])
        for output in outputs:
            output.pow(3).sum().backward()
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
        for key, value in plain.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[key], value, msg=key)
    for key, value in plain.named_parameters():
        torch.testing.assert_close(dict(ours.named_parameters())[key].grad, value.grad)


def test_timms_fused_layers_keep_their_activation() -> None:
    layers = pytest.importorskip("timm.layers")
    torch.manual_seed(0)
    plain = nn.Sequential(layers.BatchNormAct2d(4))
    ours = copy.deepcopy(plain)
    synchronise(ours)
    assert isinstance(ours[0], SynchronisedBatchNorm)
    images = torch.randn(3, 4, 5, 5)
    torch.testing.assert_close(ours(images), plain(images))
    assert ours(images).min() == 0


def test_evaluation_waits_for_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.BatchNorm2d(4, track_running_stats=False)
    ours = SynchronisedBatchNorm(copy.deepcopy(plain)).eval()
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    images = torch.randn(3, 4, 5, 5)
    torch.testing.assert_close(ours(images), plain.eval()(images))
