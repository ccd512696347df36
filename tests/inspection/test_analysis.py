"""Analyses of tiny networks against a plain loop over one image at a time."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix

import bne
from bne.inspection.analysis import analyse
from bne.training import scores as scoring
from tests.docs.pages import ROOT
from tests.inspection.models import SOURCES, TARGET, Trained, trained


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH", 7)


def one_by_one(model: Trained, numbers):
    """What the method says of each image, with its label."""
    images = model.transform(model.prepared.pixels[list(numbers)].permute(0, 3, 1, 2))
    with torch.no_grad():
        out = model.method.explain(images)
    for i, number in enumerate(numbers):
        one = slice(i, i + 1)
        keys = ("logits", "weights", "branch_logits", "distances")
        fields = {key: getattr(out, key)[one] for key in keys if hasattr(out, key)}
        if points := getattr(out, "embedding", None):
            fields["embedding"] = replace(points, mean=points.mean[one], var=points.var[one])
        yield SimpleNamespace(**fields), int(model.prepared.labels[number])


def of_domain(model: Trained, domain: str) -> list[int]:
    return model.prepared.images.indices_of([domain])


def share(score: dict[str, int]) -> float:
    return score["correct"] / score["images"]


DISTANCES = [{"distance": "bhattacharyya"}, {"distance": "uniform"}]


@pytest.mark.parametrize(
    "options", [{}, {"mix": "probabilities"}, *DISTANCES, {"layers": ["bn1", "bn3"]}], ids=str
)
def test_target_accuracies(options: dict[str, object]) -> None:
    model = trained("bne", **options)
    report = analyse(model)["target"]
    known = model.method.net.domain_embeddings()
    for domain in TARGET:
        truth, answers, branch, ranked, weights, weighted = [], [], [], [], [], {}
        for out, label in one_by_one(model, of_domain(model, domain)):
            truth.append(label)
            answers.append(int(out.logits.argmax()))
            branch.append(out.branch_logits[0].argmax(1).tolist())
            distances = out.distances[0]
            if options.get("distance") == "uniform":
                distances = bne.wasserstein(out.embedding, known)[0]
            ranked.append([branch[-1][k] for k in np.argsort(distances.numpy())])
            weights.append(out.weights[0].tolist())
            for name in ("wasserstein", "bhattacharyya", "uniform"):
                distance = getattr(bne.core.distances, name)(out.embedding, known)[0].double()
                w = (1 / distance) / (1 / distance).sum()
                scores = out.branch_logits[0].double()
                if options.get("mix") == "probabilities":
                    scores = scores.softmax(1)
                weighted.setdefault(name, []).append(int((w @ scores).argmax()))
        found = report["accuracy"]
        assert share(found["prediction"][domain]) == accuracy_score(truth, answers)
        for k, name in enumerate(SOURCES):
            own = [one[k] for one in branch]
            assert share(found["by_branch"][name][domain]) == accuracy_score(truth, own)
            placed = [one[k] for one in ranked]
            assert share(found["by_rank"][k][domain]) == accuracy_score(truth, placed)
        for name, under in weighted.items():
            assert share(found["by_weighting"][name][domain]) == accuracy_score(truth, under)
        expected = confusion_matrix(truth, answers, labels=[0, 1, 2]).tolist()
        assert report["confusion"][domain] == expected
        means = [report["weights"][domain][name] for name in SOURCES]
        np.testing.assert_allclose(means, np.mean(weights, 0), rtol=1e-4)


def test_branches_and_ranks_are_told_apart_also_without_held_out_images() -> None:
    """The loop above could not fail if all branches gave the same answers."""
    model = trained("bne")
    none = {s: replace(split, validation=()) for s, split in model.splits.items()}
    report = analyse(replace(model, splits=none))
    assert report["sources"]["domain_accuracy"]["validation"] == {}
    found = report["target"]["accuracy"]
    assert len({share(found["by_branch"][name]["dslr"]) for name in SOURCES}) > 1
    assert found["by_rank"] != list(found["by_branch"].values())


def test_calibration_error_is_that_of_its_definition() -> None:
    model = trained("bne")
    report = analyse(model)["target"]["calibration_error"]
    for domain in TARGET:
        confidence, right = [], []
        for out, label in one_by_one(model, of_domain(model, domain)):
            probabilities = out.logits[0].double().softmax(0)
            confidence.append(float(probabilities.max()))
            right.append(int(probabilities.argmax()) == label)
        confidence, right = np.array(confidence), np.array(right)
        gap = 0.0
        for low, high in zip(np.arange(15) / 15, np.arange(1, 16) / 15, strict=True):
            inside = (confidence > low) & (confidence <= high)
            if inside.any():
                gap += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        assert report[domain] == pytest.approx(gap, abs=1e-5)
        assert gap > 0


def test_images_of_other_domains_and_held_out_ones_share_no_batch(monkeypatch) -> None:
    """Which changes what this method says: it places the images of a batch as one."""
    monkeypatch.setattr(scoring, "BATCH", 256)
    model = trained("bne-pooled")
    report = analyse(model)["sources"]
    for source in SOURCES:
        (out, _), *_ = one_by_one(model, model.splits[source].train)
        found = [report["similarity"][source][name] for name in SOURCES]
        np.testing.assert_allclose(found, 1 / out.distances[0].numpy(), rtol=1e-4)


@pytest.mark.parametrize("distance", ["wasserstein", "bhattacharyya"])
def test_where_source_images_lie(distance: str) -> None:
    model = trained("bne", distance=distance)
    report = analyse(model)["sources"]
    known = model.method.net.domain_embeddings()
    measure = getattr(bne.core.distances, distance)
    layers = ("bn1", "bn2", "bn3", "bn4")
    total = dict.fromkeys(layers, 0.0)
    nearest_by_layer = {layer: {} for layer in layers}
    for k, source in enumerate(SOURCES):
        split = model.splits[source]
        for part in ("train", "validation"):
            outs = [out for out, _ in one_by_one(model, getattr(split, part))]
            nearest = [int(out.distances.argmin()) == k for out in outs]
            assert share(report["domain_accuracy"][part][source]) == np.mean(nearest)
            if part == "train":
                inverse = np.mean([(1 / out.distances[0]).numpy() for out in outs], 0)
                found = [report["similarity"][source][name] for name in SOURCES]
                np.testing.assert_allclose(found, inverse, rtol=1e-4)
                for layer in layers:
                    own = known.select([layer])
                    alone = [measure(out.embedding.select([layer]), own) for out in outs]
                    total[layer] += float(torch.cat(alone).sum())
                    hits = [int(one.argmin()) == k for one in alone]
                    nearest_by_layer[layer][source] = np.mean(hits)
    for layer in layers:
        found = report["layers"][layer]
        assert found["share"] == pytest.approx(total[layer] / sum(total.values()), rel=1e-4)
        for source in SOURCES:
            assert share(found["domain_accuracy"][source]) == nearest_by_layer[layer][source]
    assert sum(one["share"] for one in report["layers"].values()) == pytest.approx(1)


def test_dnet_tells_domains_by_its_own_weights() -> None:
    model = trained("dnet")
    report = analyse(model)
    for k, source in enumerate(SOURCES):
        outs = [out for out, _ in one_by_one(model, model.splits[source].train)]
        hits = np.mean([int(out.weights.argmax()) == k for out in outs])
        assert share(report["sources"]["domain_accuracy"]["train"][source]) == hits
        means = np.mean([out.weights[0].numpy() for out in outs], 0)
        found = [report["sources"]["weights"][source][name] for name in SOURCES]
        np.testing.assert_allclose(found, means, rtol=1e-4)
    assert "similarity" not in report["sources"]
    truth, uniform = [], []
    for out, label in one_by_one(model, of_domain(model, "dslr")):
        truth.append(label)
        uniform.append(int(out.branch_logits[0].mean(0).argmax()))
    found = report["target"]["accuracy"]["by_weighting"]
    assert found.keys() == {"uniform"}
    assert share(found["uniform"]["dslr"]) == accuracy_score(truth, uniform)


@pytest.mark.parametrize("name", [entry.name for entry in bne.methods.entries()])
def test_every_method_can_be_analysed(name: str) -> None:
    model = trained(name)
    report = json.loads(json.dumps(analyse(model)))
    for domain in TARGET:
        right = 0
        for numbers in scoring.batches(torch.tensor(of_domain(model, domain))):
            images = model.transform(model.prepared.pixels[numbers].permute(0, 3, 1, 2))
            with torch.no_grad():
                answers = model.method.predict(images).argmax(1)
            right += int((answers == model.prepared.labels[numbers]).sum())
        found = report["target"]["accuracy"]["prediction"][domain]
        assert found == {"correct": right, "images": len(of_domain(model, domain))}
        assert np.sum(report["target"]["confusion"][domain]) == found["images"]
    assert ("sources" in report) == ("branches" in report) == hasattr(model.method, "explain")


@pytest.mark.parametrize(("option", "value"), [("nearest", 1), ("mix", "statistics")])
def test_branches_that_the_answer_left_out_are_analysed_too(option: str, value: object) -> None:
    model = trained("bne")
    whole = analyse(model)["target"]["accuracy"]
    setattr(model.method.net, option, value)
    found = analyse(model)["target"]["accuracy"]
    for key in ("by_branch", "by_rank", "by_weighting"):
        assert found[key] == whole[key]


def layout(content: object, names: set[str]) -> object:
    """The keys of nested figures, with one for all names."""
    if isinstance(content, dict):
        return {"NAME" if k in names else k: layout(v, names) for k, v in content.items()}
    return [layout(content[0], names)] if isinstance(content, list) else type(content)


def names_in(analysis: dict[str, Any]) -> set[str]:
    sources = analysis.get("sources", {})
    several = (analysis.get("branches", ()), analysis["target"]["confusion"])
    return {*sources.get("weights", ()), *sources.get("layers", ())}.union(*several)


def test_records_keep_their_layout() -> None:
    found = {}
    for file in ("search", "tables"):
        for line in (ROOT / f"results/pacs-resnet18/{file}.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["analysis"]:
                found[record["settings"]["method"]] = record["analysis"]
    assert len(found) > 5
    for method, recorded in found.items():
        ours = json.loads(json.dumps(analyse(trained(method))))
        assert layout(ours, names_in(ours)) == layout(recorded, names_in(recorded)), method
