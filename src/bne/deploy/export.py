"""A trained model as one graph: ONNX, or a program of `torch.export`."""

from __future__ import annotations

import copy
import hashlib
import io
import logging
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from bne.core.ensemble import DomainEnsemble
from bne.core.norm import domain_layers
from bne.deploy.engine import explained, weighs
from bne.deploy.folding import fold_batch_norm
from bne.deploy.manifest import KEY, envelope
from bne.deploy.onnx import UNSIGNED, OnnxEngine
from bne.deploy.quantize import Cost, cost, to_int8
from bne.errors import BneError, SettingsError, did_you_mean, require
from bne.inspection.observe import branches
from bne.methods.future import BNEPooled
from bne.training.files import write_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bne.data.images import ImageSet
    from bne.data.transform import EvalTransform
    from bne.deploy.manifest import Manifest
    from bne.methods import Method

Format = Literal["onnx", "torch"]
CENTRE = "centre"
"""The name of the network that has all domains' mean statistics, where a branch is asked for."""
TOLERANCE = 1e-4
OUTPUTS = ("logits", "weights", "distances")


class ExportError(BneError):
    """A network cannot leave PyTorch."""


class Exported(NamedTuple):
    """How far an exported graph is from its model.

    Attributes:
        difference: the largest between the float32 graph's logits and PyTorch's on three images.
        cost: of int8, if that was asked for.
    """

    difference: float
    cost: Cost | None


class Graph(nn.Module):
    """What is exported: images in; logits and, if wanted, weights and distances out.

    Args:
        method: the trained model, in evaluation mode on the CPU.
        transform: to crop and normalize inside, from (N, size, size, C) uint8 images; None takes
            (N, C, H, W) as the network does.
        places: whether weights and distances are wanted.
    """

    def __init__(self, method: Method, transform: EvalTransform | None, *, places: bool) -> None:
        super().__init__()
        self.method = method
        self.places = places
        self.crop: tuple[int, int] | None = None
        self.scale: Tensor
        self.shift: Tensor
        if transform is not None:
            known = transform.preprocessing
            start = round((transform.resize - known.size) / 2)
            self.crop = (start, start + known.size)
            mean, std = torch.tensor((known.mean, known.std))[..., None, None]
            self.register_buffer("scale", 1 / (255 * std))
            self.register_buffer("shift", -mean / std)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Logits, (N, classes), and what else the method has, (N, K)."""
        if self.crop is not None:
            rows = slice(*self.crop)
            images = images[:, rows, rows].permute(0, 3, 1, 2).float() * self.scale + self.shift
        found = explained(self.method, images, places=self.places)
        return tuple(part for part in found if part is not None)


class PlainNetwork(nn.Module):
    """One branch as an ordinary network, in the place of a method."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def predict(self, images: Tensor) -> Tensor:
        """The network's own logits."""
        logits: Tensor = self.net(images)
        return logits


def export(
    method: Method,
    transform: EvalTransform,
    model: Manifest,
    path: Path,
    *,
    format: Format = "onnx",  # noqa: A002 - everybody's name for it
    preprocess: bool = False,
    places: bool = False,
    branch: str | None = None,
    quantize: ImageSet | None = None,
) -> Exported:
    """Writes a model as one graph for any number of images, as a whole or not at all.

    Args:
        method: the trained model.
        transform: from prepared images to its input.
        model: what is known of it.
        path: of the file.
        format: "onnx", or "torch" for a program that `torch.export.load` reads.
        preprocess: whether the graph crops and normalizes (N, size, size, C) uint8 images itself;
            otherwise it takes (N, C, H, W) as the network does.
        places: whether weights and distances come out of the centre too, at the cost of a pass;
            where answers depend on them they always do.
        branch: the domain whose network alone is exported, a plain one; "centre" is the network of
            the domains' mean statistics.
        quantize: labeled images for an ONNX graph in int8: some set its ranges, others tell what
            accuracy it costs.

    Returns:
        How far the graph is from the model.

    Raises:
        SettingsError: The format or the branch is unknown, the model has no branches, or it pools
            images.
        ExportError: The network cannot be exported, or the graph answers otherwise than it.
        MissingLibraryError: A library is not installed.
    """
    if format not in get_args(Format):
        raise SettingsError(f"--format {format}: {did_you_mean(format, get_args(Format))}.")
    if quantize is not None and format != "onnx":
        raise SettingsError("--quantize makes int8 graphs of the format onnx alone.")
    if format == "onnx":
        for library in ("onnx", "onnxscript", "onnxruntime"):
            require(library, "onnx")
    if places and (branch is not None or not branches(method)):
        whose = model.method if branch is None else "one domain's network"
        raise SettingsError(f"{whose} tells no weights and distances; leave --places out.")
    if branch is None and isinstance(method, BNEPooled):
        raise SettingsError(
            f"{model.method} pools images that come together, which no graph does; export a branch "
            "with --branch, or train bne."
        )
    alone: Any = copy.deepcopy(method).cpu().eval()
    if branch is not None:
        alone = PlainNetwork(_branch(alone, model, branch))
    graph = Graph(alone, transform if preprocess else None, places=places or _placed(alone))
    images = _example(transform, preprocess)
    beside = {"input": UNSIGNED if preprocess else "float32", "branch": branch}
    more = torch.cat([images, images.flip(0)[:1]])  # than it is traced with
    with torch.inference_mode():
        expected = graph(more)
    model = replace(model, map=None)  # which no graph needs, and which may show images
    if len(expected) == 1:
        model = replace(model, branches=(), distance=None, mix=None)
    with _explained_failure(model), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        if format == "onnx":
            data = _onnx(graph, images, model, beside)
            found = OnnxEngine.of(data, path).run(more.numpy())[0]
        else:
            data = _program(graph, images, model, beside)
            found = torch.export.load(io.BytesIO(data)).module()(more)[0].detach().numpy()
    logits = expected[0].numpy()
    difference = float(np.abs(found - logits).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(logits).max())):
        raise ExportError(
            f"The exported graph answers otherwise than the model, by {difference:.2g}: nothing is "
            "written; please report the backbone and the versions."
        )
    spent = None
    if quantize is not None:
        before = OnnxEngine.of(data, path)
        with _explained_failure(model), warnings.catch_warnings(), _quiet():
            data = _signed(to_int8(data, quantize, path), model, {**beside, "int8": True})
            spent = cost(before, OnnxEngine.of(data, path), quantize)
    write_bytes(path, data)
    return Exported(difference, spent)


def _branch(method: Method, model: Manifest, branch: str) -> nn.Module:
    net = method.net
    if not isinstance(net, DomainEnsemble) or not model.branches:
        raise SettingsError(f"{model.method} has no branches; leave --branch out.")
    if branch not in (*net.domains, CENTRE):
        raise SettingsError(f"--branch {branch}: {did_you_mean(branch, (*net.domains, CENTRE))}.")
    if net.leans:
        raise SettingsError(
            f"--branch {branch}: a plain network cannot lean on its images; add --lean 0."
        )
    try:
        return net.to_plain(None if branch == CENTRE else branch).eval()
    except ValueError as error:
        raise SettingsError(f"--branch {branch}: {error}.") from error


def _placed(method: Any) -> bool:
    return not isinstance(method, PlainNetwork) and weighs(method)


def _example(transform: EvalTransform, preprocess: bool) -> Tensor:
    """Two images like photographs: with noise alone some networks hardly tell classes apart."""
    size = transform.resize
    draw = torch.Generator().manual_seed(0)
    shape = (2, transform.preprocessing.channels, 7, 7)
    coarse = torch.randint(0, 256, shape, generator=draw).float()
    pixels = nn.functional.interpolate(coarse, size=(size, size), mode="bilinear").round().byte()
    return pixels.permute(0, 2, 3, 1).contiguous() if preprocess else transform(pixels)


def _program(graph: Graph, images: Tensor, model: Manifest, beside: dict[str, Any]) -> bytes:
    file, text = io.BytesIO(), envelope(model, _checksum(model), **beside)
    torch.export.save(torch_program(graph, images), file, extra_files={f"{KEY}.json": text})
    return file.getvalue()


@torch.no_grad()  # or attention is traced as for training, and then converted as for use
def torch_program(graph: Graph, images: Tensor) -> torch.export.ExportedProgram:
    """The program of `torch.export`, for any number of images like the ones given."""
    program = torch.export.export(graph, (images,), dynamic_shapes=_any_number())
    if next(domain_layers(graph), None) is None:
        plain = program.module(check_guards=False)
        fold_batch_norm(plain)
        program = torch.export.export(plain, (images,), dynamic_shapes=_any_number())
    # Which leaves out what a pass of few layers goes on with.
    short: torch.export.ExportedProgram = program.run_decompositions({})
    for node in short.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return short


def _onnx(graph: Graph, images: Tensor, model: Manifest, beside: dict[str, Any]) -> bytes:
    return _signed(onnx_graph(graph, images), model, beside)


@torch.no_grad()  # as in `torch_program`
def onnx_graph(graph: Graph, images: Tensor) -> Any:
    """The ONNX graph, a `ModelProto`, for any number of images like the ones given."""
    from onnxscript import optimizer

    branched = next(domain_layers(graph), None) is not None
    program = torch.onnx.export(
        graph,
        (images,),
        dynamic_shapes=_any_number(),
        dynamo=True,
        input_names=["images"],
        output_names=list(OUTPUTS[: len(graph(images))]),
        verbose=False,
        optimize=not branched,
    )
    assert program is not None
    if branched:
        # Torch would also look for patterns, such as batch norm after a convolution. Branches have
        # none that gain anything, and the time goes by the square of the nodes: minutes for a deep
        # network.
        optimizer.inline(program.model)
        for _ in range(2):  # what is folded may make more constant
            optimizer.fold_constants(program.model, onnx_shape_inference=True)
            optimizer.remove_unused_nodes(program.model)
    proto = program.model_proto
    # Of every node, where in the code it comes from: paths of this machine, and megabytes.
    for part in (*proto.graph.node, *proto.graph.value_info):
        part.ClearField("metadata_props")
    return proto


def _signed(proto: Any, model: Manifest, beside: dict[str, Any]) -> bytes:
    """The bytes of a graph with its description, and in that a checksum of them all."""
    for place in reversed(range(len(proto.metadata_props))):
        if proto.metadata_props[place].key == KEY:
            del proto.metadata_props[place]
    empty = "0" * 64
    entry = proto.metadata_props.add()
    entry.key, entry.value = KEY, envelope(model, empty, **beside)
    data: bytes = proto.SerializeToString()
    return data.replace(empty.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _any_number() -> dict[str, Any]:
    return {"images": {0: torch.export.Dim("n", min=1)}}


def _checksum(model: Manifest) -> str:
    return hashlib.sha256(model.to_json().encode()).hexdigest()


@contextmanager
def _explained_failure(model: Manifest) -> Iterator[None]:
    try:
        yield
    except BneError:
        raise
    except Exception as error:  # exporters raise almost anything
        cause: BaseException = error
        while cause.__cause__ is not None:  # what exporters wrap around it is advice on reporting
            cause = cause.__cause__
        reason = " ".join(str(cause).split())[:300]
        raise ExportError(f"{model.backbone} cannot be exported ({reason}).") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say of their own progress."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", None)  # ONNX Runtime's quantizer uses the root
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
