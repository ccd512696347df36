"""Exports the mixture of one network of every family in the zoos, and compares with PyTorch.

python benchmarks/zoo_export.py                  what has not passed yet
python benchmarks/zoo_export.py --only resnet18
python benchmarks/zoo_export.py --name timm/convmixer_1024_20_ks9_p14 --size 112

A family is a module of timm or torchvision; its smallest network with batch norm stands for it. It
is untrained, with the statistics of a training pass, and three domains around these. Logits,
weights and distances for three images, one more than the graph was traced with, are compared
relative to the largest of each. `rounding` is what float32 itself costs there: PyTorch against
PyTorch in float64. Where a graph is further away than it may, it is exported in float64 too, which
tells rounding from mistakes: it passes if it then agrees, and if in float32 it is no further away
than ten times `rounding`. ONNX Runtime has no convolutions in float64; there ONNX's own reference
implementation runs the graph.
"""

import argparse
import copy
import json
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo import RECORDS as CONVERTED
from zoo import read

from bne.benchmark.execute import in_processes

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "results" / "zoo-export.jsonl"
ALLOWED = {"torch_export": 1e-5, "onnx": 1e-4}  # relative differences
EXACT, TIMES = 1e-10, 10  # allowed in float64, and in float32 then so many times what that costs

Record = dict[str, Any]


def main() -> None:
    """Exports what has not passed yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--name", help="of any network, instead of these")
    parser.add_argument("--size", type=int, help="of images, instead of the smallest")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args()
    done = {one["name"] for one in read(options.records) if one["result"] == "passed"}
    todo = (
        [options.name]
        if options.name
        else [name for name in families() if options.only in name and name not in done]
    )
    look = partial(examine, size=options.size)
    with options.records.open("a") as file:
        for number, (name, found) in enumerate(in_processes(look, todo, 1), 1):
            record = found or {"name": name, "result": "failed", "reason": "its process was killed"}
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(f"{number}/{len(todo)} {record}", flush=True)


def families() -> list[str]:
    """The smallest network of every family that has batch norm, smallest first."""
    import timm
    import torchvision

    smallest: dict[tuple[str, str], tuple[int, str]] = {}
    for record in read(CONVERTED):
        if record["result"] != "passed":
            continue
        library, name = record["name"].split("/", 1)
        if library == "timm":
            family = timm.models._registry._model_to_module.get(name)
        else:
            family = torchvision.models.get_model_builder(name).__module__
        if family is not None:
            size = record["parameters"], record["name"]
            smallest[library, family] = min(smallest.get((library, family), size), size)
    return [name for _, name in sorted(smallest.values())]


def examine(name: str, size: int | None = None) -> Record:
    """One network's record; a failure is a result, not an error."""
    import torch

    warnings.simplefilter("ignore")
    libraries = (name.split("/", maxsplit=1)[0], "onnxruntime")
    versions = {library: version(library) for library in libraries}
    record = {"name": name, "torch": torch.__version__, **versions}
    found: Record = {}
    try:
        for key, value in differences(name, size):
            found[key] = value
        large = {key: found[key] for key, most in limits(found).items() if not found[key] <= most}
        if not large:
            return {**record, "result": "passed", **found}
        reason = ", ".join(f"{key} differs by {value:.1e}" for key, value in large.items())
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
    return {**record, "result": "failed", **found, "reason": reason}


def limits(found: Record) -> dict[str, float]:
    """The largest difference allowed for each that was found."""
    allowed = {}
    for key, most in ALLOWED.items():
        if (exact := f"{key}_float64") in found:  # exported for want of digits
            allowed |= {exact: EXACT, key: TIMES * found["rounding"]}
        else:
            allowed[key] = most
    return allowed


def differences(name: str, size: int | None) -> Iterator[tuple[str, Any]]:
    """How far exported graphs are from the network, by format."""
    import torch

    exact, images = example(name, size)
    yield "size", images.shape[-1]
    graph, inputs = copy.deepcopy(exact).float(), images.float()
    with torch.no_grad():
        known, expected = exact(images), graph(inputs)
    yield "rounding", apart(expected, known)
    for key, exported in (("torch_export", by_torch), ("onnx", by_onnx)):
        difference = apart(exported(graph, inputs), expected)
        yield key, difference
        if difference > ALLOWED[key]:  # which rounding may explain
            yield f"{key}_float64", apart(exported(exact, images), known)


def by_torch(graph: Any, images: Any) -> Any:
    """What the program of `torch.export` answers, traced with two images."""
    import torch

    from bne.deploy.export import torch_program

    with torch.no_grad():
        return torch_program(graph, images[:2]).module()(images)


def by_onnx(graph: Any, images: Any) -> Any:
    """What the graph of ONNX answers: by its runtime in float32, by its reference in float64."""
    import onnxruntime
    import torch
    from onnx.reference import ReferenceEvaluator

    from bne.deploy.export import onnx_graph

    proto = onnx_graph(graph, images[:2])
    if images.dtype == torch.double:
        session = ReferenceEvaluator(proto)
    else:
        session = onnxruntime.InferenceSession(proto.SerializeToString())
    return map(torch.from_numpy, session.run(None, {"images": images.numpy()}))


def example(name: str, size: int | None = None) -> tuple[Any, Any]:
    """A mixture of three domains that differ, which gives all it knows, and three images."""
    import torch
    import zoo_check

    from bne.core.norm import domain_layers
    from bne.deploy.export import Graph
    from bne.methods import BNE

    torch.manual_seed(0)
    model = zoo_check.build(name).double()
    shape = 4, 3, size, size
    images = torch.randn(shape).double() if size else zoo_check.smallest_input(model)
    take_statistics(model, images)
    method = BNE(model, zoo_check.DOMAINS).eval()
    for layer in domain_layers(method):
        layer.running_mean += 0.2 * layer.running_var.sqrt() * torch.randn_like(layer.running_var)
        layer.running_var *= 0.7 + 0.7 * torch.rand_like(layer.running_var)
        layer.eps = float(torch.tensor(layer.eps))  # as ONNX keeps it, in float64 too
    return Graph(method, None, places=True), images[:3]


def take_statistics(model: Any, images: Any) -> None:
    """Gives every batch norm the statistics of a training pass, under which a network is tame."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    for module in norms:
        module.momentum = 1.0
    with torch.no_grad():
        model.train()(images)
    model.eval()


def apart(found: Any, expected: Any) -> float:
    """The largest difference between outputs, each relative to its largest value."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


if __name__ == "__main__":
    main()
