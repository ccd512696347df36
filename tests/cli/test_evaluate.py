import re
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
    same = report["measures"]["domains"]["photo"]["accuracy"]
    assert (same["low"], same["high"]) == (found["low"], found["high"])
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
    data: Path, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    data = shutil.copytree(data, tmp_path / "data")
    for file in sorted((data / "photo/cat").iterdir())[1:]:
        file.unlink()
    shutil.rmtree(data / "sketch/cat")
    said = bne("evaluate", trained[0], "--data", data, "--positive", "dog").out
    assert "Balanced accuracy leads: in photo the largest class" in " ".join(said.split())
    titles = next(line for line in said.splitlines() if "AUROC" in line)
    columns = re.split(" {2,}", titles)
    assert columns.index("balanced accuracy") < columns.index("accuracy")
    assert "of the class dog" in said
    assert " – " in next(line for line in said.splitlines() if line.startswith("sketch"))


def test_the_table_says_which_domains_were_seen_and_fits_the_terminal(
    data: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder, score = trained
    command = ("evaluate", run_folder, "--data", data, "--domains", "art,photo")
    names = [line.split("  ")[0] for line in bne(*command).out.splitlines()]
    assert names.index("photo") + 1 == names.index("art, seen")  # the unseen one first
    assert not {"sketch", "sketch, seen"} & set(names)
    share = f"{100 * score['correct'] / score['images']:.1f} ("
    for width in ("60", "80", "120"):
        monkeypatch.setenv("COLUMNS", width)
        lines = bne(*command, "--branches", "--classes").out.splitlines()
        assert max(map(len, lines)) <= int(width)
        assert any(line.startswith("photo ") and share in line for line in lines)
        shown = " ".join(lines)
        assert all(name in shown for name in ("nearest", "uniform", "branch", "cat", "dog"))


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


def test_errors_are_one_sentence(data: Path, trained: Trained, runs: dict[str, Path]) -> None:
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
        (
            (run_folder, "--data", data, "--branches", "--against", run_folder),
            "--branches is of one model",
        ),
        (
            (run_folder, "--data", data, "--positive", "dog", "--against", run_folder),
            "--positive is of one model",
        ),
        (
            (runs["deepall"], "--data", runs["data"], "--branches"),
            "deepall has no branches that it weighs; leave it out",
        ),
        ((run_folder, "--data", data, "--margin", 1), "name it with --against"),
        ((run_folder, "--data", data, "--against", data), "is no model folder"),
        ((run_folder, "--data", data, "--mix", "mean"), "bne has no mix mean"),
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


def test_intervals_draw_groups_where_they_are_known(runs: dict[str, Path], tmp_path: Path) -> None:
    data, run = runs["data"], runs["deepall"]
    command = ("evaluate", run, "--data", data, "--domains", "photo")
    plain = bne(*command, "--json").json
    grouped = bne(*command, "--group", r"(\d)", "--json").json
    assert (plain["groups"], grouped["groups"]) == (None, {"photo": 6})
    values = [report["measures"]["domains"]["photo"]["accuracy"] for report in (plain, grouped)]
    assert values[0]["value"] == values[1]["value"]
    copy = shutil.copytree(data, tmp_path / "data")
    files = [path.relative_to(copy) for path in copy.rglob("*.png")]
    rows = [f"{path},{path.parts[1]},{path.parts[0]},{path.stem}" for path in files]
    (copy / "images.csv").write_text("\n".join(["path,class,domain,group", *rows]))
    listed = bne("evaluate", run, "--data", copy / "images.csv", "--domains", "photo", "--json")
    assert listed.json["measures"] == grouped["measures"]
    said = bne(*command, "--group", r"(\d)").out
    assert "Intervals draw groups: 6 of photo." in said
    assert "In photo there are fewer than 10 groups" in said
    same = copy / "images.csv"
    assert "is a file to read" in refusal("evaluate", run, "--data", same, "--scores", same)
    assert "group '(x)' matches no file name" in refusal(*command, "--group", "(x)")


def test_the_pattern_of_the_run_is_used_where_it_matches(
    data: Path, trained: Trained, tmp_path: Path
) -> None:
    run = shutil.copytree(trained[0], tmp_path / "run")
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("group: null", r"group: (\d)"))
    command = ("evaluate", run, "--domains", "photo", "--json", "--data")
    assert bne(*command, data).json["groups"] == {"photo": 6}
    other = shutil.copytree(data, tmp_path / "other")
    for path in list(other.rglob("*.png")):
        path.rename(path.with_name(f"{'abcdef'[int(path.stem)]}.png"))
    assert bne(*command, other).json["groups"] is None


def test_against_another_model_by_groups_and_by_balanced_accuracy(
    runs: dict[str, Path], here: Path
) -> None:
    data = shutil.copytree(runs["data"], here / "data")
    for file in sorted((data / "photo/cat").iterdir())[1:]:
        file.unlink()
    command = ("evaluate", runs["bne"], "--data", data, "--against", runs["deepall"])
    command = (*command, "--domains", "photo", "--group", r"(\d)")
    report = bne(*command, "--json").json
    assert (report["groups"], report["leading"]) == (6, "balanced_accuracy")
    assert report["unbalanced"] == ["photo"]
    for whose, method in (("model", "bne"), ("against", "deepall")):
        scores = ("evaluate", runs[method], "--data", data, "--domains", "photo", "--scores")
        bne(*scores, f"{method}.csv")
        table = pandas.read_csv(f"{method}.csv")
        expected = balanced_accuracy_score(table["class"], table.prediction)
        assert report["total"]["balanced"][whose] == pytest.approx(100 * expected)
    assert report["classes"]["dog"]["balanced"] is None
    low = report["total"]["balanced"]["low"]
    said = bne(*command, "--margin", 0, code=4 if low < 0 else 0)
    assert "draw 6 groups" in said.out
    assert "Balanced accuracy leads: in photo" in said.out
