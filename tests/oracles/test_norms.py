"""The layer against PyTorch's own norms and timm's split batch norm."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bne import DomainBatchNorm

BATCH_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE_NORMS = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
DTYPES = [torch.float32, torch.float64]


def close(actual, expected):
    # Two near values divided by their own spread lose digits: float64 is where exactness shows.
    tolerance = 2e-4 if expected.dtype == torch.float32 else 1e-9
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@torch.no_grad()
def randomised(layer, seed):
    """Statistics and affine parameters that no default could match."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.normal_(1, 0.5, generator=generator)
    layer.running_mean.normal_(generator=generator)
    layer.running_var.uniform_(0.5, 2, generator=generator)
    return layer


def share_affine(layer, other):
    if layer.affine:
        other.weight, other.bias = layer.weight, layer.bias
    return other


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_instance_pass_is_instance_norm(dims, affine, dtype):
    torch.manual_seed(dims)
    layer = randomised(DomainBatchNorm(4, 3, affine=affine).to(dtype), seed=dims)
    theirs = share_affine(layer, INSTANCE_NORMS[dims](4, affine=affine).to(dtype))
    x = torch.randn(6, 4, *(5, 3, 7)[:dims], dtype=dtype, requires_grad=True)
    ours, moments = layer.by_instance(x, 6)
    close(ours, theirs(x))
    dims_ = tuple(range(2, x.ndim))
    close(moments.mean, x.mean(dims_))
    close(moments.var, x.var(dims_, correction=0))
    upstream = torch.randn_like(x)
    (mine,) = torch.autograd.grad((ours * upstream).sum(), x)
    (other,) = torch.autograd.grad((theirs(x) * upstream).sum(), x)
    close(mine, other)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=8).filter(any),
    spatial=st.lists(st.sampled_from([1, 2, 3, 5, 7]), min_size=0, max_size=3),
    dtype=st.sampled_from(DTYPES),
    affine=st.booleans(),
    momentum=st.sampled_from([0.01, 0.1, None]),
    seed=st.integers(0, 2**16),
)
def test_each_domain_is_normalised_as_its_batch_alone(
    sizes, spatial, dtype, affine, momentum, seed
):
    """Every domain against a `BatchNorm` of its own that sees only its images."""
    generator = torch.Generator().manual_seed(seed)
    layer = DomainBatchNorm(3, len(sizes), affine=affine, momentum=momentum).to(dtype)
    randomised(layer, seed)
    seen = 0 if momentum is None else 1000
    layer.num_batches_tracked.fill_(seen)
    before = layer.running_mean.clone(), layer.running_var.clone()
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    ids = ids[torch.randperm(len(ids), generator=generator)]
    x = torch.randn(len(ids), 3, *spatial, dtype=dtype, generator=generator).requires_grad_()
    upstream = torch.randn(x.shape, dtype=dtype, generator=generator)

    for _ in range(2):  # the second time, momentum None averages
        ours = layer.by_domain(x, ids, torch.ones_like(ids, dtype=torch.bool))
    (gradient,) = torch.autograd.grad((ours * upstream).sum(), x)

    for d in range(len(sizes)):
        own = ids == d
        values = x[own][:, 0].numel()
        plain = BATCH_NORMS[max(1, len(spatial))](3, affine=affine, momentum=momentum).to(dtype)
        share_affine(layer, plain)
        plain.running_mean.copy_(before[0][d])
        plain.running_var.copy_(before[1][d])
        if values < 2:  # PyTorch refuses: population statistics, which stay as they were
            plain.eval()
        if own.any():
            mine = x.detach()[own].requires_grad_()
            for _ in range(2):
                theirs = plain(mine)
            close(ours[own], theirs)
            (expected,) = torch.autograd.grad((theirs * upstream[own]).sum(), mine)
            if dtype == torch.float64:
                close(gradient[own], expected)
        close(layer.running_mean[d], plain.running_mean)
        if values < 2:
            close(layer.running_var[d], before[1][d])
        else:  # PyTorch stores the unbiased variance
            step = 1 if momentum is None else 1 - (1 - momentum) ** 2
            biased = x[own].transpose(0, 1).flatten(1).var(1, correction=0)
            close(layer.running_var[d], torch.lerp(before[1][d], biased, step))
            unbiased = biased * values / (values - 1)
            close(plain.running_var, torch.lerp(before[1][d], unbiased, step))
        assert layer.num_batches_tracked[d] == seen + (2 if values > 1 else 0)


@pytest.mark.parametrize("momentum", [0.1, 1.0, None])
def test_running_statistics_average_all_batches_before_they_follow(momentum):
    """Against torch's average of all batches, turned into its exponential one after 1/momentum."""
    torch.manual_seed(0)
    layer = randomised(DomainBatchNorm(3, 2, momentum=momentum), seed=0)
    plains = [nn.BatchNorm2d(3, momentum=None) for _ in range(2)]
    for n in range(1, 16):
        x, ids = torch.randn(8, 3, 4, 4) * n + n, torch.tensor([0, 0, 0, 0, 0, 0, 0, n % 3 == 0])
        layer.by_domain(x, ids, torch.ones_like(ids, dtype=torch.bool))
        for d in ids.unique():
            if momentum and plains[d].num_batches_tracked >= 1 / momentum:
                plains[d].momentum = momentum
            plains[d](x[ids == d])
            close(layer.running_mean[d], plains[d].running_mean)
            biased = plains[d].running_var * (1 - 1 / x[ids == d][:, 0].numel())
            if n < 3:
                close(layer.running_var[d], biased)
    assert layer.num_batches_tracked.tolist() == [15, 5]


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 4), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    training=st.booleans(),
    middle=st.sampled_from([0, 1, 20]),
    seed=st.integers(0, 2**16),
)
def test_half_precision_is_float32_rounded(sizes, dtype, training, middle, seed):
    """Every domain against a `BatchNorm` in float32 that is given the same rounded values."""
    layer = randomised(DomainBatchNorm(3, len(sizes)), seed).train(training)
    layer.num_batches_tracked.fill_(1000)
    before = layer.running_mean.clone(), layer.running_var.clone()
    ids = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    x = torch.randn(len(ids), 3, 4, 5, generator=torch.Generator().manual_seed(seed)) + middle
    x = x.to(dtype)
    ours = layer.by_domain(x, ids, torch.ones_like(ids, dtype=torch.bool))
    assert ours.dtype == dtype
    rounding = torch.finfo(dtype).eps
    for d in range(len(sizes)):
        plain = share_affine(layer, nn.BatchNorm2d(3, momentum=0.01)).train(training)
        plain.running_mean.copy_(before[0][d])
        plain.running_var.copy_(before[1][d])
        theirs = plain(x[ids == d].float())
        torch.testing.assert_close(ours[ids == d].float(), theirs, rtol=rounding, atol=1e-4)
        close(layer.running_mean[d], plain.running_mean)


@pytest.mark.parametrize("dtype", DTYPES)
def test_evaluation_uses_population_statistics(dtype):
    torch.manual_seed(0)
    layer = randomised(DomainBatchNorm(3, 4).to(dtype), seed=0).eval()
    x, ids = torch.randn(9, 3, 5, 3, dtype=dtype), torch.tensor([3, 1, 0, 2, 2, 3, 0, 0, 1])
    ours = layer.by_domain(x, ids, torch.ones_like(ids, dtype=torch.bool))
    for d in range(4):
        plain = share_affine(layer, nn.BatchNorm2d(3).to(dtype)).eval()
        plain.running_mean.copy_(layer.running_mean[d])
        plain.running_var.copy_(layer.running_var[d])
        close(ours[ids == d], plain(x[ids == d]))


def test_training_agrees_with_split_batch_norm():
    """timm's split batch norm treats equal parts of a batch as domains do, in training."""
    convert_splitbn_model = pytest.importorskip("timm.layers").convert_splitbn_model
    torch.manual_seed(0)
    layer = DomainBatchNorm(3, 4, momentum=0.1)
    layer.num_batches_tracked.fill_(1000)
    split = convert_splitbn_model(nn.Sequential(nn.BatchNorm2d(3)), num_splits=4)[0]
    x = torch.randn(4 * 5, 3, 6, 6) * 3 + 1
    ids = torch.arange(4).repeat_interleave(5)
    close(layer.by_domain(x, ids, torch.ones_like(ids, dtype=torch.bool)), split(x))
    for d, theirs in enumerate([split, *split.aux_bn]):
        close(layer.running_mean[d], theirs.running_mean)
        bias = 0.1 * (theirs.running_var - 0.9) / 0.1 / (5 * 6 * 6)
        close(layer.running_var[d], theirs.running_var - bias)
