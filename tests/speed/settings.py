import torch

from bne.speed import Settings


def settings(device: str = "cpu", **others: object) -> Settings:
    """Settings of a small comparison; the device need not be there."""
    chosen = {
        "backbone": "small_cnn",
        "device": torch.device(device),
        "precision": "float32",
        "domains": 3,
        "per_domain": 2,
        "batch": 4,
        "size": 16,
        "repeat": 2,
        **others,
    }
    return Settings(**chosen)  # type: ignore[arg-type]
