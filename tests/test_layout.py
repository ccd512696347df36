"""What CONTRIBUTING.md says of imports is so, wherever in a module they stand."""

import ast
import re
import sys

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "bne"
(STATED,) = re.findall(r"point one way\*\*: ([\w →]+);", (ROOT / "CONTRIBUTING.md").read_text())
ORDER = STATED.split(" → ")


def imports(part: str) -> list[str]:
    """The dotted names of what a module or a package imports, in functions and for types too."""
    files = [*(SOURCE / part).rglob("*.py"), *SOURCE.glob(f"{part}.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    whole = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    parts = [(n.module, a.name) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
    return [*whole, *(f"{module}.{name}" for module, name in parts)]


def test_every_part_has_its_place() -> None:
    parts = {path.parent.stem for path in SOURCE.glob("*/__init__.py")}
    parts |= {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(ORDER) == sorted(parts)


@pytest.mark.parametrize("part", ORDER)
def test_imports_point_one_way(part: str) -> None:
    before = {*ORDER[: ORDER.index(part) + 1], "__version__"}
    assert {name.split(".")[1] for name in imports(part) if name.startswith("bne.")} <= before


@pytest.mark.parametrize("part", ["errors", "words", "core"])
def test_the_core_needs_torch_alone(part: str) -> None:
    outside = {name.split(".")[0] for name in imports(part)} - {"bne", *sys.stdlib_module_names}
    # Triton comes with torch where there is a GPU for it.
    assert outside == ({"torch", "triton"} if part == "core" else set())
