"""What the page of a run shows, against the same numbers computed otherwise."""

import base64
import io
import json
import re
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest

from bne.data.cache import PreparedImages
from bne.report.charts import Stage, answers, curves, heaviest, stages
from bne.report.look import SIDES, looks, thumbnails
from bne.report.page import render
from bne.report.run_page import run_page, write_report
from bne.training.events import Score
from bne.training.folder import NO_RUN
from tests.inspection.models import CLASSES, SOURCES, TARGET, analysis
from tests.report.models import training
from tests.report.pages import Reader, data_of

KINDS = {"surely wrong", "most confident", "most mixed"}


@pytest.fixture(scope="module")
def analysed():
    return analysis(layers=["bn2"])


@pytest.fixture(scope="module")
def written(analysed, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_report(tmp_path_factory.mktemp("analysis"), analysed[1])


def test_every_figure_is_a_png_and_a_pdf_and_the_page_asks_for_nothing(written: list[Path]) -> None:
    maps = ["map-all-layers", "map-bn2"]
    figures = [*maps, "similarity", "accuracy", "layers", "calibration", "confusion"]
    folder = written[0].parent
    for name in figures:
        with Image.open(folder / f"{name}.png") as image:
            image.verify()
        pdf = (folder / f"{name}.pdf").read_bytes()
        assert (pdf[:5], b"%%EOF" in pdf[-10:], b"CreationDate" in pdf) == (b"%PDF-", True, False)
    names = [f"{name}.{form}" for name in figures for form in ("png", "pdf")]
    assert [path.name for path in written] == ["index.html", "analysis.json", *names]
    assert {path.name for path in folder.iterdir()} == {path.name for path in written}
    text = written[0].read_text()
    page = Reader(text)
    assert len(text) < 2_000_000
    assert page.asked == []
    assert len(page.ids) == len(set(page.ids))


def test_tables_are_what_the_network_says(analysed, written: list[Path]) -> None:
    """Every image shown again, figures by plain loops."""
    model, found = analysed
    page = Reader(written[0].read_text())
    layers = page.table("By layer, %")
    for name, layer in found.numbers["layers"].items():
        scores = [score["correct"] / score["images"] for score in layer["domain_accuracy"].values()]
        assert layers[name] == [f"{100 * layer['share']:.1f}", f"{100 * np.mean(scores):.1f}"]
    files = model.prepared.images.files
    inputs = model.transform(model.prepared.pixels.permute(0, 3, 1, 2))
    with torch.no_grad():
        out = model.method.explain(inputs)
        own = model.method.predict(inputs).softmax(1).max(1)
    truth = torch.tensor([file.label for file in files])
    right = (own.indices == truth).numpy()
    branches = out.branch_logits.argmax(2) == truth[:, None]
    near = out.distances.argsort(1)
    heads, rows = page.tables["Accuracy, %"][0], page.table("Accuracy, %")
    errors = page.table("Expected calibration error, %")
    similarity = page.table("Mean 1 / distance, and its share of the row")
    for place, domain in enumerate((*SOURCES, *TARGET)):
        here = np.array([model.prepared.images.domains[f.domain] == domain for f in files])
        name = f"{domain} ({'seen' if domain in SOURCES else 'unseen'})"
        assert heads[1 + place] == name
        assert rows["the model"][place] == f"{100 * right[here].mean():.1f}"
        for k, source in enumerate(SOURCES):
            alone = branches[here, k].double().mean()
            ranked = branches.gather(1, near[:, k : k + 1])[here].double().mean()
            rank = ("nearest branch", "2nd nearest branch", "3rd nearest branch")[k]
            assert rows[f"branch {source}"][place] == f"{100 * alone:.1f}"
            assert rows[rank][place] == f"{100 * ranked:.1f}"
        sure, gap = own.values[here].numpy(), 0.0
        for number in range(15):
            inside = (sure > number / 15) & (sure <= (number + 1) / 15)
            if inside.any():
                gap += inside.mean() * abs(right[here][inside].mean() - sure[inside].mean())
        assert float(errors[name][0]) == pytest.approx(100 * gap, abs=0.051)
        means = (1 / out.distances[here]).mean(0)
        for text, mean in zip(similarity[name], means, strict=True):
            value, share = text.rstrip(" %)").split(" (")
            assert float(value) == pytest.approx(float(mean), rel=1e-3)
            assert float(share) == pytest.approx(100 * float(mean / means.sum()), abs=0.51)
        if domain in SOURCES:
            nearest = (near[here, 0] == SOURCES.index(domain)).double().mean()
            own_row = page.table("Images that lie nearest to their own domain")[domain]
            assert own_row == [f"{100 * nearest:.1f}", str(here.sum())]


def test_every_rule_has_its_own_epoch() -> None:
    """Held-out images are best in the third epoch of training, the target in the second."""
    found = training(("art", "photo"), "sketch")
    epochs = [replace(e, target={**e.target, "toy": Score(10, 50)}) for e in found.epochs]
    best = {"art": Score(91, 100), "photo": Score(93, 100)}
    epochs[4] = replace(epochs[4], validation=best)
    epochs[3] = replace(epochs[3], target={"sketch": Score(150, 200), "toy": Score(10, 50)})
    page = Reader(render("run", run_page(None, replace(found, epochs=tuple(epochs)))))
    rows = page.table("Accuracy, %")
    assert rows["epoch"] == ["6 of 6", "5 of 6", "4 of 6", ""]  # as the curves count
    assert rows["sketch (unseen)"] == ["24.0", "22.5", "75.0", "200"]
    assert rows["all that is unseen"] == ["23.2", "22.0", "64.0", "250"]  # by their images
    assert rows["art (held out)"] == ["66.0", "91.0", "54.0", "100"]


def test_curves_have_every_epoch_and_stage() -> None:
    *others, last = training(("art", "photo"), "sketch").epochs
    epochs = [*others, last, replace(last, statistics="exact", loss=float("nan"))]
    drawn = curves(epochs, looks(["art", "photo", "sketch"], ["art", "photo"]))
    assert drawn.loss[0].y == [2, 1, 0.6667, 0.5, 0.4, 0.3333, None]
    names = {"warm-up": (3, 4), "distance training": (5, 6), "exact statistics": (7, 7)}
    assert drawn.stages == stages(epochs)
    assert drawn.stages[1:] == [Stage(name, *ends) for name, ends in names.items()]
    assert [line.dash for line in drawn.accuracy] == ["solid", "solid", "dash"]
    assert drawn.accuracy[-1].y == [16.5, 18, 19.5, 21, 22.5, 24, 24]


@pytest.mark.parametrize("method", ["deepall", "dnet"])
def test_methods_without_a_space_of_domains(method: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    _, found = analysis(method)
    names = {path.stem for path in write_report(tmp_path, found)}
    assert names == {"index", "analysis", "accuracy", "calibration", "confusion"}
    page = (tmp_path / "index.html").read_text().replace("&#39;", "'")
    (sentence,) = found.numbers["left_out"]
    assert sentence in page
    assert NO_RUN in page
    sections = Reader(page).sections
    assert not set(sections) & {"map", "similarity", "layers", "settings"}
    assert set(found.examples) == ({"surely wrong"} if method == "deepall" else KINDS)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "analysis.json").read_text())["model"]["method"] == method


def unpacked(column: dict) -> np.ndarray:
    """(C, M), as `map.js` reads it."""
    low, high = np.frombuffer(zlib.decompress(base64.b64decode(column["bytes"])), "u1").reshape(
        2, -1
    )
    return (column["low"] + column["step"] * (low + 256.0 * high)).reshape(-1, 125)


def test_the_map_has_every_image(analysed, written: list[Path]) -> None:
    model, found = analysed
    data = data_of(written[0].read_text(), "map-data")
    points, sheet = data["points"], data["sheet"]
    names = zlib.decompress(base64.b64decode(points["name"])).decode().split("\0")
    assert {len(unpacked(points[key])[0]) for key in {*points} - {"name"}} == {len(names)} == {125}
    for one, drawn in zip(found.maps, data["maps"], strict=True):
        span = np.ptp(np.concatenate([one.images, one.domains]))
        np.testing.assert_allclose(unpacked(drawn["places"]).T, one.images, atol=span / 8000)
        np.testing.assert_allclose(np.exp(unpacked(drawn["logs"])).T, one.distances, rtol=3e-3)
        assert unpacked(drawn["neighbors"]).T.tolist() == one.neighbors.tolist()
    weights = [list(point.weights.values()) for point in found.points]
    np.testing.assert_allclose(unpacked(points["weights"]).T, weights, atol=6e-4)
    number = [file.name for file in model.prepared.images.files].index(names[17])
    with Image.open(io.BytesIO(base64.b64decode(sheet["href"].split(",")[1]))) as image:
        row, column = divmod(17, sheet["columns"])
        corner = column * sheet["side"], row * sheet["side"]
        own = image.crop((*corner, *(place + sheet["side"] for place in corner)))
    off = np.array(own.resize((32, 32)), float) - model.prepared.pixels[number].numpy()
    assert np.abs(off.mean((0, 1))).max() < 4


def test_the_answer_and_the_findings_are_what_the_network_says(analysed) -> None:
    """Against Wilson's interval in scipy, and plain counts."""
    _, found = analysed
    observed = found.observed
    page = run_page(found, None)
    rows = torch.cat([observed.rows([name])[name] for name in TARGET])
    right = observed.answers[rows] == observed.truth[rows]
    exact = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    share, low, high = (100 * value for value in (right.double().mean(), exact.low, exact.high))
    assert (
        f"On dslr and webcam, which training never saw, {share:.1f} % of 50 images are classified "
        f"rightly (95 % interval {low:.1f} to {high:.1f}; chance is 33.3 %)." in page.lead.sentence
    )
    assert [one.name for one in page.lead.domains][:3] == [
        "dslr (unseen)",
        "webcam (unseen)",
        "art (seen)",
    ]
    means = observed.weights[observed.rows(["dslr"])["dslr"]].mean(0)
    assert f"{SOURCES[int(means.argmax())]} to dslr" in page.lead.sentence
    told = "\n".join(page.findings)
    for domain in TARGET:
        own = observed.rows([domain])[domain]
        wrong = (observed.answers[own] != observed.truth[own]).sum()
        assert f"Of {domain}, {wrong} of {len(own)} images are lost" in told
        pairs = zip(observed.truth[own].tolist(), observed.answers[own].tolist(), strict=True)
        pairs_of = Counter(pair for pair in pairs if len({*pair}) == 2)
        count = max(pairs_of.values())
        first = next(one for one in page.findings if one.startswith(f"Of {domain}"))
        named = re.search(r"taken: (\w+) for (\w+) \((\d+) of", first).groups()
        assert int(named[2]) == count
        ours = CLASSES.index(named[0]), CLASSES.index(named[1])
        assert pairs_of[ours] == count
    shares = {name: layer["share"] for name, layer in found.numbers["layers"].items()}
    most = max(shares, key=shares.__getitem__)
    assert f"Layer {most} carries most of the distance, {100 * shares[most]:.0f} %" in told


def test_an_image_has_few_bars_however_many_domains() -> None:
    weights = {f"d{k}": (k * 7 % 20) / 190 for k in range(20)}
    assert list(heaviest(weights)) == [f"d{k}" for k in range(20) if k * 7 % 20 >= 12]


def test_answers_are_named_whatever_their_number() -> None:
    one = {"a": {"correct": 1, "images": 1}}
    named = list(answers({"prediction": one, "by_rank": [one] * 122}))
    shown = " ".join(named[k].split()[0] for k in (2, 3, 11, 12, 13, 21, 122))
    assert shown == "2nd 3rd 11th 12th 13th 21st 122nd"


def test_many_noisy_thumbnails_keep_to_their_budget() -> None:
    noise = torch.randint(0, 256, (20, 96, 96, 3), dtype=torch.uint8)
    prepared = PreparedImages(None, noise, Path())
    for largest, budget in ((72, 18_000), (128, 60_000), (28, 10**9)):
        found = thumbnails(prepared, range(20), largest, budget)
        assert 0.3 * min(budget, 25_000) < sum(map(len, found)) <= budget
        kind, content = found[0].split(",")
        assert kind == "data:image/jpeg;base64"
        with Image.open(io.BytesIO(base64.b64decode(content))) as image:
            assert image.format == "JPEG"
            assert image.width in [side for side in SIDES if side <= largest]


def test_domains_look_different() -> None:
    names = [f"d{k}" for k in range(24)]
    found = looks(names, seen=names[:12])
    assert len({(look.colour, look.marker) for look in found.values()}) == 24
    assert len({look.colour for look in list(found.values())[:8]}) == 8
    seen = {look.marker for look in found.values() if look.seen}
    assert not seen & {look.marker for look in found.values() if not look.seen}
