"""The GPU kernels against the plain layer in float64; without a GPU, in Triton's interpreter."""

import copy

import pytest
import torch

from bne.core.kernels import kernels_for
from bne.core.moments import Moments
from bne.core.norm import DomainBatchNorm
from tests.devices import DEVICE, needs_gpu, needs_kernels

kernels = pytest.importorskip("bne.core.kernels.layers")
blending = pytest.importorskip("bne.core.kernels.blending")

K = 3
SHAPES = {
    "several chunks of positions": ((4, 3, 40, 41), torch.channels_last),
    "several tiles of channels": ((6, 70, 5, 7), torch.channels_last),
    "channels first": ((6, 5, 7, 9), torch.contiguous_format),
    "tokens": ((5, 4, 30), torch.contiguous_format),
    "volumes": ((5, 4, 3, 4, 5), torch.contiguous_format),
    "one row": ((1, 8, 5, 5), torch.channels_last),
    "one channel": ((4, 1, 5, 5), torch.channels_last),
}
HALVES = [torch.float16, torch.bfloat16]

pytestmark = [
    needs_kernels,
    pytest.mark.filterwarnings("ignore:(invalid value|divide by zero|overflow):RuntimeWarning"),
]


class Case:
    """The same layer and input twice: in float64 for the plain form, and as the kernels get it."""

    def __init__(self, shape, layout, dtype=torch.float32, affine=True):
        torch.manual_seed(0)
        rows, channels = shape[:2]
        self.layer = DomainBatchNorm(channels, K, affine=affine).double()
        for tensor in self.layer.parameters():
            torch.nn.init.normal_(tensor)
        self.layer.running_mean.normal_()
        self.layer.running_var.uniform_(0.5, 2)
        self.x = (torch.randn(shape) * 2 + 3).to(dtype).contiguous(memory_format=layout)
        self.reference = self.x.double().requires_grad_()
        self.input = self.x.to(DEVICE).requires_grad_()
        self.affine = tuple(
            None if t is None else t.detach().float().to(DEVICE).requires_grad_()
            for t in (self.layer.weight, self.layer.bias)
        )
        self.seen = torch.full((K,), 1000, device=DEVICE)  # past the start
        self.layer.num_batches_tracked.copy_(self.seen)
        self.population = Moments(*(s.float().to(DEVICE) for s in self.layer.population))
        self.domains = torch.randint(K, (rows,))
        self.members = torch.rand(rows) > 0.4
        self.members[0] = True
        self.slope = torch.randn(shape).to(dtype)
        self.shares = []
        half = dtype != torch.float32
        self.near = {"rtol": 2e-2, "atol": 6e-2} if half else {"rtol": 2e-4, "atol": 2e-4}
        self.sums_near = {"rtol": 3e-2, "atol": 0.5} if half else {"rtol": 1e-3, "atol": 1e-3}

    def by_batch(self):
        expected = self.layer.train().by_domain(self.reference, self.domains, self.members)
        where = self.domains.to(DEVICE), self.members.to(DEVICE)
        return expected, kernels.by_batch(
            self.input, self.affine, *where, self.population, K, self.seen, 0.01, self.layer.eps
        )

    def by_population(self):
        expected = self.layer.eval().by_domain(self.reference, self.domains)
        return expected, kernels.by_population(
            self.input, self.affine, self.domains.to(DEVICE), self.population, self.layer.eps
        )

    def by_instance(self):
        expected, moments = self.layer.by_instance(self.reference, len(self.x))
        y, mean, var = kernels.by_instance(self.input, self.affine, self.layer.eps)
        for ours, theirs in zip((mean, var), moments, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs.float(), rtol=1e-4, atol=1e-5)
        return (expected, *moments), (y, mean, var)

    def by_lean(self, of_rows=False):
        """In evaluation; given the domains' statistics, or the same as the rows'."""
        self.layer.eval().lean(0.3)
        self.layer.eps = 0.1  # large enough to be missed
        where, known = self.domains.to(DEVICE), self.population
        if of_rows:
            where, known = None, [statistic[where] for statistic in known]
        share = self.layer.share.to(DEVICE)
        expected = self.layer.by_domain(self.reference, self.domains)
        return expected, kernels.by_lean(
            self.input.detach(), self.affine, where, known, share, self.layer.eps
        )

    def by_blend(self, learned=True):
        """In training; every second row does not lean."""
        self.layer.eps = 0.1
        shares = torch.rand(len(self.x)) * (torch.arange(len(self.x)) % 2)
        if learned:
            self.shares = [shares.double().requires_grad_(), shares.to(DEVICE).requires_grad_()]
        else:
            self.shares = [shares.double(), shares.to(DEVICE)]
        expected = self.layer.train().by_domain(
            self.reference, self.domains, self.members, shares=self.shares[0]
        )
        where = self.domains.to(DEVICE), self.members.to(DEVICE)
        affine = tuple(None if t is None else t.unsqueeze(0) for t in self.affine)
        y, _, _ = blending.by_blend(
            self.input, self.shares[1], affine, *where, self.population, self.layer.eps,
            leaning=True,
        )  # fmt: skip
        return expected, y

    def compare(self, expected, actual, through=lambda y, slope: (y.double() * slope).sum()):
        """Compares outputs, then gradients of `through(output, slope)`."""
        first = expected[0] if isinstance(expected, tuple) else expected
        y = actual[0] if isinstance(actual, tuple) else actual
        assert y.dtype == self.x.dtype
        assert y.stride() == self.x.stride()
        torch.testing.assert_close(y.cpu().float(), first.float(), **self.near)
        through(expected, self.slope).backward()
        through(actual, self.slope.to(DEVICE)).backward()
        gradient = self.input.grad.cpu().float()
        torch.testing.assert_close(gradient, self.reference.grad.float(), **self.near)
        for ours, theirs in zip(self.affine, (self.layer.weight, self.layer.bias), strict=True):
            if ours is not None:
                torch.testing.assert_close(ours.grad.cpu(), theirs.grad.float(), **self.sums_near)
        if self.shares and self.shares[1].requires_grad:
            theirs, ours = (shares.grad.float().cpu() for shares in self.shares)
            torch.testing.assert_close(ours, theirs, **self.sums_near)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def case(request):
    return Case(*request.param)


def test_batch_statistics(case):
    case.compare(*case.by_batch())
    kept = (*case.layer.population, case.layer.num_batches_tracked)
    for ours, theirs in zip((*case.population, case.seen), kept, strict=True):
        torch.testing.assert_close(ours.cpu().float(), theirs.float(), rtol=1e-4, atol=1e-5)


def test_population_statistics(case):
    case.compare(*case.by_population())


def check_lean(case, of_rows):
    expected, y = case.by_lean(of_rows)
    assert (y.dtype, y.stride()) == (case.x.dtype, case.x.stride())
    torch.testing.assert_close(y.cpu().float(), expected.float(), **case.near)


@pytest.mark.parametrize("of_rows", [False, True])
def test_leaning_in_evaluation(case, of_rows):
    check_lean(case, of_rows)


@pytest.mark.parametrize("dtype", HALVES)
def test_leaning_in_evaluation_in_half_precision(dtype):
    check_lean(Case((4, 5, 12, 13), torch.channels_last, dtype), of_rows=False)


def test_leaning_keeps_the_variance_of_a_large_mean_and_a_channel_without_any():
    case = Case((4, 5, 6, 7), torch.contiguous_format)
    with torch.no_grad():
        case.input += 1000
        case.input[0, 0] = 0.1
        case.reference.copy_(case.input)
    case.near = {"rtol": 1e-3, "atol": 1e-3}
    check_lean(case, of_rows=False)


def test_leaning_in_training(case):
    case.compare(*case.by_blend())


def test_leaning_in_training_by_constant_shares():
    case = Case((6, 70, 5, 7), torch.channels_last)
    case.compare(*case.by_blend(learned=False))


def test_leaning_in_training_under_a_domain_without_members():
    case = Case((70, 5, 2, 3), torch.channels_last)  # rows in two tiles
    case.members = case.domains != case.domains[1]
    case.compare(*case.by_blend())


def test_a_layer_that_leans_by_them_gives_and_tracks_what_the_plain_one_does(monkeypatch):
    case = Case((6, 5, 7, 9), torch.channels_last)
    case.members = case.domains != case.domains[1]
    plain, layer = case.layer.train(), copy.deepcopy(case.layer).float().to(DEVICE)
    for each in (plain, layer):
        each.lean(0.3)
    shares = torch.rand(6)
    expected = [plain.by_domain(case.reference, case.domains, case.members, shares=shares)]
    before = copy.deepcopy(layer)
    used = []
    monkeypatch.setattr("bne.core.norm.kernels_for", lambda _: used.append(1) or kernels)
    where = case.domains.to(DEVICE), case.members.to(DEVICE)
    ours = [layer.by_domain(case.input, *where, shares=shares.to(DEVICE))]
    assert before.running_mean[case.domains[1]].equal(layer.running_mean[case.domains[1]])
    assert not before.running_mean.equal(layer.running_mean)
    layer.eval()
    with torch.no_grad():
        ours += [layer.by_domain(case.input, where[0]), layer.by_centre(case.input, 6)]
    monkeypatch.undo()
    assert len(used) == 3
    plain.eval()
    expected += [plain.by_domain(case.reference, case.domains), plain.by_centre(case.reference, 6)]
    for one, other in zip((*ours, *layer.buffers()), (*expected, *plain.buffers()), strict=True):
        torch.testing.assert_close(one.detach().cpu().double(), other.double(), **case.near)


def _of_all(outputs, slope):
    y, mean, var = outputs
    spread = slope.flatten(2).mean(2)
    return (y.double() * slope).sum() + (mean * spread).sum() + (var.sqrt() * spread).sum()


def test_instance_statistics_carry_the_embeddings_gradient(case):
    case.compare(*case.by_instance(), through=_of_all)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("way", ["by_batch", "by_population", "by_instance", "by_blend"])
def test_half_precision(dtype, way):
    case = Case((4, 5, 12, 13), torch.channels_last, dtype)
    through = {"through": _of_all} if way == "by_instance" else {}
    case.compare(*getattr(case, way)(), **through)


@pytest.mark.parametrize("way", ["by_batch", "by_population", "by_blend"])
def test_without_affine_parameters(way):
    case = Case((4, 5, 6, 7), torch.channels_last, affine=False)
    case.compare(*getattr(case, way)())


@pytest.mark.parametrize("way", ["by_batch", "by_population", "by_blend"])
def test_a_bias_without_a_weight(way):
    case = Case((4, 5, 6, 7), torch.channels_last)
    case.layer.weight = None
    case.affine = (None, case.affine[1])
    case.compare(*getattr(case, way)())


def test_statistics_updated_before_the_backward():
    case = Case((4, 5, 6, 7), torch.channels_last)
    expected, y = case.by_population()
    where = case.domains.to(DEVICE), torch.ones(4, dtype=torch.bool, device=DEVICE)
    kernels.by_batch(
        case.input.detach(), case.affine, *where, case.population, K, case.seen, 0.5, case.layer.eps
    )
    case.compare(expected, y)


def test_second_derivatives_are_refused():
    case = Case((4, 5, 6, 7), torch.channels_last)
    y, _, _ = kernels.by_instance(case.input, case.affine, case.layer.eps)
    (first,) = torch.autograd.grad(y.square().sum(), case.input, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


def test_without_population_a_domain_without_members_is_that_of_a_fresh_layer():
    case = Case(*SHAPES["channels first"])
    case.members = case.domains != case.domains[1]
    case.layer.running_mean = case.layer.running_var = case.population = None
    case.compare(*case.by_batch())


def test_a_domain_without_members_keeps_its_population():
    case = Case((6, 5, 7, 9), torch.channels_last)
    case.members[case.domains == case.domains[1]] = False
    before = case.population.mean[case.domains[1]].clone()
    case.compare(*case.by_batch())
    assert torch.equal(case.population.mean[case.domains[1]], before)


@pytest.fixture
def single():
    """A domain of two values a channel, one of a single value, and one of none, all with guests."""
    case = Case((6, 5, 1, 1), torch.channels_last)
    case.domains = torch.tensor([0, 0, 0, 1, 1, 2])
    case.members = torch.tensor([True, True, False, True, False, False])
    return case


def test_a_domain_of_one_value_keeps_its_population(single):
    before = single.population.var[1].clone()
    single.compare(*single.by_batch())
    assert torch.equal(single.population.var[1], before)


def test_without_population_a_domain_of_one_value_has_a_fresh_layers_statistics(single):
    single.layer.running_mean = single.layer.running_var = single.population = None
    single.compare(*single.by_batch())


def test_what_is_not_tracked_stays_even_beside_infinite_values():
    case = Case((6, 5, 4, 4), torch.contiguous_format)
    before = copy.deepcopy(case.population)
    x, domains = case.input.detach().clone(), case.domains.to(DEVICE)
    x[0] = torch.inf
    kernels.by_batch(
        x, (None, None), domains, case.members.to(DEVICE), case.population, K, None, 0.5, 1e-5
    )
    for kept, was in zip(case.population, before, strict=True):
        assert torch.equal(kept, was)


def test_a_layer_that_uses_them_tracks_what_the_plain_one_does(single, monkeypatch):
    plain, layer = single.layer, copy.deepcopy(single.layer).float().to(DEVICE)
    plain.by_domain(single.reference, single.domains, single.members)
    monkeypatch.setattr("bne.core.norm.kernels_for", lambda samples: kernels)
    layer.by_domain(single.input, single.domains.to(DEVICE), single.members.to(DEVICE))
    assert plain.num_batches_tracked.tolist() == [1001, 1000, 1000]
    for ours, theirs in zip(layer.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.4, None])
def test_running_statistics_start_and_stay_as_the_plain_layers(monkeypatch, momentum):
    """The average of all batches at first; nothing of a batch that is infinite in one channel."""
    torch.manual_seed(0)
    channels = 14
    monkeypatch.setattr(kernels, "TRACKED", 8)  # fewer at once than there are
    plain = DomainBatchNorm(channels, K, momentum=momentum)
    plain.running_var.fill_(1e6)  # beside which the new ones must keep their digits
    layer = copy.deepcopy(plain).to(DEVICE)
    where = torch.arange(6) % K, torch.ones(6, dtype=torch.bool)
    batches = torch.randn(7, 6, channels, 2, 2)
    batches[1::2, 1, channels - 3, 1, 1] = torch.tensor([torch.nan, -torch.inf, 1e25])
    for x in batches:
        plain.by_domain(x, *where)
    monkeypatch.setattr("bne.core.norm.kernels_for", lambda samples: kernels)
    for x in batches.to(DEVICE):
        layer.by_domain(x, *(each.to(DEVICE) for each in where))
    assert plain.num_batches_tracked.tolist() == [7, 4, 7]
    for ours, theirs in zip(layer.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


def test_variance_survives_a_large_mean():
    x = torch.randn(2, 4, 8, 8, device=DEVICE) + 1000
    _, _, var = kernels.by_instance(x, (None, None), 1e-5)
    expected = x.double().var((2, 3), correction=0)
    torch.testing.assert_close(var.double(), expected, rtol=1e-3, atol=0)


def test_a_constant_channel_has_no_variance_and_finite_gradients():
    x = torch.full((2, 4, 8, 8), 0.1, device=DEVICE, requires_grad=True)
    y, _, var = kernels.by_instance(x, (None, None), 1e-5)
    y.square().sum().backward()
    assert not var.any()
    assert x.grad.isfinite().all()


def test_rounding_makes_no_negative_variance(monkeypatch):
    """Equal values, all but the one they are measured from, so many that sums lose digits."""
    monkeypatch.setattr(kernels, "PROGRAMS", 1)  # one for all of them
    monkeypatch.setattr(kernels, "TILE", 1024)
    x = torch.full((1, 1, 512, 512), 1935.36, device=DEVICE)
    x[..., 0, 0] = 0
    y, _, var = kernels.by_instance(x, (None, None), 1e-5)
    assert (var >= 0).all()
    assert y.isfinite().all()


def test_activations_with_gaps_are_accepted():
    wide = torch.randn(3, 4, 8, 16, device=DEVICE)
    y, _, _ = kernels.by_instance(wide[..., ::2], (None, None), 1e-5)
    expected, _, _ = kernels.by_instance(wide[..., ::2].contiguous(), (None, None), 1e-5)
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("way", ["by_batch", "by_population", "by_blend"])
def test_domains_with_gaps_are_accepted(way):
    case = Case(*SHAPES["channels first"])
    case.domains = torch.stack((case.domains, 1000 + case.domains), 1)[:, 0]
    case.members = torch.stack((case.members, ~case.members), 1)[:, 0]
    case.compare(*getattr(case, way)())


@needs_gpu
def test_a_layer_on_a_gpu_uses_them():
    layer = DomainBatchNorm(4, K).cuda()
    images = torch.randn(6, 1, 4, 8, 8, device="cuda")
    assert kernels_for(images) is kernels
    assert kernels_for(images.double()) is None
    assert kernels_for(images.cpu()) is None
    with torch.no_grad():
        assert kernels_for(images) is None  # too few to be worth a launch
        assert kernels_for(torch.empty(64, 1, 64, 32, 32, device="cuda")) is kernels
    ids = torch.arange(6, device="cuda") % K
    layer.by_domain(images.squeeze(1), ids, torch.ones(6, dtype=torch.bool, device="cuda"))
    assert layer.num_batches_tracked.tolist() == [1, 1, 1]
