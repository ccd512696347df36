import pytest
import torch
from torch import nn

import bne


def network() -> nn.Module:
    torch.manual_seed(0)
    features = (nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(6, 2))


def batches() -> list[tuple[torch.Tensor, torch.Tensor, str]]:
    labels = torch.arange(8) % 2
    images = torch.randn(8, 3, 6, 6) + labels.view(-1, 1, 1, 1)
    return [(images, labels, "ignored")]


@pytest.mark.parametrize("domains", [("all",), ("a", "b")])
def test_the_head_alone_is_fitted_as_the_network_is_used(domains) -> None:
    net = bne.convert(network(), domains, lean=0.5).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    bne.fit_head(net, data := batches(), epochs=1, learning_rate=0.1)
    changed = {name for name, value in net.state_dict().items() if not value.equal(before[name])}
    assert changed == {"model.5.weight", "model.5.bias"}
    assert net.training
    assert all(parameter.requires_grad for parameter in net.parameters())

    # By hand: Adam on the loss of a network that leans, or does not.
    (images, labels, _), net = data[0], net.eval()
    head, found = net.get_submodule("model.5"), {}
    for lean in (0, 0.5):
        net.load_state_dict(before)
        net.lean, optimizer = lean, torch.optim.Adam(head.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        found[lean] = head.weight.detach().clone()
    net.load_state_dict(before)
    bne.fit_head(net, data, epochs=3, learning_rate=0.1)
    assert net.lean == 0.5
    torch.testing.assert_close(head.weight, found[0.5])
    assert not torch.allclose(head.weight, found[0], rtol=1e-2)


def test_every_step_sees_the_head_of_the_step_before_under_autocast() -> None:
    """Autocast keeps a layer's weights in half precision for as long as it lasts."""
    losses = []
    for enabled in (False, True):
        net, data = bne.convert(network()), batches()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            bne.fit_head(net, data, epochs=20, learning_rate=0.1)
            loss = nn.functional.cross_entropy(net.eval()(data[0][0]).float(), data[0][1])
        losses.append(float(loss))
    assert losses[0] < 0.4
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_bad_input_is_refused_and_nothing_stays_frozen() -> None:
    net = bne.convert(network())
    for arguments, words in [
        ((net, iter(batches())), "only once"),
        ((net, []), "no images"),
        ((bne.convert(nn.Sequential(nn.BatchNorm2d(3))), batches()), "no linear layer"),
    ]:
        with pytest.raises(ValueError, match=words):
            bne.fit_head(*arguments)
        assert all(parameter.requires_grad for parameter in arguments[0].parameters())
    with pytest.raises(ValueError, match="no layer"):
        bne.fit_head(net, batches(), head="elsewhere")
    with pytest.raises(TypeError, match=r"only what bne\.convert made"):
        bne.fit_head(network(), batches())
