import pytest
import torch

from bne import Embedding
from bne.core.moments import Moments


@pytest.fixture
def moments():
    torch.manual_seed(0)
    return {
        "stem": Moments(torch.randn(5, 3), torch.rand(5, 3)),
        "body.bn": Moments(torch.randn(5, 4), torch.rand(5, 4)),
        "last": Moments(torch.randn(5, 2), torch.rand(5, 2)),
    }


def test_layers_are_stacked_in_order(moments):
    embedding = Embedding.stack(moments)
    assert embedding.layers == ("stem", "body.bn", "last")
    assert embedding.channels == (3, 4, 2)
    assert len(embedding) == 5
    assert embedding.mean.shape == embedding.var.shape == (5, 9)
    for name, piece in embedding.slices.items():
        torch.testing.assert_close(embedding.mean[:, piece], moments[name].mean)
        torch.testing.assert_close(embedding.var[:, piece], moments[name].var)


def test_select_takes_layers_in_the_order_given(moments):
    selected = Embedding.stack(moments).select(["last", "stem"])
    assert selected.layers == ("last", "stem")
    torch.testing.assert_close(selected.mean[:, :2], moments["last"].mean)
    torch.testing.assert_close(selected.var[:, 2:], moments["stem"].var)


def test_select_names_what_there_is(moments):
    with pytest.raises(ValueError, match=r"no layer \['boddy'\].*'body\.bn'"):
        Embedding.stack(moments).select(["boddy"])


def test_cat_joins_points(moments):
    whole = Embedding.stack(moments)
    parts = [
        Embedding(whole.mean[rows], whole.var[rows], whole.layers, whole.channels)
        for rows in (slice(0, 2), slice(2, 5))
    ]
    torch.testing.assert_close(Embedding.cat(parts).var, whole.var)


def test_no_layer_is_an_error():
    with pytest.raises(ValueError, match="no layer"):
        Embedding.stack({})


def test_std_of_no_variance_has_a_finite_gradient():
    var = torch.tensor([[0.0, 4.0]], requires_grad=True)
    std = Embedding(torch.zeros(1, 2), var, ("bn",), (2,)).std
    torch.testing.assert_close(std.detach(), torch.tensor([[0.0, 2.0]]))
    std.sum().backward()
    torch.testing.assert_close(var.grad, torch.tensor([[0.0, 0.25]]))
