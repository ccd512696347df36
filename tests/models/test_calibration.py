import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from bne import models
from bne.errors import DataError
from bne.models import calibrate_batch_norm


def norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    model = resnet18(num_classes=3)
    for norm in norms(model):
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
    return model


@pytest.fixture
def images() -> Tensor:
    return 3 * torch.randn(12, 3, 64, 64, generator=torch.Generator().manual_seed(1)) + 1


def outputs(model: nn.Module, images: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    # Cloned at once: the ReLU that follows overwrites it.
    hooks = [m.register_forward_hook(lambda *a: found.append(a[2].clone())) for m in norms(model)]
    with torch.no_grad():
        model.eval()(images)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("sizes", [[12], [1, 5, 6]])
def test_every_layer_standardises_the_images(model, images, sizes: list[int]) -> None:
    calibrate_batch_norm(model, images.split(sizes))
    found = outputs(model, images)
    assert len(found) == 20
    for output in found:
        variance, mean = torch.var_mean(output, dim=(0, 2, 3), correction=0)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-4)
        torch.testing.assert_close(variance, torch.ones_like(variance), rtol=0, atol=1e-3)


def test_measures_what_pytorch_measures_in_training(model: nn.Module, images: Tensor) -> None:
    calibrate_batch_norm(model, images)
    measured = [(norm.running_mean.clone(), norm.running_var.clone()) for norm in norms(model)]
    counts = [output[:, 0].numel() for output in outputs(model, images)]
    for norm in norms(model):
        norm.momentum = 1.0
    model.train()(images)
    for norm, count, (mean, variance) in zip(norms(model), counts, measured, strict=True):
        torch.testing.assert_close(mean, norm.running_mean, rtol=1e-3, atol=1e-4)
        biased = norm.running_var * (count - 1) / count
        torch.testing.assert_close(variance, biased, rtol=1e-3, atol=1e-6)


def test_alexnet_bn_starts_from_its_own_statistics(images: Tensor) -> None:
    model = models.build("alexnet_bn", num_classes=3)
    calibrate_batch_norm(model, images[:4])
    for output in outputs(model, images[:4]):
        variance, mean = torch.var_mean(output, dim=(0, 2, 3), correction=0)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-3)
        # eps beside a small variance
        torch.testing.assert_close(variance, torch.ones_like(variance), rtol=0, atol=0.05)


def test_modes_and_other_weights_stay(model: nn.Module, images: Tensor) -> None:
    model.train()
    model.layer1.eval()
    modes = [module.training for module in model.modules()]
    weights = {name: p.clone() for name, p in model.named_parameters() if p.ndim > 1}
    calibrate_batch_norm(model, images)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(dict(model.named_parameters())[n], p) for n, p in weights.items())
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms(model))
    assert all(norm.weight.requires_grad for norm in norms(model))


def test_layers_without_scale_or_statistics(images: Tensor) -> None:
    plain = nn.BatchNorm2d(3, affine=False)
    untracked = nn.BatchNorm2d(3, track_running_stats=False)
    calibrate_batch_norm(nn.Sequential(untracked, plain), images)
    assert plain.running_var.sub(1).abs().max() < 1e-3
    assert untracked.running_mean is None


def test_images_must_be_there_for_every_layer(model: nn.Module, images: Tensor) -> None:
    with pytest.raises(TypeError, match="pass a list"):
        calibrate_batch_norm(model, iter([images]))
    with pytest.raises(DataError, match="no images"):
        calibrate_batch_norm(model, [])
