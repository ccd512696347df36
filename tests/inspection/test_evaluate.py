from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score

from bne.errors import DataError, SettingsError
from bne.inspection.analysis import analyse, analyse_images
from bne.inspection.evaluate import ALL, Accuracy, accuracies, show
from bne.training import scores
from tests.inspection.models import CLASSES, SOURCES, TARGET, trained
from tests.training.small import only


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_accuracy(counts: tuple[int, int]) -> None:
    right = np.arange(counts[1]) < counts[0]
    share = Accuracy.of(right)
    assert 0 <= share.low <= share.accuracy <= share.high <= 100
    assert share.high - share.low > 0.5
    expected = binomtest(*counts).proportion_ci(method="wilson")
    assert (share.low, share.high) == pytest.approx((100 * expected.low, 100 * expected.high))


def evaluate(model, domains=TARGET):
    return accuracies(show(model.method, model.transform, CLASSES, model.prepared, domains))


def analyse_anew(model):
    info = SimpleNamespace(classes=CLASSES, domains=SOURCES)
    return analyse_images(model.method, model.transform, info, model.prepared, TARGET, images=2)


@pytest.mark.parametrize("method", ["bne", "deepall"])
@pytest.mark.parametrize("use", [evaluate, analyse, analyse_anew])
def test_answers_that_are_no_numbers_are_refused(use, method: str) -> None:
    model = trained(method)
    next(b for n, b in model.method.named_buffers() if n.endswith("running_var")).fill_(torch.nan)
    with pytest.raises(DataError, match="not finite"):
        use(model)


@pytest.mark.parametrize("method", ["bne", "dnet", "deepall"])
def test_accuracies_are_those_of_the_analysis(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "BATCH", 7)
    model = trained(method)
    found = evaluate(model)
    expected = analyse(model)["target"]["accuracy"]
    for domain in TARGET:
        shares = {whose: by_class[ALL] for whose, by_class in found[domain].items()}

        def check(whose: str, score, domain=domain, shares=shares) -> None:
            assert (shares[whose].correct, shares[whose].images) == tuple(score[domain].values())

        check("prediction", expected["prediction"])
        if method == "deepall":
            assert list(shares) == ["prediction"]
            continue
        check("nearest", expected["by_rank"][0])
        check("uniform", expected["by_weighting"]["uniform"])
        for source in SOURCES:
            check(f"branch {source}", expected["by_branch"][source])


def test_classes_are_those_of_sklearn() -> None:
    model = trained("bne")
    numbers = model.prepared.images.indices_of(["dslr"])
    pixels = model.prepared.pixels[numbers].permute(0, 3, 1, 2)
    with torch.no_grad():
        answers = model.method.predict(model.transform(pixels)).argmax(1).numpy()
    truth = model.prepared.labels[numbers].numpy()
    shares = evaluate(model)["dslr"]["prediction"]
    assert list(shares) == [ALL, *CLASSES]
    for label, name in enumerate(CLASSES):
        own = truth == label
        expected = 100 * accuracy_score(truth[own], answers[own])
        assert shares[name].accuracy == pytest.approx(expected)


def test_classes_are_matched_by_name() -> None:
    model = trained("deepall")
    fewer = only(model.prepared, [i for i, n in enumerate(model.prepared.labels.tolist()) if n])
    # The data know two of the classes, in another order.
    files = tuple(replace(file, label={1: 1, 2: 0}[file.label]) for file in fewer.images.files)
    fewer = replace(fewer, images=replace(fewer.images, classes=("emu", "dog"), files=files))
    found = accuracies(show(model.method, model.transform, CLASSES, fewer, ["dslr"]))
    expected = evaluate(model, ["dslr", "dslr"])["dslr"]["prediction"]  # twice, tested once
    shares = found["dslr"]["prediction"]
    assert list(shares) == [ALL, "dog", "emu"]
    assert (shares["dog"], shares["emu"]) == (expected["dog"], expected["emu"])


def test_an_unknown_class_or_domain_is_named_and_one_named_like_the_total() -> None:
    model = trained("deepall")
    with pytest.raises(DataError, match=f"class is named '{ALL}'"):
        accuracies(show(model.method, model.transform, [ALL, "dog"], model.prepared, TARGET))
    with pytest.raises(DataError, match="does not know the class 'emu'"):
        accuracies(show(model.method, model.transform, CLASSES[:2], model.prepared, TARGET))
    with pytest.raises(SettingsError, match="no domain 'nowhere'"):
        evaluate(model, ["nowhere"])


def test_names_of_ours_as_names_of_domains_and_classes_hide_no_figure(monkeypatch) -> None:
    model = trained("bne")
    expected = evaluate(model)["dslr"]["prediction"][ALL]
    names = ("prediction", "nearest", "uniform")
    monkeypatch.setattr(model.method.net, "domains", names)
    classes = ("all", *CLASSES[1:])
    prepared = replace(model.prepared, images=replace(model.prepared.images, classes=classes))
    found = accuracies(show(model.method, model.transform, classes, prepared, ["dslr"]))["dslr"]
    assert found["prediction"][ALL] == expected
    assert found["prediction"]["all"].images < expected.images
    assert list(found) == ["prediction", "nearest", "uniform", *(f"branch {n}" for n in names)]


def test_a_domain_without_images_is_named() -> None:
    model = trained("deepall")
    fewer = only(model.prepared, model.prepared.images.indices_of([*SOURCES, "webcam"]))
    with pytest.raises(DataError, match="Domain 'dslr' has no images"):
        accuracies(show(model.method, model.transform, CLASSES, fewer, ["dslr"]))
