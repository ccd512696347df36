"""Small networks for tests."""

import torch
from torch import nn

import bne

DOMAINS = ["art", "cartoon", "photo"]


def small_cnn(classes: int = 4) -> nn.Sequential:
    """Two convolutions, each with batch norm, and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


@torch.no_grad()
def randomise_norms(model: nn.Module, seed: int = 0) -> nn.Module:
    """Gives every batch norm, plain or domain-aware, statistics and parameters of its own."""
    torch.manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | bne.DomainBatchNorm):
            if module.weight is not None:
                module.weight.uniform_(0.5, 1.5)
            if module.bias is not None:
                module.bias.normal_(0, 0.3)
            if module.track_running_stats:
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
    return model
