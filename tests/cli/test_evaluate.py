import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from bne import api
from bne.data.cache import prepare
from bne.data.sources import open_images
from tests.benchmark.test_execute import item
from tests.cli.command import SETTINGS, bne, refusal
from tests.training.small import run

Trained = tuple[Path, dict[str, int]]


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The folder of a run on the pictures, and its score on the target."""
    folder = tmp_path_factory.mktemp("evaluate")
    prepared = prepare(open_images(data), folder / "cache", 32)
    result = run(item("bne").recipe, prepared, folder / "run")
    (score,) = (own.target["photo"] for own in result.leaning if own.share == result.lean)
    return folder / "run", {"correct": score.correct, "images": score.images}


@pytest.mark.parametrize("folder", [".", "model"])
def test_json_has_what_training_found(data: Path, trained: Trained, folder: str) -> None:
    run_folder, score = trained
    report = bne("evaluate", run_folder / folder, "--data", data, "--json").json
    assert (report["method"], report["trained_on"]) == ("bne", ["art", "sketch"])
    assert list(report["domains"]) == ["art", "photo", "sketch"]
    photo = report["domains"]["photo"]
    assert list(photo) == ["prediction", "nearest", "uniform", "branch art", "branch sketch"]
    found = photo["prediction"]["all classes"]
    assert found.items() >= score.items()
    assert found["low"] <= found["accuracy"] <= found["high"]
    assert list(photo["branch art"]) == ["all classes", "cat", "dog"]


def test_measures_and_scores_are_those_of_scikit_learn(
    data: Path, trained: Trained, tmp_path: Path
) -> None:
    run_folder, score = trained
    command = ("evaluate", run_folder, "--data", data, "--scores")
    report = bne(*command, tmp_path / "scores.csv", "--json").json["measures"]
    bne(*command, tmp_path / "scores.parquet", "--domains", "photo")
    table = pandas.read_csv(tmp_path / "scores.csv")
    assert (report["leading"], report["unbalanced"]) == ("accuracy", [])
    columns = ["probability_cat", "probability_dog"]
    assert list(table) == ["file", "domain", "class", "prediction", *columns]
    assert set(table.file) == {file.name for file in open_images(data).files}
    for domain, own in table.groupby("domain"):
        found = report["domains"][domain]
        balanced = balanced_accuracy_score(own["class"], own.prediction)
        assert found["balanced_accuracy"]["value"] == pytest.approx(100 * balanced)
        area = roc_auc_score(own["class"] == "dog", own.probability_dog)
        assert found["auroc"]["value"] == pytest.approx(100 * area)
    photo = table[table.domain == "photo"].reset_index(drop=True)
    assert (photo["class"] == photo.prediction).sum() == score["correct"]
    pandas.testing.assert_frame_equal(photo, pandas.read_parquet(tmp_path / "scores.parquet"))
    # What `bne predict` says of the same image.
    answers = api.load(run_folder, "cpu").predict(data / photo.file[0])
    chances = photo[columns].to_numpy()[0]
    np.testing.assert_allclose(answers.probabilities[0], chances, rtol=1e-4)


def test_balanced_accuracy_leads_where_classes_are_unbalanced(
    data: Path, trained: Trained, tmp_path: Path
) -> None:
    data = shutil.copytree(data, tmp_path / "data")
    for file in sorted((data / "photo/cat").iterdir())[1:]:
        file.unlink()
    shutil.rmtree(data / "sketch/cat")
    said = bne("evaluate", trained[0], "--data", data, "--positive", "dog").out
    assert "Balanced accuracy leads: in photo the largest class" in said
    titles = next(line for line in said.splitlines() if "AUROC" in line)
    assert titles.index("balanced accuracy") < titles.index(" accuracy ")
    assert "of the class dog" in said
    assert "–" in next(line for line in said.splitlines()[-9:] if "sketch" in line)


def test_the_table_says_which_domains_were_seen(data: Path, trained: Trained) -> None:
    run_folder, score = trained
    output = bne("evaluate", run_folder, "--data", data, "--domains", "photo,art").out
    assert "art, seen in training" in output
    assert "photo, seen" not in output
    assert "sketch, seen" not in output
    assert f"{100 * score['correct'] / score['images']:.1f}" in output
    assert "95 % bootstrap intervals" in output


def test_images_that_cannot_be_read_are_named_or_left_out(
    data: Path, trained: Trained, tmp_path: Path
) -> None:
    run_folder, score = trained
    data = shutil.copytree(data, tmp_path / "data")
    (data / "art/cat/-.png").write_bytes(b"no image")
    command = ("evaluate", run_folder, "--data", data, "--json")
    assert "art/cat/-.png" in bne(*command, code=1).err
    said = bne(*command, "--skip-bad")
    assert "Skipped: art/cat/-.png" in said.err
    found = said.json["domains"]
    assert found["art"]["prediction"]["all classes"]["images"] == 12
    assert found["photo"]["prediction"]["all classes"].items() >= score.items()


@pytest.mark.parametrize("verb", ["evaluate", "analyze"])
def test_only_the_domains_asked_for_must_fit(
    data: Path, trained: Trained, verb: str, tmp_path: Path
) -> None:
    data = shutil.copytree(data, tmp_path / "data")
    (data / "art/cat").rename(data / "art/ant")  # of which the model knows nothing
    run_folder = shutil.copytree(trained[0], tmp_path / "run")
    command = (verb, run_folder, "--data", data, "--json", "--domains")
    assert "does not know the class 'ant'" in refusal(*command, "photo,art")
    report = bne(*command, "photo").json
    if verb == "evaluate":
        found = report["domains"]["photo"]["prediction"]["all classes"]
        assert found.items() >= trained[1].items()
    else:
        assert report["accuracy"]["prediction"]["photo"] == trained[1]


def test_errors_are_one_sentence(data: Path, trained: Trained) -> None:
    run_folder, _ = trained
    for arguments, message in (
        ((data, "--data", data), "is no model folder"),
        ((run_folder / "recipe.yaml", "--data", data), "is no model file"),
        ((run_folder, "--data", data, "--positive", "dgo"), "--positive dgo is no class"),
        ((run_folder, "--data", data, "--scores", "s.txt"), "--scores s.txt: end the name in"),
        (
            (run_folder, "--data", data, "--scores", "s.csv", "--against", run_folder),
            "--scores is of one model",
        ),
        ((run_folder, "--data", data, "--margin", 1), "name it with --against"),
        ((run_folder, "--data", data, "--against", data), "is no model folder"),
        ((run_folder, "--data", data, "--mix", "mean"), "mix mean is unknown"),
        ((run_folder, "--data", data, "--domains", "foto"), "There is no domain 'foto'"),
        ((run_folder, "--data", data / "nowhere"), "no such file or folder"),
    ):
        assert message in refusal("evaluate", *arguments)


def test_a_name_with_a_comma_is_one_name(data: Path, tmp_path: Path) -> None:
    copy, run_folder = shutil.copytree(data, tmp_path / "data"), tmp_path / "run"
    (copy / "sketch").rename(copy / "Oslo, North")
    command = ("train", "--data", copy, *SETTINGS, "--out", run_folder, "--target")
    bne(*command, "Oslo, North")
    evaluate = ("evaluate", run_folder, "--data", copy, "--json", "--domains")
    for domains, expected in (("Oslo, North", {"Oslo, North"}), ("art, photo", {"art", "photo"})):
        assert set(bne(*evaluate, domains).json["domains"]) == expected
    assert "target has 'Oslo', no domain of the data; " in refusal(*command, "Oslo")


def test_two_models_are_compared_image_by_image(data: Path, runs: dict[str, Path]) -> None:
    command = ("evaluate", runs["bne"] / "model.bne", "--data", data, "--against", runs["deepall"])
    report = bne(*command, "--json").json
    for whose, method in (("correct", "bne"), ("against", "deepall")):
        alone = bne("evaluate", runs[method], "--data", data, "--json").json["domains"]
        for domain, own in report["domains"].items():
            assert own[whose] == alone[domain]["prediction"]["all classes"]["correct"]
    total = report["total"]
    assert total["images"] == sum(own["images"] for own in report["classes"].values()) == 36
    assert total["gained"] - total["lost"] == total["correct"] - total["against"]
    assert f"{total['low']:+.1f} to {total['high']:+.1f}" in bne(*command).out
    itself = ("evaluate", runs["bne"], "--data", data, "--against", runs["bne"], "--json")
    assert bne(*itself, "--margin", 0).json["total"]["p"] == 1
    worse = -total["low"] - 0.01
    if worse > 0:
        assert "may be worse" in bne(*command, "--margin", worse, code=4).err
    bne(*command, "--margin", 100)
