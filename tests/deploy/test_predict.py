"""Many images: the same answers as one by one, and as the run recorded."""

import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import bne
from bne.data.cache import prepare
from bne.data.feed import Feed
from bne.data.images import pixels
from bne.data.sources import open_images
from bne.deploy.pictures import find_pictures
from bne.deploy.predict import predict
from bne.deploy.rows import choose_columns
from bne.errors import DataError, SettingsError
from bne.inspection.observe import observe
from bne.training.folder import read_training

Runs = dict[str, Path]


@pytest.mark.parametrize("method", ["bne", "deepall", "dnet"])
def test_images_of_the_test_get_the_answers_that_were_recorded(
    runs: Runs, method: str, tmp_path: Path
) -> None:
    model = bne.load(runs[method] / "model.bne", "cpu")
    pictures = find_pictures([runs["data"] / "photo"])
    parts = list(predict(model.engine, model.info, pictures))
    said = {
        Path(name).parent.name + "/" + Path(name).name: answer
        for part in parts
        for name, answer in zip(part.names, part.answers.classes, strict=True)
    }
    result = read_training(runs[method]).result
    (record,) = (own.target["photo"] for own in result.leaning if own.share == result.lean)
    right = sum(name.split("/")[0] == answer for name, answer in said.items())
    assert (right, len(said)) == (record.correct, record.images)
    images = open_images(runs["data"])
    prepared = prepare(images, tmp_path, model.engine.way.size)
    members = {"photo": images.indices_of(["photo"])}
    seen = observe(
        model.engine.method,
        model.engine.transform,
        model.classes,
        prepared,
        Feed(prepared, "cpu"),
        members,
    )
    for number, answer in zip(seen.numbers.tolist(), seen.answers.tolist(), strict=True):
        name = images.files[number].name.removeprefix("photo/")
        assert said[name] == model.classes[answer]


def test_a_stream_of_images_ends_early_fails_and_asks_for_no_gpu(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise AssertionError("CUDA was asked for")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "_lazy_init", refuse)
    engine = bne.load(runs["bne"], "cpu").engine
    size, threads = engine.way.size, threading.active_count()
    parts = list(np.random.default_rng(0).integers(0, 255, (5, 3, size, size, 3), np.uint8))
    for found, part in zip(engine.stream(parts), parts, strict=True):
        assert np.array_equal(found.logits, engine(part).logits)
        assert not torch.is_inference_mode_enabled()
    some = engine.stream(parts)
    next(some)
    some.close()
    with pytest.raises(DataError):
        list(engine.stream([*parts, parts[0][:, 1:]]))
    assert threading.active_count() == threads


def test_prepared_arrays_and_tensors_are_taken_as_they_are(runs: Runs, tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu")
    files = sorted(runs["data"].glob("*/*/*.png"))[:20]
    images = np.stack([pixels(file.read_bytes(), file.name, model.engine.way) for file in files])
    expected = model.predict(files).probabilities
    for given in (images, list(images), torch.from_numpy(images).permute(0, 3, 1, 2)):
        np.testing.assert_allclose(model.predict(given).probabilities, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "image", [np.zeros((0, 5, 3), np.uint8), torch.zeros(3, 5, 0).byte(), Image.new("RGB", (0, 5))]
)
def test_images_without_pixels_are_refused(runs: Runs, image: object) -> None:
    with pytest.raises(DataError, match="has no pixels"):
        bne.load(runs["deepall"], "cpu").predict(image)


def test_a_file_is_read_as_others_are(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bne.load(runs["deepall"], "cpu")
    monkeypatch.setattr("bne.data.entries.MAX_BYTES", 1000)
    (tmp_path / "large.png").write_bytes(b"0" * 1001)
    with pytest.raises(DataError, match=r"large\.png: an image of more than"):
        model.predict(tmp_path / "large.png")
    (tmp_path / "empty").mkdir()
    for none, words in ((tmp_path / "empty", "holds no"), (tmp_path / "absent.png", "no such")):
        with pytest.raises(DataError, match=words):
            model.predict(none)


def test_folders_globs_archives_and_tables_are_taken_beside_images(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bne.load(runs["bne"], "cpu")
    folder = runs["data"] / "photo"
    files = sorted(folder.glob("*/*.png"))
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.write(files[0], "one/0.png")
    (tmp_path / "table.csv").write_text(f"path\n{files[1]}\n")
    monkeypatch.chdir(folder)
    answers = model.predict(
        [files[2].read_bytes(), folder, "*/0.png", tmp_path / "some.zip", tmp_path / "table.csv"]
    )
    globbed = sorted(folder.glob("*/0.png"))
    expected = [files[2], *files, *globbed, files[0], files[1]]
    assert answers.files == (
        None,
        *map(str, files),
        *(str(file.relative_to(folder)) for file in globbed),
        f"{tmp_path}/some.zip/one/0.png",
        str(files[1]),
    )
    alone = model.predict([Image.open(file) for file in expected])
    assert alone.files == (None,) * len(expected)
    np.testing.assert_allclose(answers.probabilities, alone.probabilities, rtol=1e-5)


@pytest.mark.parametrize("abstain", [-0.1, 1.5, float("nan")])
def test_what_is_no_probability_is_refused(runs: Runs, abstain: float) -> None:
    model = bne.load(runs["bne"], "cpu")
    with pytest.raises(SettingsError, match="from 0 to 1"):
        model.predict(runs["data"] / "photo/cat/0.png", abstain=abstain)
    with pytest.raises(SettingsError, match="from 0 to 1"):
        next(predict(model.engine, model.info, [], abstain=abstain))


def test_images_that_cannot_be_read_are_left_out(runs: Runs, tmp_path: Path) -> None:
    model = bne.load(runs["bne"], "cpu")
    files = sorted(runs["data"].glob("*/*/*.png"))[:20]
    (tmp_path / "bad.png").write_bytes(b"no image")
    given = [*files[:3], tmp_path / "bad.png", *files[3:], tmp_path / "absent.png"]
    parts = list(predict(model.engine, model.info, find_pictures(["-"], map(str, given))))
    assert [name for part in parts for name in part.names] == list(map(str, files))
    found = np.concatenate([part.answers.probabilities for part in parts])
    np.testing.assert_allclose(found, model.predict(files).probabilities, rtol=1e-5)
    problems = [problem for part in parts for problem in part.problems]
    assert [str(tmp_path) in problem for problem in problems] == [True, True]
    (only,) = predict(model.engine, model.info, find_pictures(["-"], [str(tmp_path / "bad.png")]))
    assert only.names == []
    assert only.answers is None


def test_the_centre_measures_no_distances_unless_asked_to(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bne.load(runs["bne"], "cpu", mix="centre", lean=0.0)
    pictures = find_pictures([runs["data"] / "photo" / "cat"])
    (with_places,) = predict(model.engine, model.info, pictures)
    monkeypatch.setattr(model.engine.method.net, "_embed", None)  # the instance pass
    (without,) = predict(model.engine, model.info, pictures, places=False)
    assert without.answers.weights is without.answers.distances is None
    assert with_places.answers.unusual is not None
    np.testing.assert_allclose(with_places.answers.seen.logits, without.answers.seen.logits)
    plain = model.engine.method.net.to_plain().eval()
    expected = plain(model.engine.transform.file(Path(pictures[0].name)))
    np.testing.assert_allclose(
        without.answers.seen.logits[:1], expected.detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("method", ["bne", "deepall"])
def test_images_of_one_domain_share_their_statistics(runs: Runs, method: str) -> None:
    model = bne.load(runs[method], "cpu", lean=0.2)
    files = sorted(runs["data"].glob("photo/*/*.png"))
    found = model.predict(files, one_domain=True)
    bad = runs["data"] / "none.png"
    pictures = find_pictures(["-"], map(str, [bad, *files]))
    parts = list(predict(model.engine, model.info, pictures, one_domain=True))
    assert sum(len(part.problems) for part in parts) == 1
    logits = np.concatenate([part.answers.seen.logits for part in parts])
    np.testing.assert_allclose(logits, found.seen.logits, rtol=1e-4, atol=1e-5)
    alone = model.predict(files)
    assert not np.allclose(logits, alone.seen.logits, rtol=1e-3)
    if method == "bne":
        assert (found.weights == found.weights[0]).all()
        assert found.unusual is parts[0].answers.unusual is None
        assert "unusual" not in choose_columns(model.info, None, 1, one_domain=True)
        with pytest.raises(SettingsError, match="one domain"):
            choose_columns(model.info, ["unusual"], 1, one_domain=True)
    one = model.predict(files[0], one_domain=True).seen.logits
    np.testing.assert_allclose(one, alone.seen.logits[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("method", "lean"), [("deepall", 0.0), ("dnet", 0.1)])
def test_models_without_statistics_of_images_refuse_one_domain(runs, method, lean) -> None:
    model = bne.load(runs[method], "cpu", lean=lean)
    with pytest.raises(SettingsError, match="answers image by image"):
        model.predict(runs["data"] / "photo/cat/0.png", one_domain=True)
