import pytest
import torch
import torch.nn.functional as F

from bne.methods import MixStyle
from bne.methods.mixstyle import mixed
from tests.networks import DOMAINS, randomise_norms, small_cnn


def by_hand(x, partners, share):
    """Channel by channel."""
    y = torch.empty_like(x)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            own, other = x[n, c], x[partners[n], c]
            mean = share[n] * own.mean() + (1 - share[n]) * other.mean()
            std = (
                share[n] * (own.var() + 1e-6).sqrt() + (1 - share[n]) * (other.var() + 1e-6).sqrt()
            )
            y[n, c] = (own - own.mean()) / (own.var() + 1e-6).sqrt() * std + mean
    return y


def test_statistics_are_mixed() -> None:
    x = torch.randn(5, 4, 6, 7, dtype=torch.double) * 3 + 1
    partners, share = torch.randperm(5), torch.rand(5, dtype=torch.double)
    torch.testing.assert_close(mixed(x, partners, share), by_hand(x, partners, share))
    torch.testing.assert_close(mixed(x, partners, torch.ones(5)), x)
    x.requires_grad_()
    mixed(x, partners, share).sum().backward()
    assert (x.grad.amax((2, 3)) == x.grad.amin((2, 3))).all()  # the statistics pass no gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_features_that_are_not_mixed_stay_as_they_are_in_half_precision(dtype) -> None:
    x = (torch.randn(5, 4, 16, 16) * 300 + 100).to(dtype)
    assert torch.equal(mixed(x, torch.randperm(5), torch.ones(5)), x)


def test_the_loss_by_hand(batch) -> None:
    images, labels, domains = batch
    model = randomise_norms(small_cnn()).double()
    method = MixStyle(model, DOMAINS, probability=1.0, layers=["2", "4"]).train()
    torch.manual_seed(5)
    loss = method(images.double(), labels, domains)
    torch.manual_seed(5)
    x = by_hand(model[:3](images.double()), *method.styles.draw(domains, images.device))
    x = by_hand(model[3:5](x), *method.styles.draw(domains, images.device))
    torch.testing.assert_close(loss, F.cross_entropy(model[5:](x), labels))


def test_what_is_drawn() -> None:
    domains = torch.tensor([0, 0, 1, 2, 2, 2])
    method = MixStyle(small_cnn(), DOMAINS, alpha=0.4, probability=0.3)
    draws = [method.styles.draw(domains, domains.device) for _ in range(2000)]
    assert all(sorted(partners.tolist()) == list(range(6)) for partners, _ in draws[:20])
    mixing = torch.stack([share for _, share in draws if not share.eq(1).all()])
    assert len(mixing) / 2000 == pytest.approx(0.3, abs=0.04)
    variance = 1 / (4 * (2 * 0.4 + 1))  # of the Beta distribution
    assert mixing.mean().item() == pytest.approx(0.5, abs=0.03)
    assert mixing.var().item() == pytest.approx(variance, abs=0.01)
    method = MixStyle(small_cnn(), DOMAINS, partners="other domain")
    inside = MixStyle(small_cnn(), DOMAINS, partners="own domain")
    for _ in range(20):
        partners, _ = method.styles.draw(domains, domains.device)
        assert (domains[partners] != domains).all()
        partners, _ = inside.styles.draw(domains, domains.device)
        assert (domains[partners] == domains).all()


def test_the_last_stage_is_left_out() -> None:
    assert MixStyle(small_cnn(), DOMAINS).styles.layers == ["0"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("probability", 2), ("alpha", 0), ("partners", "same"), ("layers", ["layer9"])],
)
def test_impossible_options_are_refused(option, value) -> None:
    with pytest.raises(ValueError, match=option):
        MixStyle(small_cnn(), DOMAINS, **{option: value})
