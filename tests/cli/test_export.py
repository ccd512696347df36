import shutil
from pathlib import Path

import pytest

from bne.deploy.classifier import Classifier
from bne.deploy.export import Exported
from tests.cli.command import bne, refusal
from tests.cli.test_predict import lines

Runs = dict[str, Path]


def test_an_exported_file_predicts_and_is_measured(runs: Runs, here: Path) -> None:
    said = bne("export", runs["deepall"], "out/model.onnx", "--preprocess", "--lean", 0.1).out
    assert "logits as in PyTorch to" in said
    command = ("predict", "out/model.onnx", runs["data"] / "photo", "--json")
    found = lines(bne(*command).out)
    own = ("predict", runs["deepall"], runs["data"] / "photo", "--json", "--lean", 0.1)
    expected = lines(bne(*own).out)
    assert [row["class"] for row in found] == [row["class"] for row in expected]
    chances, others = ([row["probability"] for row in part] for part in (found, expected))
    assert chances == pytest.approx(others, rel=1e-3)
    assert "export it anew" in refusal(*command, "--lean", 0.1)
    assert "has no branches" in refusal(*command, "--columns", "weights")
    command = ("evaluate", "out/model.onnx", "--data", runs["data"], "--json")
    own = ("evaluate", runs["deepall"], "--data", runs["data"], "--lean", 0.1, "--json")
    alone = bne(*command).json["domains"]
    assert alone == bne(*own).json["domains"]
    both = bne(*command, "--against", runs["bne"]).json["domains"]
    turned = bne("evaluate", runs["bne"], *command[2:], "--against", command[1]).json["domains"]
    for domain, part in both.items():
        assert part["correct"] == alone[domain]["prediction"]["all classes"]["correct"]
        assert part["correct"] == turned[domain]["against"]
    assert "export it anew" in refusal(*command, "--lean", 0.1)


def test_the_name_tells_the_format(runs: Runs, here: Path, monkeypatch) -> None:
    formats = []

    def export(_: Classifier, file: Path, kind: str, **how: object) -> Exported:
        file.touch()
        formats.append(kind)
        return Exported(0.0, None)

    monkeypatch.setattr(Classifier, "export", export)
    for how in (["model.pt2"], ["model.ONNX"], ["model.pt2", "--format", "onnx"]):
        bne("export", runs["deepall"], *how)
    assert formats == ["torch", "onnx", "onnx"]
    assert "model.pt: end the name in .onnx or .pt2" in refusal(
        "export", runs["deepall"], "model.pt"
    )
    bne("export", runs["deepall"], "model.pt", "--format", "torch")


def test_errors_are_one_sentence_and_write_nothing(runs: Runs, here: Path) -> None:
    for arguments, words in (
        ((runs["bne"], "x.onnx", "--format", "tf"), "--format tf"),
        ((runs["deepall"], "x.onnx", "--branch", "art"), "has no branches"),
        ((runs["bne"], "x.onnx", "--branch", "art", "--lean", 0.2), "--lean 0"),
        ((runs["deepall"], "x.onnx", "--places"), "leave --places out"),
        ((runs["bne"], "x.onnx", "--places", "--branch", "art", "--lean", 0), "--places"),
        ((runs["data"], "new/x.onnx"), "is no model folder"),
        ((runs["bne"], here), "is a folder"),
    ):
        assert words in refusal("export", *arguments)
    assert not list(here.iterdir())


def test_a_model_is_not_written_over_by_its_graph(runs: Runs, here: Path) -> None:
    model = Path(shutil.copy(runs["deepall"] / "model.bne", here))
    before = model.read_bytes()
    said = refusal("export", "model.bne", "model.bne", "--format", "onnx")
    assert "model.bne is a file to read; name another" in said
    assert model.read_bytes() == before
