"""Models on the Hub, with a local folder in its place."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError

import bne
from bne.errors import DataError

Runs = dict[str, Path]


@pytest.mark.parametrize("method", ["bne", "deepall"])
def test_a_folder_holds_what_the_hub_would(runs: Runs, method: str, tmp_path: Path) -> None:
    model = bne.load(runs[method], "cpu")
    model.save_pretrained(tmp_path / "repository")
    again = bne.from_pretrained(str(tmp_path / "repository"), "cpu")
    assert again.id == model.id
    card = ModelCard.load(tmp_path / "repository/README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("bne", "image-classification")
    own = model.info.accuracy["target"]["photo"]
    assert f"| {own['images']} | {own['correct']} |" in card.text
    assert ("nearest_domains" in card.text) == (method == "bne")
    assert str(tmp_path) not in card.text


def test_learned_shares_are_kept_and_told(data: Path, tmp_path: Path) -> None:
    small = {"backbone": "small_cnn", "weights": None, "resize": 40, "batch_size": 4, "epoch": 2}
    small |= {"head": {"epochs": 0}, "epochs": 1, "warmup": 0, "validation": 0.2}
    options = {"method": "points", "options": {"learn_lean": True}, "cache": tmp_path / "cache"}
    run = bne.train(data, "photo", device="cpu", out=tmp_path / "run", **options, **small)
    model = bne.load(run.folder / "model.bne", "cpu")
    assert model.info.lean == run.result.lean != {}
    (learned,) = (own for own in run.result.leaning if own.share == "learned")
    assert model.info.accuracy["target"]["photo"] == vars(learned.target["photo"])
    files = sorted(data.glob("photo/*/*.png"))
    names = [file.parent.name for file in files]
    right = sum(map(str.__eq__, model.predict(files).classes, names))
    assert right == learned.target["photo"].correct
    model.save_pretrained(tmp_path / "repository")
    assert "a learned share" in (tmp_path / "repository/README.md").read_text()


def test_what_is_pushed_comes_back(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = tmp_path / "hub"

    def upload(self: HfApi, *, repo_id: str, folder_path: str, **_: object) -> str:
        shutil.copytree(folder_path, hub / repo_id)
        return f"https://hub/{repo_id}"

    def download(repo_id: str, filename: str, **_: object) -> str:
        return str(hub / repo_id / filename)

    def create(self: HfApi, repo_id: str, **_: object) -> object:
        return type("Address", (), {"repo_id": repo_id})()

    monkeypatch.setattr(HfApi, "create_repo", create)
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    for place in ("huggingface_hub.hub_mixin", "bne.deploy.hub"):
        monkeypatch.setattr(f"{place}.hf_hub_download", download)
    model = bne.load(runs["bne"], "cpu")
    assert model.push_to_hub("me/mine", private=True) == "https://hub/me/mine"
    assert bne.from_pretrained("me/mine", "cpu").id == model.id


def test_what_the_hub_does_not_take_is_one_sentence(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bne.load(runs["bne"], "cpu")
    unreachable = HfHubHTTPError.__bases__[0]  # of the library below, whichever it is
    with pytest.raises(DataError, match="no name: the model cannot be pushed"):
        model.push_to_hub("no name")
    for error in (unreachable("refused\nadvice"), unreachable(""), OSError("no token")):
        monkeypatch.setattr(HfApi, "create_repo", raising(error))
        with pytest.raises(DataError) as caught:
            model.push_to_hub("me/mine")
        assert "\n" not in str(caught.value)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for name, options in ((str(tmp_path), {}), ("no/such", {"local_files_only": True})):
        with pytest.raises(DataError) as caught:
            bne.from_pretrained(name, "cpu", cache_dir=tmp_path / "cache", **options)
        assert "\n" not in str(caught.value)
