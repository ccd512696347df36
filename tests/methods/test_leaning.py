"""Methods that lean in evaluation: DeepAll, whose network stays the plain one, and the others."""

import contextlib
import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import bne
from bne.data.batches import Counted
from bne.methods import create, entries
from bne.training.runtime import recompute
from tests.networks import DOMAINS, randomise_norms, small_cnn

NAMES = [entry.name for entry in entries()]
LEANING = ["deepall", "freeze-bn", "bne", "points", "deepall-points", "head-only"]
every_method = pytest.mark.parametrize("name", NAMES)
plain_methods = pytest.mark.parametrize("name", ["deepall", "freeze-bn"])


def both(name="deepall", model=None):
    """A method, and the same network converted without domains."""
    model = randomise_norms(small_cnn() if model is None else model)
    return create(name, model, DOMAINS).eval(), bne.convert(model.eval())


@every_method
def test_a_method_leans_or_says_that_it_does_not(name, batch):
    method = create(name, randomise_norms(small_cnn()), DOMAINS).eval()
    method.lean = 0
    before, state = method.predict(batch[0]), method.state_dict().keys()
    if not method.can_lean:
        with pytest.raises(ValueError, match="does not lean"):
            method.lean = 0.3
        assert method.lean == 0
        return
    method.lean = 0.3
    assert method.lean == 0.3
    assert method.state_dict().keys() == state
    assert not torch.allclose(method.predict(batch[0]), before)
    method.lean = 0
    assert torch.equal(method.predict(batch[0]), before)


def test_which_methods_do_not_lean():
    rigid = {name for name in NAMES if not create(name, small_cnn(), DOMAINS).can_lean}
    assert rigid == {"dson", "dson-bne", "instance-norm"}


@plain_methods
def test_the_plain_network_leans_as_a_converted_one(batch, name):
    method, net = both(name)
    assert torch.equal(method.predict(batch[0]), method.net(batch[0]))
    for lean in (0.3, 1.0, {"4": 0.7}, 0):
        method.lean = net.lean = lean
        expected = net(batch[0])
        torch.testing.assert_close(method.predict(batch[0]), expected)
        torch.testing.assert_close(method.predict(batch[0][:1]), expected[:1])
        torch.testing.assert_close(method.net(batch[0][:4]), expected[:4])  # not by `predict`


def test_a_plain_network_leans_in_several_threads(batch):
    method, _ = both()
    method.lean = 0.3
    expected = method.predict(batch[0])

    def run_another(*_):
        hook.remove()
        thread = threading.Thread(target=method.predict, args=(batch[0][:1],))
        thread.start()
        thread.join()

    hook = method.net[0].register_forward_hook(run_another)
    assert torch.equal(method.predict(batch[0]), expected)


def test_parts_of_a_plain_network_lean_by_themselves(batch):
    method, net = both()
    method.lean = net.lean = 0.3
    images = batch[0]
    expected = net(images)
    method.predict(images[:4])  # whose number counts no longer
    torch.testing.assert_close(method.net[5:](method.net[:5](images)), expected)


LAYERS = {
    "tokens": (nn.BatchNorm1d(3), (5, 3, 4)),
    "rows": (nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm2d(3)), (5, 2, 3, 4, 4)),
    "one value": (nn.BatchNorm1d(3), (5, 3)),
    "without statistics": (nn.BatchNorm2d(3, track_running_stats=False), (1, 3, 4, 4)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_plain_layers_of_all_kinds(kind):
    layer, shape = LAYERS[kind]
    method, net = both(model=nn.Sequential(copy.deepcopy(layer)))
    method.lean = net.lean = 0.3
    x = torch.randn(shape) * 2 + 1
    torch.testing.assert_close(method.predict(x), net(x, own_branch=True))


def test_a_fused_layers_activation_comes_after():
    norm_act = pytest.importorskip("timm.layers").BatchNormAct2d
    method, net = both(model=nn.Sequential(norm_act(3)))
    method.lean = net.lean = 0.3
    x = torch.randn(5, 3, 4, 4)
    torch.testing.assert_close(method.predict(x), net(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_plain_network_leans_in_every_precision(batch, dtype):
    method, net = both()
    method.lean = net.lean = 0.3
    near = 1e-5 if dtype == torch.float64 else 0.05
    ours = method.to(dtype).predict(batch[0].to(dtype))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.float(), net(batch[0]), rtol=near, atol=near)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda method: pickle.loads(pickle.dumps(method))])
def test_copies_of_a_plain_network_lean_by_themselves(batch, how):
    method, _ = both()
    never = method.predict(batch[0])
    method.lean = 0.3
    leaning = method.predict(batch[0])
    other = how(method)
    assert torch.equal(other.predict(batch[0][:4]), leaning[:4])
    other.lean = 0
    assert torch.equal(other.predict(batch[0]), never)
    assert torch.equal(method.predict(batch[0]), leaning)


@pytest.mark.parametrize("lean", [-0.1, True, float("nan"), {"bn": 0.1}, {"1": 2}], ids=str)
def test_a_plain_network_refuses_what_is_no_share(batch, lean):
    method, _ = both()
    method.lean = 0.3
    expected = method.predict(batch[0])
    with pytest.raises(ValueError, match=r"share from 0 to 1|no batch-norm layer"):
        method.lean = lean
    assert method.lean == 0.3
    assert torch.equal(method.predict(batch[0]), expected)


@pytest.mark.parametrize("name", LEANING)
def test_training_and_measured_statistics_do_not_lean(name, batch):
    images, labels, domains = batch
    found = []
    for lean in (0, 0.5):
        torch.manual_seed(0)
        method = create(name, randomise_norms(small_cnn()), DOMAINS).train()
        method.lean = lean
        for epoch in range(2):
            method.begin_epoch(epoch, warm_up=1)
            method(images, labels, domains).backward()
        gradients = [each.grad for each in method.parameters() if each.requires_grad]
        running = copy.deepcopy(list(method.state_dict().values()))
        whole = Counted(torch.arange(9), domains, torch.ones(9, dtype=torch.bool))
        with torch.no_grad():
            recompute(
                method.eval(),
                [whole],
                lambda numbers: (images[n] for n in numbers),
                images.device,
                contextlib.nullcontext,
            )
        assert method.lean == lean
        found.append([*gradients, *running, *method.state_dict().values()])
    assert all(map(torch.equal, *found))
