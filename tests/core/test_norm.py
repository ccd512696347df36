from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bne import DomainBatchNorm
from bne.core.moments import Moments, combine


def everyone(ids):
    return torch.ones_like(ids, dtype=torch.bool)


@pytest.fixture
def ids():
    return torch.tensor([0, 2, 1, 0, 1, 2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_have_float32_statistics(dtype, ids):
    torch.manual_seed(0)
    x = (torch.randn(6, 4, 5, 5) * 3 + 20).to(dtype)  # far from 0: half precision would lose digits
    half, full = DomainBatchNorm(4, 3), DomainBatchNorm(4, 3)
    out = half.by_domain(x, ids, everyone(ids))
    expected = full.by_domain(x.float(), ids, everyone(ids))
    assert out.dtype == dtype
    torch.testing.assert_close(out, expected.to(dtype), rtol=0, atol=0)
    assert half.running_mean.dtype == torch.float32
    torch.testing.assert_close(half.running_var, full.running_var, rtol=0, atol=0)
    _, moments = half.by_instance(x, 6)
    assert moments.mean.dtype == moments.var.dtype == torch.float32


def test_casting_to_half_precision_keeps_the_statistics_exact(ids):
    layer = DomainBatchNorm(4, 3)
    layer.running_mean.normal_()
    before = layer.running_mean.clone()
    assert layer.half().weight.dtype == torch.float16
    torch.testing.assert_close(layer.running_mean, before, rtol=0, atol=0)
    assert layer.double().running_mean.dtype == torch.float64
    assert layer.half().running_mean.dtype == layer.running_var.dtype == torch.float32
    out = layer.eval().by_domain(torch.randn(6, 4, 3, 3).half(), ids)
    assert out.dtype == torch.float16


def test_channels_last_is_kept(ids):
    layer = DomainBatchNorm(4, 3)
    x = torch.randn(6, 4, 5, 5).to(memory_format=torch.channels_last)
    outputs = [layer.by_domain(x, ids, everyone(ids)), layer.by_instance(x, 6)[0]]
    outputs += [layer.eval().by_domain(x, ids), layer.half().by_domain(x.half(), ids)]
    for out in outputs:
        assert out.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
    ],
)
def test_one_image_without_gradients_is_normalised_alike(module, given):
    """torch's own batch norm, which would be faster, takes some of these dtypes only."""
    torch.manual_seed(0)
    layer, x = DomainBatchNorm(4, 1).to(module).eval(), torch.randn(1, 4, 5, 5).to(given)
    torch.nn.init.uniform_(layer.weight)
    expected = layer.by_instance(x, 1)[0], layer.by_domain(x, torch.tensor([0]))
    with torch.no_grad():
        ours = layer.by_instance(x, 1)[0], layer.by_domain(x, torch.tensor([0]))
    assert {out.dtype for out in ours} == {given}
    torch.testing.assert_close(ours, expected)


def test_mixed_statistics_have_no_negative_variance():
    """Weights that add up to 1 but for rounding, and domains that lie far apart."""
    layer = DomainBatchNorm(4, 2).eval()
    layer.running_mean.copy_(torch.tensor([[1000.0], [-1000.0]]).expand(2, 4))
    layer.running_var.zero_()
    weights = torch.tensor([[1 + 2**-23, 0.0]])
    assert layer.by_mixture(torch.full((1, 4, 3, 3), 1000.0), weights).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_are_mixed_in_float32_under_autocast(dtype):
    torch.manual_seed(0)
    layer = DomainBatchNorm(4, 3).eval()
    layer.running_mean.normal_(std=100)
    layer.running_var.uniform_(1e5, 2e5)  # more than float16 can hold
    x, weights = torch.randn(6, 4, 5, 5) * 300, torch.rand(6, 3).softmax(1)
    expected = layer.by_mixture(x, weights)
    with torch.autocast("cpu", dtype):
        torch.testing.assert_close(layer.by_mixture(x, weights), expected, rtol=0, atol=0)
    assert layer.to("meta").by_mixture(x.to("meta"), weights.to("meta")).shape == x.shape


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])  # whose square is infinite
@pytest.mark.parametrize("momentum", [0.01, None])
@pytest.mark.parametrize("compiled", [True, False])
def test_an_infinite_image_leaves_no_trace(ids, momentum, value, compiled):
    """One value of one channel; the statistics of the other domains follow as ever."""
    torch.manual_seed(0)
    layer, other = (DomainBatchNorm(4, 3, momentum=momentum) for _ in range(2))
    x = torch.randn(6, 4, 5, 5)
    for each in layer, other:
        each.by_domain(x, ids, everyone(ids))
    other.by_domain(x + 1, ids, everyone(ids) & (ids != 1))
    x[ids == 1, 2, 3, 3] = value
    by_domain = torch.compile(layer.by_domain, backend="eager", fullgraph=True)
    out = (by_domain if compiled else layer.by_domain)(x + 1, ids, everyone(ids))
    assert out[ids != 1].isfinite().all()
    assert layer.num_batches_tracked.tolist() == [2, 1, 2]
    torch.testing.assert_close(list(layer.buffers()), list(other.buffers()), rtol=0, atol=0)


def test_a_step_that_a_gradient_scaler_skips_for_infinite_activations_leaves_no_trace(ids):
    torch.manual_seed(0)
    layer, x = DomainBatchNorm(4, 3), torch.randn(6, 4, 5, 5)
    optimiser, scaler = torch.optim.SGD(layer.parameters(), 1.0), torch.amp.GradScaler("cpu")
    for overflow in False, True:
        before = [tensor.clone() for tensor in layer.state_dict().values()]
        out = layer.by_domain((x * (1e5 if overflow else 1)).half(), ids, everyone(ids))
        scaler.scale(out.float().square().mean()).backward()
        scaler.step(optimiser)
        scaler.update()
        kept = map(torch.equal, before, layer.state_dict().values())
        assert all(kept) if overflow else not any(kept)
        optimiser.zero_grad()


def test_rows_of_one_image_count_as_its_positions():
    """Tokens folded into the batch are what spatial positions are."""
    torch.manual_seed(0)
    tokens = torch.randn(5, 7, 4)  # images, tokens, channels
    as_rows, as_positions = DomainBatchNorm(4, 2), DomainBatchNorm(4, 2)
    ids = torch.tensor([0, 1, 1, 0, 1])
    rows = as_rows.by_domain(tokens.flatten(0, 1), ids, everyone(ids)).view_as(tokens)
    positions = as_positions.by_domain(tokens.transpose(1, 2), ids, everyone(ids)).transpose(1, 2)
    torch.testing.assert_close(rows, positions)
    torch.testing.assert_close(as_rows.running_var, as_positions.running_var)
    _, moments = as_rows.by_instance(tokens.flatten(0, 1), 5)
    torch.testing.assert_close(moments.mean, tokens.mean(1))


def test_single_values_have_no_instance_variance():
    layer = DomainBatchNorm(4, 3).eval()
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    for shape in [(6, 4), (6, 4, 1, 1)]:
        x = torch.randn(shape)
        out, moments = layer.by_instance(x, 6)
        assert moments is None
        mean, var = layer.running_mean.mean(0), layer.running_var.mean(0)
        expected = (x.view(6, 4) - mean) / (var + layer.eps).sqrt()
        torch.testing.assert_close(out, expected.view(shape))


def test_only_members_define_a_domains_statistics():
    """Distance training runs every image under every domain; guests must leave no trace."""
    torch.manual_seed(0)
    layer = DomainBatchNorm(4, 2)
    x, ids = torch.randn(6, 4, 3, 3), torch.tensor([0, 0, 0, 1, 1, 1])
    members = torch.tensor([True, True, False, True, False, False])
    layer.by_domain(x, ids, members)
    expected = x[:2].mean((0, 2, 3)), x[3:4].mean((0, 2, 3))
    torch.testing.assert_close(layer.running_mean, torch.stack(expected))


def test_without_members_training_uses_and_keeps_the_population(ids):
    layer = DomainBatchNorm(4, 3)
    layer.running_mean.normal_()
    before, x = layer.running_mean.clone(), torch.randn(6, 4, 3, 3)
    out = layer.by_domain(x, ids)
    torch.testing.assert_close(out, layer.eval().by_domain(x, ids))
    torch.testing.assert_close(layer.running_mean, before, rtol=0, atol=0)


def test_gradients_flow_through_batch_and_instance_statistics(ids):
    """Without them, the gradient of a constant shift of the input would not vanish."""
    layer = DomainBatchNorm(4, 3)
    x = torch.randn(6, 4, 3, 3, dtype=torch.double, requires_grad=True)
    upstream = torch.randn_like(x)
    for out, axes in [
        (layer.double().by_domain(x, ids, everyone(ids)), (0, 2, 3)),
        (layer.by_instance(x, 6)[0], (2, 3)),
    ]:
        (gradient,) = torch.autograd.grad((out * upstream).sum(), x)
        torch.testing.assert_close(gradient.sum(axes), torch.zeros_like(gradient.sum(axes)))


@pytest.mark.parametrize(("tracking", "track"), [(True, True), (False, True), (True, False)])
def test_kernels_too_leave_statistics_alone_that_are_not_tracked(monkeypatch, ids, tracking, track):
    counts = []
    kernels = SimpleNamespace(by_batch=lambda x, *args: counts.append(args[5]) or x)
    monkeypatch.setattr("bne.core.norm.kernels_for", lambda samples: kernels)
    layer = DomainBatchNorm(4, 3)
    layer.track_running_stats = tracking
    layer.by_domain(torch.randn(6, 4, 3, 3), ids, everyone(ids), track=track)
    assert counts[0] is (layer.num_batches_tracked if tracking and track else None)


class TestWithoutRunningStatistics:
    @pytest.fixture
    def layer(self):
        return DomainBatchNorm(4, 3, track_running_stats=False)

    def test_known_domains_train_by_batch_statistics_and_absent_ones_stay_as_they_are(
        self, layer, ids
    ):
        x, plain = torch.randn(6, 4, 3, 3), nn.BatchNorm2d(4, track_running_stats=False)
        out = layer.by_domain(x, ids, everyone(ids))
        for d in range(3):
            torch.testing.assert_close(out[ids == d], plain(x[ids == d]))
        out = layer.by_domain(x, ids, everyone(ids) & (ids != 1))
        torch.testing.assert_close(out[ids == 1], x[ids == 1] / (1 + layer.eps) ** 0.5)

    def test_one_value_is_no_batch(self, layer):
        x, ids = torch.randn(3, 4, requires_grad=True), torch.tensor([0, 1, 1])
        out = layer.by_domain(x, ids, everyone(ids))
        torch.testing.assert_close(out[:1], x[:1] / (1 + layer.eps) ** 0.5)
        (gradient,) = torch.autograd.grad(out[0].sum(), x)
        torch.testing.assert_close(gradient[0], torch.full((4,), (1 + layer.eps) ** -0.5))

    def test_in_evaluation_and_without_a_domain_an_image_is_a_batch_of_its_own(self, layer, ids):
        x = torch.randn(6, 4, 3, 3)
        out, moments = layer.by_instance(x, 6)
        assert moments is None
        for members in (None, everyone(ids)):
            torch.testing.assert_close(layer.eval().by_domain(x, ids, members), out)
        torch.testing.assert_close(out, nn.InstanceNorm2d(4)(x))

    def test_a_single_value_cannot_be_normalised(self, layer, ids):
        ways = (
            lambda x: layer.by_instance(x, 6),
            lambda x: layer.eval().by_domain(x, ids),
            lambda x: layer.by_mixture(x, torch.full((6, 3), 1 / 3)),
        )
        for way in ways:
            with pytest.raises(ValueError, match="one value per channel"):
                way(torch.randn(6, 4))


def test_pooled_moments_are_those_of_all_values():
    torch.manual_seed(0)
    groups = [torch.randn(n, dtype=torch.double) * n + n for n in (3, 5, 9)]
    members = Moments(
        torch.stack([g.mean() for g in groups]).unsqueeze(1),
        torch.stack([g.var(correction=0) for g in groups]).unsqueeze(1),
    )
    pooled = combine(members, torch.tensor([3.0, 5, 9], dtype=torch.double) / 17)
    values = torch.cat(groups)
    torch.testing.assert_close(pooled.mean, values.mean().view(1))
    torch.testing.assert_close(pooled.var, values.var(correction=0).view(1))


def test_variance_survives_a_large_mean():
    """E[x²] - E[x]² would lose every digit here."""
    x = torch.randn(8, 1, 16, 16, dtype=torch.double)
    layer, ids = DomainBatchNorm(1, 1), torch.zeros(8, dtype=torch.long)
    layer.by_domain((x + 3000).float(), ids, everyone(ids))
    expected = (x + 3000).float().double().var(correction=0)
    torch.testing.assert_close(layer.running_var.double().squeeze(), expected, rtol=1e-5, atol=0)


def test_rows_without_a_domain_or_an_image_are_refused(ids):
    layer = DomainBatchNorm(4, 3)
    layer.name = "stem.bn"
    with pytest.raises(RuntimeError, match=r"'stem\.bn'.*DomainEnsemble"):
        layer(torch.randn(2, 4, 3, 3))
    with pytest.raises(ValueError, match="7 rows for 6 images"):
        layer.by_domain(torch.randn(7, 4), ids)


@pytest.mark.filterwarnings("ignore:var_mean")
def test_an_empty_batch_changes_nothing():
    layer, ids = DomainBatchNorm(4, 3), torch.zeros(0, dtype=torch.long)
    assert layer.by_domain(torch.randn(0, 4, 3, 3), ids, everyone(ids)).shape == (0, 4, 3, 3)
    assert layer.by_instance(torch.randn(0, 4, 3, 3), 0)[0].shape == (0, 4, 3, 3)
    torch.testing.assert_close(layer.running_var, torch.ones(3, 4))


@pytest.mark.parametrize("assign", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_a_state_in_half_precision_leaves_statistics_in_float32(ids, assign, plain):
    given = nn.BatchNorm2d(4) if plain else DomainBatchNorm(4, 3)
    given.running_var.fill_(2)
    state = {name: value.half() for name, value in given.state_dict().items() if value.ndim}
    layer = DomainBatchNorm(4, 3).eval()
    layer.load_state_dict(state, assign=assign, strict=False)
    assert layer.running_mean.dtype == layer.running_var.dtype == torch.float32
    assert (layer.running_var == 2).all()
    assert layer.by_domain(torch.randn(6, 4, 3, 3).half(), ids).isfinite().all()


def test_a_plain_layers_state_loads_into_every_domain_which_counts_its_own_batches():
    plain, layer, other = nn.BatchNorm2d(4), DomainBatchNorm(4, 3), DomainBatchNorm(4, 3)
    plain(torch.randn(6, 4, 3, 3))
    state = plain.state_dict()
    for given in state, {k: v for k, v in state.items() if k != "num_batches_tracked"}:
        layer.num_batches_tracked.fill_(7)
        other.load_state_dict(layer.state_dict())
        assert other.num_batches_tracked.tolist() == [7, 7, 7]
        layer.load_state_dict(given)
        torch.testing.assert_close(layer.running_var, plain.running_var.expand(3, 4))
        assert layer.num_batches_tracked.tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match="size mismatch"):
        layer.load_state_dict(nn.BatchNorm2d(5).state_dict())
