import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from torchvision.models import ResNet18_Weights

from bne.models.registry import Preprocessing


def test_defaults_are_torchvisions_constants() -> None:
    published = ResNet18_Weights.IMAGENET1K_V1.transforms()
    preprocessing = Preprocessing(size=published.crop_size[0])
    assert list(preprocessing.mean) == published.mean
    assert list(preprocessing.std) == published.std
    with pytest.raises(FrozenInstanceError):
        preprocessing.size = 1  # type: ignore[misc]


def test_importing_models_imports_nothing_heavy_but_torch() -> None:
    code = (
        "import sys; from bne.models.registry import Preprocessing\n"
        "print(*{'torchvision', 'timm', 'safetensors', 'PIL', 'google.protobuf'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
