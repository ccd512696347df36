"""Exported graphs, against the model in PyTorch; ONNX Runtime where torch is not installed."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bne
from bne.data.sources import open_images
from bne.deploy import export as exporting
from bne.deploy import quantize
from bne.deploy.classifier import Classifier
from bne.deploy.export import ExportError
from bne.deploy.onnx import OnnxEngine, main
from bne.deploy.pictures import Picture, find_pictures
from bne.deploy.predict import check_one_domain, predict
from bne.errors import DataError, SettingsError
from bne.methods.future import BNEPooled
from bne.models import build
from tests.cli.command import bne as command_line
from tests.environments import PACKAGE, fresh_environment, install
from tests.networks import randomise_norms

Runs = dict[str, Path]
MODES = [
    ("bne", {"mix": "centre", "lean": 0.1}, {"places": True}),
    ("dnet", {}, {}),
]

CODE = str(Path(bne.__file__).parent).encode()  # a path of this machine


@pytest.fixture(scope="module")
def graph(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    bne.load(runs["bne"], "cpu").to_onnx(path, preprocess=True)
    return path


@pytest.mark.parametrize(("method", "mode", "how"), MODES, ids=str)
def test_onnx_answers_as_the_model(runs: Runs, method, mode, how, tmp_path: Path) -> None:
    model = bne.load(runs[method], "cpu", **mode)
    assert model.export(tmp_path / "model.onnx", **how).difference < 1e-4
    assert CODE not in (tmp_path / "model.onnx").read_bytes()
    engine = OnnxEngine.load(tmp_path / "model.onnx")
    pictures = find_pictures([runs["data"] / "photo"])  # some batches whole, one not
    parts = zip(
        predict(model.engine, model.info, pictures[:5]),
        predict(engine, engine.model, pictures[:5]),
        strict=True,
    )
    for ours, theirs in parts:
        for one, other in zip(ours.answers.seen[:3], theirs.answers.seen[:3], strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layers", [None, 1])
def test_a_program_of_torch_answers_as_the_model(runs: Runs, layers, tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu", layers=layers)
    assert model.export(tmp_path / "model.pt2", "torch").difference < 1e-5
    assert CODE not in (tmp_path / "model.pt2").read_bytes()
    content = {"bne.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=content).module()
    assert json.loads(json.loads(content["bne.json"])["model"])["classes"] == ["cat", "dog"]
    file = next(runs["data"].glob("photo/*/*.png"))
    convolutions = sum("conv2d" in str(node.target) for node in program.graph.nodes)
    every = sum(isinstance(m, torch.nn.Conv2d) for m in model.engine.method.modules())
    # The first serves all passes; with one layer the instance pass has no other.
    assert convolutions == (2 * every - 1 if layers is None else every)
    logits, weights, distances = program(model.engine.transform.file(file).repeat(3, 1, 1, 1))
    expected = model.predict([file] * 3).seen
    for found, own in zip((logits, weights, distances), expected[:3], strict=True):
        np.testing.assert_allclose(found.detach(), own, rtol=1e-5, atol=1e-5)


def test_a_branch_is_a_plain_network_without_batch_norm(runs: Runs, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = bne.load(runs["bne"], "cpu", lean=0.0)
    file = next(runs["data"].glob("photo/*/*.png"))
    model.export(tmp_path / "one.onnx", branch="art")
    kinds = {node.op_type for node in onnx.load(tmp_path / "one.onnx").graph.node}
    assert "Conv" in kinds
    assert "BatchNormalization" not in kinds
    engine = OnnxEngine.load(tmp_path / "one.onnx")
    (part,) = predict(engine, engine.model, find_pictures([file]))
    plain = model.engine.method.net.to_plain("art").eval()
    expected = plain(model.engine.transform.file(file)).detach()
    np.testing.assert_allclose(part.answers.seen.logits, expected, rtol=1e-4, atol=1e-4)
    assert part.answers.weights is None
    model.export(tmp_path / "art.pt2", "torch", branch="art")
    program = torch.export.load(tmp_path / "art.pt2")
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    kinds = torch.nn.Conv2d, torch.nn.Linear  # all that have weights, and each now a bias
    assert len(program.state_dict) == 2 * sum(isinstance(m, kinds) for m in plain.modules())
    (found,) = program.module()(model.engine.transform.file(file))
    torch.testing.assert_close(found.detach(), expected, rtol=1e-5, atol=1e-5)


def test_batch_norm_stays_where_it_cannot_be_folded() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding="same")
            self.shared = torch.nn.Conv2d(4, 4, 1, groups=2, bias=False)
            self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(4) for _ in range(4))
            self.bare = torch.nn.BatchNorm2d(4, affine=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second, twice, computed = self.norms
            x = first(self.conv(x))
            x = second(self.shared(x)) + self.bare(self.shared(x))
            x = (y := self.shared(x)) + twice(y)
            weight = self.shared.weight
            return computed(torch.nn.functional.conv2d(x, weight - weight.mean(), groups=2))

    net = randomise_norms(Net()).eval()
    graph = exporting.Graph(exporting.PlainNetwork(net), None, places=False).eval()
    images = torch.randn(2, 3, 5, 5)
    program = exporting.torch_program(graph, images)
    assert sum("batch_norm" in str(node.target) for node in program.graph.nodes) == 2
    torch.testing.assert_close(program.module()(images)[0], net(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fit", ["squash", "letterbox"])
def test_int8_costs_what_it_says(
    runs: Runs, fit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = pytest.importorskip("onnx")
    wide = tmp_path / "wide"
    for path in runs["data"].glob("*/*/*.png"):
        place = wide / path.relative_to(runs["data"])
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).resize((60, 30)).save(place)
    model = bne.load(runs["bne"], "cpu", mix="centre", lean=0.0)
    changed = replace(model.info, transform={**model.info.transform, "fit": fit})
    model = Classifier(model.engine.method, changed, "cpu")
    model.save(tmp_path / "model.bne")
    fits = []
    known = quantize.pixels
    seen = lambda *given: fits.append(given[2].fit) or known(*given)  # noqa: E731
    monkeypatch.setattr(quantize, "pixels", seen)
    command = ("export", tmp_path / "model.bne", tmp_path / "int8.onnx", "--quantize", wide)
    said = command_line(*command, "--preprocess").out
    after, before, count = re.search(
        r"accuracy ([\d.]+) % instead of ([\d.]+) % on (\d+) images", said
    ).groups()
    graph = onnx.load(tmp_path / "int8.onnx").graph
    small = [one for one in graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert sum(np.prod(one.dims) > 100 for one in small) >= 5  # the weights of every layer
    engine = OnnxEngine.load(tmp_path / "int8.onnx")  # whose checksum is its own
    assert {engine.way.fit, *fits} == {fit}
    rest = quantize._divided(open_images(wide))[1]  # the others set the ranges
    assert int(count) == len(rest) == len(fits)
    pictures = [Picture(file.name, file.read) for file in rest]
    for used, told in (((model.engine, model.info), before), ((engine, engine.model), after)):
        right = sum(
            Path(name).parent.name == answer
            for part in predict(*used, pictures)
            for name, answer in zip(part.names, part.answers.classes, strict=True)
        )
        assert float(told) == pytest.approx(100 * right / len(rest), abs=0.05)


def test_int8_is_not_measured_on_images_that_cannot_be_read(graph, runs, tmp_path: Path) -> None:
    images = open_images(shutil.copytree(runs["data"], tmp_path / "data"))
    tested = quantize._divided(images)[1][0].name
    (tmp_path / "data" / tested).write_bytes(b"no image")
    engine = OnnxEngine.load(graph)
    with pytest.raises(DataError, match=tested):
        quantize.cost(engine, engine, images)


def test_networks_are_traced_as_they_are_used() -> None:
    class Choosy(torch.nn.Module):  # as torch's attention is, which MaxViT has
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if torch.is_grad_enabled() else x

    graph = exporting.Graph(exporting.PlainNetwork(Choosy()), None, places=False).eval()
    images = torch.ones(2, 3, 4, 4)
    (found,) = exporting.torch_program(graph, images).module()(images)
    assert torch.equal(found, images)
    (output,) = exporting.onnx_graph(graph, images).graph.node
    assert output.op_type == "Identity"


def test_what_cannot_be_exported_is_one_sentence(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.onnx"
    for method, mode, how, words in (
        ("deepall", {}, {"branch": "art"}, "has no branches"),
        ("bne", {}, {"branch": "arts"}, "the nearest is 'art'"),
        ("bne", {"lean": 0.1}, {"branch": "art"}, "--lean 0"),
        ("bne", {}, {"format": "tflite"}, "onnx, torch"),
        ("bne", {}, {"format": "torch", "quantize": open_images(runs["data"])}, "onnx alone"),
    ):
        with pytest.raises(SettingsError, match=words):
            bne.load(runs[method], "cpu", **mode).export(file, **how)
    info = replace(bne.load(runs["bne"], "cpu").info, method="bne-pooled")
    pooled = BNEPooled(build("small_cnn", len(info.classes)), info.branches)
    with pytest.raises(SettingsError, match="bne-pooled pools"):
        Classifier(pooled, info, "cpu").export(file)
    monkeypatch.setattr(exporting, "TOLERANCE", -1)
    with pytest.raises(ExportError, match="answers otherwise"):
        bne.load(runs["deepall"], "cpu").export(file, "torch")

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Next steps: create an issue") from ValueError("no such operator")

    monkeypatch.setattr(torch.export, "export", fails)
    with pytest.raises(ExportError, match=r"small_cnn cannot be exported \(no such operator\)"):
        bne.load(runs["deepall"], "cpu").export(file, "torch")
    assert not list(tmp_path.iterdir())


def test_damaged_and_other_files_are_named(graph: Path, tmp_path: Path) -> None:
    path, whole = tmp_path / "copy.onnx", graph.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 20).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"copy\.onnx"):
            OnnxEngine.load(path)
    for content in (b"", whole[: len(whole) // 2], b"no graph"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"copy\.onnx"):
            OnnxEngine.load(path)
    with pytest.raises(DataError, match=r"absent\.onnx"):
        OnnxEngine.load(tmp_path / "absent.onnx")
    with pytest.raises(SettingsError, match="an exported model answers image by image"):
        check_one_domain(OnnxEngine.load(graph))


def test_an_exported_model_predicts_without_torch(runs: Runs, graph: Path, tmp_path: Path) -> None:
    files = sorted(map(str, runs["data"].glob("photo/*/*.png")))
    (tmp_path / "bad.png").write_bytes(b"no image")
    needed = ["onnxruntime", "numpy", "pillow"]
    python = fresh_environment(tmp_path, ["--no-deps", PACKAGE], needed)
    module = [python, "-m", "bne.deploy.onnx", graph]
    done = without_torch(*module, *files, tmp_path / "bad.png")
    assert done.returncode == 3, done.stderr
    assert "Skipped: " in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    expected = bne.load(runs["bne"], "cpu").predict(files)
    assert [row["class"] for row in found] == list(expected.classes)
    chances = [row["probability"] for row in found]
    np.testing.assert_allclose(chances, expected.probabilities.max(1), rtol=1e-3)
    np.testing.assert_allclose([r["unusual"] for r in found], expected.unusual, atol=0.5)
    done = without_torch(*module, "absent.png")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    install(python, "typer", "rich")
    done = without_torch(python.with_name("bne"), "predict", graph, *files, "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == found, done.stderr
    done = without_torch(python.with_name("bne"), "predict", runs["bne"] / "model.bne", *files)
    assert "torch is not installed" in done.stderr


def without_torch(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)


def test_the_command_without_torch_takes_and_refuses_what_bne_predict_does(
    runs: Runs, graph: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = next(runs["data"].glob("photo/*/*.png"))
    table, out = tmp_path / "images.csv", tmp_path / "new" / "answers.csv"
    table.write_text(f"image\n{file}\n")
    assert onnx_command(graph, table, "--column", "image", "--out", out) == 0
    assert str(file) in out.read_text()
    for options in (
        ("--top", 0),
        ("--abstain", 2),
        ("--out", table),
        ("--out", file / "answers.csv"),
    ):
        assert onnx_command(graph, table, "--column", "image", *options) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert said.err.startswith("Error: ")
        assert "Errno" not in said.err
    monkeypatch.setattr(sys, "stdin", None)
    assert onnx_command(graph, "-") == 1
    assert "-: holds no" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdout", Closed())
    assert onnx_command(graph, file) == 1
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("bne.deploy.onnx.predict", interrupted)
    assert onnx_command(graph, file) == 130


class Closed(io.StringIO):
    """A pipe that nobody reads any more."""

    def flush(self) -> None:
        raise BrokenPipeError


def onnx_command(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
