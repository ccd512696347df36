import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bne
from bne import Embedding
from bne.core.distances import get, inverse_weights, names, register, root_wasserstein

LAYERS, CHANNELS = ("one", "two"), (2, 3)


def points(count, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(count, sum(CHANNELS), generator=generator, dtype=dtype)
    var = torch.rand(count, sum(CHANNELS), generator=generator, dtype=dtype) * 3 + 0.01
    return Embedding(mean, var, LAYERS, CHANNELS)


@pytest.mark.parametrize(("distance", "power"), [(bne.wasserstein, 2), (root_wasserstein, 1)])
def test_wasserstein_agrees_with_pot_on_full_covariances(distance, power):
    ot = pytest.importorskip("ot")
    a, b = points(4), points(3, seed=1)
    ours = distance(a, b)
    for i in range(4):
        for k in range(3):
            theirs = sum(
                ot.gaussian.bures_wasserstein_distance(
                    a.mean[i, s], b.mean[k, s], a.var[i, s].diag(), b.var[k, s].diag()
                )
                ** power
                for s in a.slices.values()
            )
            torch.testing.assert_close(ours[i, k], theirs.squeeze(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("distance", [bne.wasserstein, root_wasserstein])
def test_many_points_have_the_distances_of_few(distance):
    """Beyond 64 points a matrix product finds them, far from the origin too."""
    a, b = points(20, dtype=torch.float32), points(300, seed=1, dtype=torch.float32)
    far = [Embedding(e.mean + 100, e.var, LAYERS, CHANNELS) for e in (a, b)]
    parts = zip(far[1].mean.split(60), b.var.split(60), strict=True)
    few = [Embedding(mean, var, LAYERS, CHANNELS) for mean, var in parts]
    exact = torch.cat([distance(far[0], some) for some in few], dim=1)
    torch.testing.assert_close(distance(*far), exact, rtol=1e-4, atol=1e-4)
    assert (distance(far[1], far[1]).diagonal() < 1e-2 * distance(far[1], far[1]).mean()).all()
    mean = far[0].mean.clone().requires_grad_()
    distance(Embedding(mean, a.var, LAYERS, CHANNELS), far[1]).sum().backward()
    assert mean.grad.isfinite().all()


def test_a_thousand_domains_are_never_copied_at_once():
    """Copies of all their statistics would take as much memory as the network itself."""

    class Sizes(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **kwargs or {})
            tensors = [made] if isinstance(made, torch.Tensor) else made
            self.largest = max(self.largest, *(one.numel() for one in tensors))
            return made

    a, b = points(1), points(1000, seed=1)
    with Sizes() as found:
        bne.wasserstein(a, b)
    assert 1000 <= found.largest < b.mean.numel() / 2


def test_bhattacharyya_agrees_with_its_definition():
    """The general formula with matrices, evaluated symbolically."""
    sympy = pytest.importorskip("sympy")
    a, b = points(3), points(2, seed=1)
    ours = bne.bhattacharyya(a, b, eps=1e-5)
    size = sum(CHANNELS)
    means = [sympy.Matrix(sympy.symbols(f"m{side}:{size}")) for side in "ab"]
    variances = [sympy.symbols(f"v{side}:{size}", positive=True) for side in "ab"]
    covariances = [sympy.diag(*v) for v in variances]
    middle = (covariances[0] + covariances[1]) / 2
    difference = means[0] - means[1]
    formula = (difference.T * middle.inv() * difference)[0] / 8 + sympy.log(
        middle.det() / sympy.sqrt(covariances[0].det() * covariances[1].det())
    ) / 2
    for i in range(3):
        for k in range(2):
            values = zip(
                [*means[0], *means[1], *variances[0], *variances[1]],
                [*a.mean[i], *b.mean[k], *(a.var[i] + 1e-5), *(b.var[k] + 1e-5)],
                strict=True,
            )
            expected = float(formula.evalf(30, subs={symbol: float(v) for symbol, v in values}))
            assert ours[i, k].item() == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_bhattacharyya_of_close_points_keeps_its_digits():
    """As the difference of two logarithms it would be noise, and below 0."""
    exact = points(1)
    nearly = Embedding(exact.mean, exact.var * (1 + 1e-3), LAYERS, CHANNELS)
    expected = bne.bhattacharyya(exact, nearly)
    assert expected > 0

    def single(embedding):
        return Embedding(embedding.mean.float(), embedding.var.float(), LAYERS, CHANNELS)

    actual = bne.bhattacharyya(single(exact), single(nearly))
    torch.testing.assert_close(actual.double(), expected, rtol=1e-2, atol=0)


def test_bhattacharyya_has_the_gradient_of_its_definition():
    tensors = [t for p in (points(3), points(2, seed=1)) for t in (p.mean, p.var)]
    mean_a, var_a, mean_b, var_b = (t.requires_grad_() for t in tensors)
    a, b = (Embedding(m, v, LAYERS, CHANNELS) for m, v in ((mean_a, var_a), (mean_b, var_b)))
    one, other = (var_a + 1e-5).unsqueeze(1), var_b + 1e-5
    middle = (one + other) / 2
    apart = (mean_a.unsqueeze(1) - mean_b).square() / middle / 8
    expected = (apart + (middle / (one * other).sqrt()).log() / 2).sum(-1)
    slope = torch.arange(1.0, 7).view(3, 2)
    ours, theirs = (
        torch.autograd.grad((distance * slope).sum(), tensors)
        for distance in (bne.bhattacharyya(a, b, eps=1e-5), expected)
    )
    torch.testing.assert_close(ours, theirs)


def test_uniform_weighs_every_domain_the_same():
    weights = inverse_weights(bne.uniform(points(4), points(3)))
    torch.testing.assert_close(weights, torch.full((4, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("distance", [bne.wasserstein, root_wasserstein, bne.bhattacharyya])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
class TestSafety:
    def test_distance_and_weights_of_degenerate_points(self, distance, dtype):
        """Zero variance, identical points, and points a hair apart."""
        domains = points(3, dtype=dtype)
        domains.var[0] = 0
        mean, var = domains.mean.clone(), domains.var.clone()
        mean[2] += 1e-30
        var[2, 0] = 1e-30
        images = Embedding(mean.requires_grad_(), var.requires_grad_(), LAYERS, CHANNELS)
        distances = distance(images, domains)
        weights = inverse_weights(distances)
        assert (distances >= 0).all()
        torch.testing.assert_close(weights.sum(1), torch.ones(3, dtype=dtype))
        assert weights.argmax(1).tolist() == [0, 1, 2]
        weights.square().sum().backward()
        assert mean.grad.isfinite().all()
        assert var.grad.isfinite().all()

    def test_no_half_precision_under_autocast(self, distance, dtype):
        a, b = points(4, dtype=dtype), points(3, seed=1, dtype=dtype)
        expected = inverse_weights(distance(a, b))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(inverse_weights(distance(a, b)), expected, rtol=0, atol=0)

    def test_only_the_first_points_layers_count(self, distance, dtype):
        a, b = points(4, dtype=dtype), points(3, seed=1, dtype=dtype)
        expected = distance(a.select(["two"]), b.select(["two"]))
        torch.testing.assert_close(distance(a.select(["two"]), b), expected)
        both = expected + distance(a.select(["one"]), b)
        torch.testing.assert_close(distance(a, b), both)


def test_close_points_keep_their_digits():
    """Far from the origin, a matrix product would lose the difference."""
    near = Embedding(torch.full((1, 2), 1000.0), torch.ones(1, 2), ("bn",), (2,))
    far = Embedding(torch.full((1, 2), 1000.001), torch.ones(1, 2), ("bn",), (2,))
    expected = 2 * (far.mean[0, 0] - near.mean[0, 0]).square()
    torch.testing.assert_close(bne.wasserstein(near, far).squeeze(), expected)


def test_weights_are_inverse_distances():
    distances = torch.tensor([[1.0, 2.0, 4.0], [0.0, 1.0, 2.0], [0.0, 0.0, 5.0]])
    expected = torch.tensor([[4 / 7, 2 / 7, 1 / 7], [1, 0, 0], [0.5, 0.5, 0]])
    torch.testing.assert_close(inverse_weights(distances), expected)


def test_registry():
    assert {"wasserstein", "bhattacharyya", "uniform"} <= set(names())
    assert get("wasserstein") is bne.wasserstein
    with pytest.raises(ValueError, match=r"'wasserstien'.*'wasserstein'"):
        get("wasserstien")
    with pytest.raises(ValueError, match="already"):
        register("uniform")(bne.wasserstein)
