"""The core installs and works with torch alone."""

import subprocess
import sys

import bne
from tests.environments import PACKAGE, ROOT, UV, fresh_environment, run

CORE_ONLY = """
import sys
import torch
loaded = set(sys.modules)
import bne
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
net = bne.convert(model, ["a", "b"])
assert net.eval()(torch.randn(2, 3, 8, 8)).shape == (2, 4, 6, 6)
bne.wasserstein, bne.Embedding, bne.Prediction
assert len(bne.DomainBatchSampler([0, 1, 0], per_domain=1)) == 2
ours = {name.split(".")[0] for name in set(sys.modules) - loaded} - sys.stdlib_module_names
print(*sorted(ours))
"""


def test_importing_bne_imports_nothing_but_torch():
    """Also without torch: the command line must answer before it is loaded."""
    imports = "import sys, bne; dir(bne); bne.train, bne.load"
    loaded = "print({'torch', 'numpy', 'PIL', 'typer'} & set(sys.modules))"
    assert run(sys.executable, "-c", f"{imports}; {loaded}") == "set()"
    assert run(sys.executable, "-c", CORE_ONLY) == "bne"


def test_every_subpackage_is_there_when_asked_for():
    folders = [place.parent.name for place in (ROOT / "src" / "bne").glob("*/__init__.py")]
    asked = f"import bne; print(*(getattr(bne, name).__name__ for name in {folders}))"
    assert run(sys.executable, "-c", asked) == " ".join(f"bne.{name}" for name in folders)
    assert "methods" in dir(bne)
    assert not hasattr(bne, "__main__")  # which would run


def test_installs_without_extras_in_a_fresh_environment(tmp_path):
    python = fresh_environment(tmp_path, [PACKAGE])
    installed = run(UV, "pip", "list", "--python", python)
    assert "torch " in installed
    for extra in ("torchvision", "timm", "pillow", "typer", "scikit-learn"):
        assert extra not in installed
    assert run(python, "-c", CORE_ONLY, cwd=tmp_path) == "bne"
    command = python.with_name("bne")
    hint = subprocess.run(command, capture_output=True, text=True, check=False)
    assert hint.returncode == 1
    assert "bne[cli]" in hint.stderr
    assert "Traceback" not in hint.stderr
