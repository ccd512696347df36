import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import bne
from bne.core.norm import domain_layers
from tests.networks import DOMAINS, randomise_norms, small_cnn


def assert_same_state(one, other):
    assert list(one.state_dict()) == list(other.state_dict())
    for name, value in one.state_dict().items():
        assert value.dtype == other.state_dict()[name].dtype
        torch.testing.assert_close(value, other.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize("domains", [1, 3, 7])
def test_reverting_at_once_gives_the_original_to_the_last_bit(domains):
    model = randomise_norms(small_cnn()).eval()
    before, x = copy.deepcopy(model), torch.randn(5, 3, 16, 16)
    reverted = bne.convert(model, [str(d) for d in range(domains)]).to_plain()
    assert_same_state(reverted, before)
    assert_same_state(model, before)  # and conversion left it alone
    assert [type(m) for m in reverted.modules()] == [type(m) for m in before.modules()]
    torch.testing.assert_close(reverted(x), before(x), rtol=0, atol=0)
    assert not {p.data_ptr() for p in reverted.parameters()} & {
        p.data_ptr() for p in model.parameters()
    }


def test_reverting_after_training_pools_the_domains():
    net = bne.convert(small_cnn(), DOMAINS)
    layer = randomise_norms(net).model[1]
    plain = net.to_plain()[1]
    torch.testing.assert_close(plain.running_mean, layer.running_mean.mean(0))
    expected = layer.running_var.mean(0) + layer.running_mean.var(0, correction=0)
    torch.testing.assert_close(plain.running_var, expected)


def test_a_branch_is_the_plain_network_of_its_domain():
    net = randomise_norms(bne.convert(small_cnn(), DOMAINS)).eval()
    x = torch.randn(5, 3, 16, 16)
    expected = net(x, details=True).branch_logits
    for index, name in enumerate(DOMAINS):
        branch = net.to_plain(name)
        assert not list(domain_layers(branch))
        assert not branch.training
        torch.testing.assert_close(branch(x), expected[:, index])
    with torch.no_grad():
        branch[0].weight.zero_()  # an independent copy
    torch.testing.assert_close(net(x, details=True).branch_logits, expected)


def test_momentum_is_the_papers_or_kept():
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=0.3), nn.BatchNorm2d(3, momentum=None))
    paper = bne.convert(model, DOMAINS)
    assert [layer.momentum for layer in paper.model] == [0.01, 0.01]
    kept = bne.convert(model, DOMAINS, momentum="keep")
    assert [layer.momentum for layer in kept.model] == [0.3, None]
    assert [layer.momentum for layer in paper.to_plain()] == [0.3, None]


def test_every_domain_counts_its_own_batches_from_0():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=0))
    x, ids = torch.randn(6, 3, 4, 4) + 5, [0, 0, 1, 1, 1, 1]
    model(x)
    for other in bne.convert(model, DOMAINS, momentum="keep"), bne.convert(model, DOMAINS):
        other.load_state_dict(model.state_dict())
        still = other.model[1].running_mean.clone()
        other(x, ids, own_branch=True)
        assert other.model[0].num_batches_tracked.tolist() == [1, 1, 0]
        torch.testing.assert_close(other.model[0].running_mean[1], x[2:].mean((0, 2, 3)))
        kept = other.model[1].momentum == 0  # for torch that is to leave them alone
        assert torch.equal(other.model[1].running_mean, still) == kept


def test_a_layer_in_two_places_stays_one_layer():
    shared = nn.BatchNorm2d(3)
    model = nn.ModuleDict({"a": nn.Sequential(shared, shared), "b": nn.Sequential(shared)})
    model.alias = shared
    net = bne.convert(model, DOMAINS).model
    assert net["a"][0] is net["a"][1] is net["b"][0] is net.alias
    assert len(list(domain_layers(net))) == 1


def test_a_network_that_is_a_batch_norm_layer():
    net = bne.convert(nn.BatchNorm2d(3), DOMAINS).eval()
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(net(x), nn.BatchNorm2d(3).eval()(x))
    assert type(net.to_plain()) is nn.BatchNorm2d


@pytest.mark.parametrize("registered", ["drop first", "act first"])
def test_fused_layers_keep_their_activation_and_drop(registered):
    timm_layers = pytest.importorskip("timm.layers")

    class Lower(nn.Module):  # does not commute with the activation
        def forward(self, x):
            return x - 1

    fused = timm_layers.BatchNormAct2d(3, act_layer=nn.PReLU, drop_layer=Lower)
    nn.init.constant_(fused.act.weight, 0.7)
    if registered == "act first":  # as timm's own conversion to synchronised layers leaves them
        fused._modules = dict(reversed(fused._modules.items()))
    model = randomise_norms(nn.Sequential(nn.Conv2d(3, 3, 1), fused)).eval()
    net, x = bne.convert(model, DOMAINS).eval(), torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(net(x), model(x))
    assert net.model[1].act.weight.requires_grad
    reverted = net.to_plain()
    assert type(reverted[1]) is timm_layers.BatchNormAct2d
    assert_same_state(reverted, model)


def test_synchronised_layers_stay_synchronised():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(small_cnn())
    net = bne.convert(model, DOMAINS)
    assert all(layer.synchronised for layer in domain_layers(net))
    assert type(net.to_plain()[1]) is nn.SyncBatchNorm
    assert not any(layer.synchronised for layer in domain_layers(bne.convert(small_cnn(), "a")))


def test_layers_without_statistics_or_parameters():
    model = nn.Sequential(
        nn.BatchNorm2d(3, affine=False), nn.BatchNorm2d(3, track_running_stats=False)
    ).eval()
    net, image = bne.convert(model, DOMAINS).eval(), torch.randn(1, 3, 4, 4)
    torch.testing.assert_close(net(image), model(image))  # alone, an image is its own batch
    assert net.embed(image).layers == ("0",)
    reverted = net.to_plain()
    assert_same_state(reverted, model)
    assert reverted[1].running_mean is None


def test_statistics_that_are_no_longer_tracked_are_used_as_torch_does():
    model = randomise_norms(small_cnn()).double()
    for layer in (model[1], model[4]):
        layer.track_running_stats = False
    net, x = bne.convert(model, ["one"], momentum="keep"), torch.randn(5, 3, 16, 16).double()
    before = copy.deepcopy(model)
    torch.testing.assert_close(net.train()(x, [0] * 5, own_branch=True), model.train()(x))
    assert_same_state(model, before)
    assert_same_state(net.to_plain(), before)
    torch.testing.assert_close(net.eval()(x), model.eval()(x))
    assert net.embed(x).layers == net.domain_embeddings().layers == ("1", "4")
    assert bne.convert(model, DOMAINS, layers=["4"]).layers == ("4",)


@pytest.mark.parametrize("track", [True, False])
def test_statistics_that_were_taken_away_stay_away(track):
    plain = nn.BatchNorm2d(3)
    plain.running_mean = plain.running_var = plain.num_batches_tracked = None
    plain.track_running_stats = track
    model = nn.Sequential(plain).eval()
    net, image = bne.convert(model, DOMAINS), torch.randn(1, 3, 4, 4)
    torch.testing.assert_close(net(image, [0], own_branch=True), model(image))
    assert_same_state(net.to_plain(), model)
    net.load_state_dict(model.state_dict())


def test_a_layer_with_a_scale_and_no_bias():
    plain = nn.BatchNorm2d(3)
    plain.bias = None  # as newer versions of PyTorch can make it
    model = nn.Sequential(plain).eval()
    nn.init.uniform_(plain.weight)
    net, x = bne.convert(model, DOMAINS).eval(), torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(net(x), model(x))
    assert_same_state(net.to_plain(), model)


def test_frozen_parameters_stay_frozen():
    model = small_cnn()
    model[1].weight.requires_grad_(False)
    net = bne.convert(model, DOMAINS)
    assert not net.model[1].weight.requires_grad
    assert not net.to_plain()[1].weight.requires_grad


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_networks_have_float32_statistics(dtype, affine):
    model = randomise_norms(nn.Sequential(nn.BatchNorm2d(3, affine=affine))).to(dtype).eval()
    net, x = bne.convert(model, DOMAINS), torch.randn(2, 3, 4, 4, dtype=dtype)
    assert net.model[0].running_mean.dtype == torch.float32
    assert net.to_plain("art")(x).dtype == dtype
    assert_same_state(net.to_plain(), model)


def test_the_mode_is_the_networks():
    for training in (True, False):
        net = bne.convert(small_cnn().train(training), DOMAINS)
        assert net.training == net.model.training == net.model[1].training == training


def test_reverting_keeps_the_longest_count_of_batches():
    net = bne.convert(small_cnn(), DOMAINS)
    net.model[1].num_batches_tracked.copy_(torch.tensor([2, 9, 4]))
    assert net.to_plain()[1].num_batches_tracked == 9
    assert net.to_plain("photo")[1].num_batches_tracked == 4


def test_the_layers_that_are_stood_for_take_no_memory():
    for layer in domain_layers(bne.convert(small_cnn(), DOMAINS)):
        assert all(tensor.is_meta for tensor in layer.original[0].state_dict().values())


def test_other_norms_stay_as_they_are():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm([4, 8, 8]))
    net = bne.convert(model, DOMAINS).model
    assert [type(m) for m in net] == [bne.DomainBatchNorm, nn.GroupNorm, nn.LayerNorm]


class ScaledBatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


class RectifiedBatchNorm(nn.BatchNorm2d):
    def __init__(self, num_features):
        super().__init__(num_features)
        self.rectify = nn.ReLU()

    def forward(self, x):
        return self.rectify(super().forward(x))


class CountingBatchNorm(nn.BatchNorm2d):
    def __init__(self, num_features):
        super().__init__(num_features)
        self.register_buffer("seen", torch.zeros(()))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.LayerNorm(3), nn.LayerNorm(3)), "no batch-norm.*LayerNorm ×2"),
        (nn.Sequential(nn.Linear(3, 3)), "no batch-norm.*none"),
        (nn.Sequential(ScaledBatchNorm(3)), "'0' is a ScaledBatchNorm"),
        (nn.Sequential(RectifiedBatchNorm(3)), "'0' is a RectifiedBatchNorm"),
        (nn.Sequential(CountingBatchNorm(3)), "'0' .* with a tensor of its own, 'seen'"),
        (bne.convert(nn.Sequential(nn.BatchNorm2d(3)), ["a"]).model, "converted already"),
        (nn.Sequential(weight_norm(nn.BatchNorm2d(3))), "'0' has parametrized weights"),
    ],
)
def test_networks_that_cannot_be_converted(model, message):
    with pytest.raises(ValueError, match=message):
        bne.convert(model, DOMAINS)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_that_would_be_lost_are_refused(kind):
    model = small_cnn()
    handle = getattr(model[1], f"register_{kind}_hook")(lambda module, *_: None)
    with pytest.raises(ValueError, match="'1' has hooks, which would be lost"):
        bne.convert(model, DOMAINS)
    handle.remove()
    bne.convert(model, DOMAINS)


def test_only_networks_are_converted():
    with pytest.raises(TypeError, match=r"nn\.Module, not 'resnet18'"):
        bne.convert("resnet18", DOMAINS)


@pytest.mark.parametrize("name", ["repvgg_a0", "mobileone_s0", "fastvit_t8"])
def test_a_branch_can_be_reparameterised_by_timm(name):
    timm = pytest.importorskip("timm")
    from timm.utils.model import reparameterize_model

    model = randomise_norms(timm.create_model(name, num_classes=5)).double().eval()
    branch = bne.convert(model, DOMAINS).to_plain("photo")
    x = torch.randn(2, 3, 64, 64, dtype=torch.double)
    deployed = reparameterize_model(branch)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in deployed.modules()) < sum(
        isinstance(m, nn.BatchNorm2d) for m in model.modules()
    )
    torch.testing.assert_close(deployed(x), model(x))


def test_a_process_group_of_its_own_is_refused_in_one_sentence():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SyncBatchNorm(4))
    model[1].process_group = object()
    with pytest.raises(ValueError, match=r"'1' is synchronised over a process group of its own"):
        bne.convert(model, DOMAINS)


@pytest.mark.parametrize("momentum", [-0.1, 1.5, "always"])
def test_a_momentum_that_is_no_share_is_refused(momentum):
    with pytest.raises(ValueError, match="momentum must be between 0 and 1, None or 'keep'"):
        bne.convert(small_cnn(), DOMAINS, momentum=momentum)
