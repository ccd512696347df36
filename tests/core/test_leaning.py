"""Images that lean on their own statistics, against loops over the definition in float64."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bne
from bne.core import ensemble
from bne.core.norm import DomainBatchNorm, domain_layers
from bne.methods import DSON, create
from tests.networks import DOMAINS, randomise_norms, small_cnn

IMAGES = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(1)) * 2 + 1
IDS = torch.tensor([0, 2, 1, 1, 0])


def converted(model=None, domains=DOMAINS, seed=0, **options):
    """A network in float64 whose domains differ, in evaluation."""
    torch.manual_seed(0)
    net = bne.convert(small_cnn() if model is None else model, domains, **options)
    return randomise_norms(net, seed).double().eval()


def at_point(x, mean, var, layer, share):
    """(N, C, *spatial) between given statistics, (N, C), and each image's own."""
    out = torch.empty_like(x)
    for n, image in enumerate(x):
        for c, values in enumerate(image):
            known, own = (var[n, c] + layer.eps).sqrt(), values.var(correction=0) + layer.eps
            middle = mean[n, c] + share * (values.mean() - mean[n, c])
            deviation = known + share * (own.sqrt() - known)
            out[n, c] = (values - middle) / deviation * layer.weight[c] + layer.bias[c]
    return out


def walk(net, images, weights, shares):
    """The network under the domains' statistics mixed by weights, (N, K), leaning in each layer."""
    x = images
    for module in net.model:
        if not isinstance(module, DomainBatchNorm):
            x = module(x)
            continue
        mean = weights @ module.running_mean
        second = weights @ (module.running_var + module.running_mean.square())
        x = at_point(x, mean, second - mean.square(), module, shares[module.name])
    return x


def by_definition(net, images, way, share):
    """What the network must say, with weights that do not lean."""
    shares = share if isinstance(share, dict) else dict.fromkeys(["1", "4"], share)
    unleaned = copy.deepcopy(net)
    unleaned.lean, unleaned.mix = 0, "logits"
    each, count = torch.eye(3).double(), len(images)
    branches = torch.stack(
        [walk(net, images, each[d].expand(count, 3), shares) for d in range(3)], 1
    )
    weights = unleaned(images, details=True).weights
    if way == "branches":
        return branches
    if way == "own_branch":
        return branches[torch.arange(count), IDS[:count]]
    if net.mix == "statistics":
        return walk(net, images, weights, shares)
    if net.mix == "centre":
        return walk(net, images, torch.full((count, 3), 1 / 3).double(), shares)
    if net.mix == "probabilities":
        return (weights.unsqueeze(2) * branches.softmax(2)).sum(1).log()
    return (weights.unsqueeze(2) * branches).sum(1)


def said(net, images, way="mixture"):
    if way == "branches":
        return net.branches(images)
    if way == "own_branch":
        return net(images, IDS[: len(images)], own_branch=True)
    if way == "details":
        return net(images, details=True).logits
    return net(images)


WAYS = [
    ("mixture", {}),
    ("details", {}),
    ("branches", {"max_images": 2}),
    ("own_branch", {"max_images": 2}),
    ("mixture", {"nearest": 2}),
    ("mixture", {"mix": "probabilities", "max_branches": 1}),
    ("mixture", {"mix": "statistics"}),
    ("mixture", {"mix": "centre"}),
    ("details", {"mix": "centre"}),
]
every_way = pytest.mark.parametrize(("way", "options"), WAYS, ids=str)


@every_way
def test_it_acts_in_every_way_to_predict(way, options):
    net, images = converted(lean=0.25, **options), IMAGES.double()
    expected = by_definition(net, images, way, 0.25)
    torch.testing.assert_close(said(net, images, way), expected)
    with torch.no_grad():
        torch.testing.assert_close(said(net, images, way), expected)
        torch.testing.assert_close(said(net, images[:1], way), expected[:1])  # a batch of one


@every_way
@torch.no_grad()
def test_a_share_of_0_gives_the_bits_of_a_network_that_never_leaned(way, options):
    net, never = converted(lean=0.25, **options), converted(**options)
    expected = said(never, IMAGES.double(), way)
    assert not torch.allclose(said(net, IMAGES.double(), way), expected)
    net.lean = 0
    assert torch.equal(said(net, IMAGES.double(), way), expected)


def test_each_layer_leans_by_the_share_under_its_name():
    net, images = converted(lean={"4": 0.75}), IMAGES.double()
    expected = by_definition(net, images, "mixture", {"1": 0, "4": 0.75})
    torch.testing.assert_close(net(images), expected)


@pytest.mark.parametrize(
    "make",
    [
        converted,
        lambda: create("deepall", small_cnn(), DOMAINS),
        lambda: create("head-only", small_cnn(), DOMAINS).eval(),
    ],
    ids=["converted", "deepall", "head-only"],
)
def test_shares_by_layer_are_copies_so_that_what_is_told_is_what_holds(make):
    net, shares = make(), {"4": 0.75}
    net.lean = shares
    shares["1"] = net.lean["1"] = 0.5
    assert net.lean == {"4": 0.75}


@torch.no_grad()
def test_layers_prepared_at_once_are_those_that_do_not_lean(monkeypatch):
    net = converted(lean={"4": 0.75})
    expected = net.branches(IMAGES.double())
    monkeypatch.setattr(ensemble, "pays", lambda images, copies: True)
    torch.testing.assert_close(net.branches(IMAGES.double()), expected)


LAYERS = {
    "tokens": (nn.BatchNorm1d, (5, 3, 4), torch.contiguous_format),
    "maps": (nn.BatchNorm2d, (5, 3, 4, 6), torch.contiguous_format),
    "channels last": (nn.BatchNorm2d, (5, 3, 4, 6), torch.channels_last),
    "volumes": (nn.BatchNorm3d, (5, 3, 2, 3, 2), torch.contiguous_format),
    "fused": ("BatchNormAct2d", (5, 3, 4, 6), torch.contiguous_format),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("domains", [DOMAINS, ["only"]], ids=len)
def test_layers_of_all_kinds(kind, domains):
    make, shape, layout = LAYERS[kind]
    fused = isinstance(make, str)
    make = getattr(pytest.importorskip("timm.layers"), make) if fused else make
    net = converted(nn.Sequential(make(3, eps=1e-3)), domains)
    layer, ids = net.model[0], IDS % len(domains)
    x = (torch.randn(shape).double() * 2 + 1).contiguous(memory_format=layout)
    statistics = [statistic[ids] for statistic in layer.population]
    for share in (0.25, 1):
        net.lean = share
        out = net(x, ids, own_branch=True)
        expected = at_point(x, *statistics, layer, share)
        torch.testing.assert_close(out, expected.relu() if fused else expected)
        assert out.stride() == x.stride()
    instance = F.instance_norm(x, weight=layer.weight, bias=layer.bias, eps=1e-3)
    torch.testing.assert_close(out, instance.relu() if fused else instance)


def test_an_image_in_several_rows_leans_on_all_of_them():
    layer = randomise_norms(DomainBatchNorm(3, 3)).double().eval()
    layer.lean(0.75)
    x, ids = torch.randn(4, 2, 3, 5).double(), torch.tensor([0, 2, 1, 1])
    statistics = [statistic[ids] for statistic in layer.population]
    expected = at_point(x.transpose(1, 2), *statistics, layer, 0.75).transpose(1, 2)
    torch.testing.assert_close(layer.by_domain(x.flatten(0, 1), ids), expected.flatten(0, 1))


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 1, 1)])
def test_layers_with_one_value_per_channel_do_not_lean(shape):
    layer = randomise_norms(DomainBatchNorm(3, 3)).eval()
    x, weights, members = torch.randn(shape), torch.rand(5, 3).softmax(1), torch.ones(5).bool()
    found = []
    for share, shares in ((0, None), (0.5, torch.rand(5))):
        layer.lean(share)
        one = [layer.by_domain(x, IDS), layer.by_mixture(x, weights), layer.by_centre(x, 5)]
        one.append(copy.deepcopy(layer).train().by_domain(x, IDS, members, shares=shares))
        found.append(one)
    assert all(map(torch.equal, *found))


@torch.no_grad()
def test_places_and_weights_do_not_lean():
    net = converted()
    before, point = net(IMAGES.double(), details=True), net.domain_embeddings()
    net.lean = 0.75
    after = net(IMAGES.double(), details=True)
    assert not torch.allclose(after.logits, before.logits)
    for old, new in [
        (before.embedding, after.embedding),
        (before.embedding, net.embed(IMAGES.double())),
        (point, net.domain_embeddings()),
    ]:
        assert torch.equal(old.mean, new.mean)
        assert torch.equal(old.var, new.var)
    assert torch.equal(before.distances, after.distances)
    assert torch.equal(before.weights, after.weights)


@pytest.mark.parametrize(
    "how", [{}, {"own_branch": True}, {"branch_statistics": "population"}, {"max_branches": 1}]
)
def test_training_does_not_lean(how):
    call = {"own_branch": how.pop("own_branch", False)}
    found = []
    for lean in (0, 0.75):
        net = converted(lean=lean, **how).train()
        logits = net(IMAGES.double(), IDS, **call)
        found.append([logits, *net.state_dict().values()])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("gradient", [True, False])
def test_the_centre_is_the_plain_networks_in_one_pass(monkeypatch, gradient):
    net, images, passes = converted(mix="centre"), IMAGES.double(), []
    distances = converted()(images, details=True).distances
    net.model.register_forward_hook(lambda *_: passes.append(1))
    with torch.set_grad_enabled(gradient):
        torch.testing.assert_close(net(images), net.to_plain()(images))
        torch.testing.assert_close(net(images, details=True).distances, distances)
        monkeypatch.setattr(DomainBatchNorm, "by_instance", None)
        passes.clear()
        net(images)
        assert len(passes) == 1


def test_the_centre_is_trained_as_the_mixture_of_logits():
    centre, logits = converted(mix="centre").train(), converted().train()
    assert torch.equal(centre(IMAGES.double(), IDS), logits(IMAGES.double(), IDS))


def test_a_network_as_it_is_leans_without_domains():
    torch.manual_seed(0)
    model = randomise_norms(small_cnn()).double().eval()
    net, images = bne.convert(model, lean=0.25), IMAGES.double()
    assert net.domains == ("all",)
    shares = {"1": 0.25, "4": 0.25}
    torch.testing.assert_close(net(images), walk(net, images, torch.ones(5, 1).double(), shares))
    torch.testing.assert_close(net(images, own_branch=True), net(images))
    net.lean = 0
    torch.testing.assert_close(net(images), model(images))
    for call in ({}, {"own_branch": True}):
        torch.testing.assert_close(net.train()(images, **call), model.train()(images))
    assert net(images, max_lean=0.5).shape == (10, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_half_precision(dtype):
    net = converted(lean=0.3).float()
    exact = net(IMAGES)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(net(IMAGES).float(), exact, rtol=0.03, atol=0.03)
    net.to(dtype)
    for layer in domain_layers(net):
        assert layer.share.dtype == torch.float32
        assert layer.share == torch.tensor(0.3)
    torch.testing.assert_close(net(IMAGES.to(dtype)).float(), exact, rtol=0.03, atol=0.03)


@pytest.mark.parametrize(
    ("lean", "message"),
    [
        *((share, "share from 0 to 1") for share in (-0.1, 1.1, True, float("nan"), "0.1", None)),
        ({"1": 2}, "share from 0 to 1"),
        ({"bn": 0.1}, "no batch-norm layer is named"),
    ],
    ids=str,
)
def test_what_is_no_share_is_refused_and_changes_nothing(lean, message):
    net = converted(lean=0.25)
    for attempt in (lambda: setattr(net, "lean", lean), lambda: converted(lean=lean)):
        with pytest.raises(ValueError, match=message):
            attempt()
    assert net.lean == 0.25
    assert {layer.share.item() for layer in domain_layers(net)} == {0.25}


def test_what_cannot_lean_refuses_unless_the_share_is_0():
    net = converted(lean=0.25)
    for domain in (None, "art"):
        with pytest.raises(ValueError, match="set lean to 0 first"):
            net.to_plain(domain)
    net.lean = {"1": 0}
    assert isinstance(net.to_plain()[1], nn.BatchNorm2d)
    dson = DSON(small_cnn(), DOMAINS).net
    dson.lean = 0
    with pytest.raises(ValueError, match="leave lean at 0"):
        dson.lean = 0.25
    assert dson.lean == 0
    with pytest.raises(ValueError, match="leave max_lean out"):
        dson.train()(IMAGES, IDS, max_lean=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"max_lean": 1.1}, "max_lean must be a share"),
        ({"max_lean": 0.5, "own_branch": True}, "leave own_branch and details out"),
        ({"max_lean": 0.5, "details": True}, "leave own_branch and details out"),
        ({"max_lean": 0.5, "domains": None}, "every image needs its domain"),
    ],
    ids=str,
)
def test_points_that_cannot_be_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        converted().train()(IMAGES.double(), **{"domains": IDS, **call})
    with pytest.raises(ValueError, match="max_lean is for training"):
        converted()(IMAGES.double(), IDS, max_lean=0.5)


@torch.no_grad()
def test_copies_keep_it_and_the_state_dict_does_not():
    net, never = converted(lean=0.25), converted()
    assert net.state_dict().keys() == never.state_dict().keys()
    expected = net(IMAGES.double())
    for kept in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert kept.lean == 0.25
        assert torch.equal(kept(IMAGES.double()), expected)
        kept.lean = 0.75
    assert torch.equal(net(IMAGES.double()), expected)
    net.load_state_dict(converted(seed=3).state_dict())
    torch.testing.assert_close(
        net(IMAGES.double()), by_definition(net, IMAGES.double(), "mixture", 0.25)
    )


@torch.no_grad()
def test_a_share_set_after_compilation_takes_effect():
    net = converted()
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    for lean in (0, 0.25, 0.75):
        net.lean = lean
        torch.testing.assert_close(compiled(IMAGES.double()), net(IMAGES.double()))


ANY_NUMBER = {"images": {0: torch.export.Dim("n", min=1)}}


@pytest.mark.parametrize("mix", ["logits", "centre"])
def test_exported_networks_lean(mix, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    net, file = converted(lean=0.25, mix=mix).float(), io.BytesIO()
    program = torch.export.export(net, (IMAGES,), dynamic_shapes=ANY_NUMBER)
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    torch.onnx.export(program, dynamo=True).save(tmp_path / "net.onnx")
    session = runtime.InferenceSession(tmp_path / "net.onnx")
    for images in (IMAGES, IMAGES[:1]):
        torch.testing.assert_close(loaded(images), net(images))
        (ours,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
        torch.testing.assert_close(torch.from_numpy(ours), net(images), rtol=1e-4, atol=1e-4)
