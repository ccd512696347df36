"""Whole runs, on images and a network that take a second."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import yaml

from bne.errors import TrainingError
from bne.methods import DeepAll
from bne.recipes.inputs import split_sources
from bne.recipes.schema import Averaging, HeadPhase, Optimiser, Phase
from bne.training.events import Epoch, Listener
from bne.training.folder import Result
from bne.training.model_folder import load_model
from bne.training.scores import best_on_validation
from tests.training import small
from tests.training.small import run, timeless


class Notes(Listener):
    def __init__(self) -> None:
        self.heard: list = []

    def note(self, event):
        self.heard.append(event)

    started = stepped = finished_epoch = finished = note


@pytest.fixture(scope="module")
def images():
    return small.images()


@pytest.fixture(scope="module")
def done(images, tmp_path_factory):
    """A run of BNE: its folder, its result and what a listener heard."""
    folder = tmp_path_factory.mktemp("runs") / "bne"
    notes = Notes()
    analyse = lambda trained: {"mode": trained.method.training}  # noqa: E731
    result = run(small.recipe(), images, folder, listeners=[notes], analyse=analyse)
    return folder, result, notes.heard


def weights(folder: Path, model: str = "model") -> dict[str, torch.Tensor]:
    return small.tensors(folder / model / "model.safetensors")


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_a_run_learns_and_its_folder_holds_everything(done) -> None:
    folder, result, _ = done
    assert result.accuracy["last"]["sketch"].accuracy > 60  # a third by chance
    assert Result.from_dict(json.loads((folder / "result.json").read_text())) == result
    assert yaml.safe_load((folder / "recipe.yaml").read_text()) == result.recipe
    assert json.loads((folder / "environment.json").read_text()) == result.environment
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [Epoch.from_dict(json.loads(line)) for line in lines] == result.epochs
    phases = [f"{e.phase} {e.epoch}, {e.stage}" for e in result.epochs]
    assert phases[:4] == ["head 1, head", "head 2, head", "train 1, warm-up", "train 2, warm-up"]
    assert phases[4:] == ["train 3, distance training", "train 4, distance training"]
    assert result.precision == "float32"  # whatever the recipe asks, on the CPU
    assert result.target_images == "unseen"
    assert result.analysis == {"mode": False}
    assert (folder / "best/model.json").exists()
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert kept[-2:] == ["step-00000025", "step-00000030"]
    assert len(kept) <= 3


def test_listeners_hear_every_step_and_epoch(done) -> None:
    _, result, heard = done
    assert heard[0].steps == 30
    found = {domain: len(numbers) for domain, numbers in heard[0].inputs.train.items()}
    assert found == {"art": 18, "cartoon": 18, "photo": 18}
    assert heard[-1] is result
    assert [e for e in heard if isinstance(e, Epoch)] == result.epochs
    steps = [step for step in heard[1:-1] if not isinstance(step, Epoch)]
    assert [step.step for step in steps] == [1, 2, 3, 4] * 6  # the last is the epoch's


def test_a_finished_run_is_returned_as_it_is(done, images) -> None:
    folder, result, _ = done
    before = (folder / "result.json").stat().st_mtime_ns
    assert run(small.recipe(), images, folder) == result
    assert (folder / "result.json").stat().st_mtime_ns == before


def test_another_recipes_folder_is_refused_by_the_first_key_that_differs(done, images) -> None:
    folder, _, _ = done
    other = small.recipe(train=Phase(4, warm_up=1))
    with pytest.raises(TrainingError, match=r"train\.warm_up is 2 there and 1 here"):
        run(other, images, folder, resume=True)


@pytest.mark.parametrize("content", [b"[", b"- 1", b"\xff\xfe\x00\xd8\xd8"])
def test_a_recipe_that_lies_in_the_folder_is_not_replaced(images, tmp_path, content) -> None:
    (tmp_path / "recipe.yaml").write_bytes(content)
    with pytest.raises(TrainingError, match=r"recipe\.yaml"):
        run(small.recipe(), images, tmp_path)


def test_the_same_seed_gives_the_same_numbers_and_another_others(done, images, tmp_path) -> None:
    folder, result, _ = done
    torch.manual_seed(99)
    state = torch.get_rng_state()
    again = run(small.recipe(), images, tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), state)  # the caller's generator is left alone
    assert timeless(again.epochs) == timeless(result.epochs)
    assert same(weights(tmp_path / "again"), weights(folder))
    run(small.recipe(seed=4), images, tmp_path / "other")
    assert not same(weights(tmp_path / "other"), weights(folder))


def test_the_head_phase_is_the_same_for_every_method(done, images, tmp_path) -> None:
    _, bne, _ = done
    deepall = run(small.recipe("deepall", train=Phase(1)), images, tmp_path / "run")
    assert timeless(deepall.epochs[:2]) == timeless(bne.epochs[:2])


def test_the_head_phase_trains_the_last_layer_alone(images, tmp_path) -> None:
    still = Phase(1, optimiser=Optimiser("sgd", learning_rate=0.0))
    states = []
    for epochs in (0, 3):
        fast = HeadPhase(epochs, Optimiser("sgd", learning_rate=1.0))
        folder = tmp_path / str(epochs)
        run(small.recipe("freeze-bn", head=fast, train=still), images, folder)
        states.append(weights(folder))
    changed = {k for k in states[0] if not torch.equal(states[0][k], states[1][k])}
    assert changed == {"net.fc.weight", "net.fc.bias"}


def stained(prepared):
    """The same images in colours that tell the class less well, so that accuracy takes a while."""
    generator = torch.Generator().manual_seed(0)
    stains = torch.randn(len(prepared), 1, 1, 3, generator=generator) * 40
    pixels = (prepared.pixels + stains).clamp(0, 255).to(torch.uint8)
    return dataclasses.replace(prepared, pixels=pixels)


@pytest.mark.parametrize("method", ["deepall", "bne", "bne-adapt"])
def test_the_target_never_reaches_training_or_selection(images, tmp_path, method) -> None:
    unlabelled = method == "bne-adapt"  # whose training is given the target's images
    fast = Phase(12, warm_up=1, optimiser=Optimiser("adam", 3e-2, head_factor=1.0))
    statistics = {"calibrate": True, "exact_statistics": True}
    recipe = small.recipe(method, train=fast, epoch=10, patience=3, **statistics)
    images = stained(images)
    spoilt = small.mislabelled(images, "sketch")
    results = {}
    for name, data in {
        "true": images,
        "target": spoilt if unlabelled else small.blackened(spoilt, "sketch"),
        "source": small.mislabelled(images, "photo"),
    }.items():
        results[name] = run(recipe, data, tmp_path / name)
    true, target = results["true"], results["target"]
    assert true.epochs[-1].epoch < 12  # patience has ended it
    assert len(target.epochs) == len(true.epochs)
    assert target.accuracy != true.accuracy
    for model in ("model", "best"):
        states = {name: weights(tmp_path / name, model) for name in results}
        assert same(states["true"], states["target"])
        assert not same(states["true"], states["source"])
    assert true.target_images == ("unlabelled" if unlabelled else "unseen")


@pytest.mark.parametrize("parts", [1, 2])  # of a batch
def test_an_epochs_loss_is_the_mean_over_its_steps(images, tmp_path, monkeypatch, parts) -> None:
    losses, plain = [], DeepAll.loss

    def noted(*args) -> torch.Tensor:
        loss = plain(*args)
        losses.append(loss.item())
        return loss

    monkeypatch.setattr(DeepAll, "loss", noted)
    result = run(small.recipe("deepall", accumulate=parts), images, tmp_path / "run")
    means = torch.tensor(losses, dtype=torch.double).view(6, 5 * parts).mean(1).tolist()
    assert [e.loss for e in result.epochs] == pytest.approx(means)


def first_mean(method, transform, images, numbers: list[int]) -> torch.Tensor:
    """Of what the first batch norm is given of some images."""
    inputs = transform(images.pixels[numbers].permute(0, 3, 1, 2))
    return method.net.model.conv1(inputs).mean((0, 2, 3))


def test_exact_statistics_are_those_of_the_last_epochs_clusters(images, tmp_path) -> None:
    recipe = small.recipe("bne-pseudo", exact_statistics=True, options={"refresh": 2})
    run(recipe, images, tmp_path / "run")
    kept = small.tensors(tmp_path / "run/checkpoints/step-00000030/tensors.safetensors")
    method, transform, _ = load_model(tmp_path / "run/model")
    assert int(method.assigned) == 2  # a fifth epoch's clusters would never have been trained on
    assert torch.equal(method.assignment, kept["method/assignment"])
    splits = split_sources(recipe, images.images, None).values()
    numbers = [number for split in splits for number in split.train]
    for cluster, mean in enumerate(method.net.model.bn1.running_mean):
        own = [n for n, c in zip(numbers, method.assignment, strict=True) if c == cluster]
        torch.testing.assert_close(first_mean(method, transform, images, own), mean)


def test_without_held_out_images_no_network_is_the_best(images, tmp_path) -> None:
    result = run(small.recipe(validation=0.0, train=Phase(1)), images, tmp_path / "run")
    assert set(result.accuracy) == {"last", "oracle"}
    assert not (tmp_path / "run/best").exists()


# So slow a moving average scores otherwise than the weights it follows.
@pytest.mark.parametrize("averaging", [Averaging("ema", decay=0.97), Averaging("swa", tail=0.5)])
def test_the_average_is_tested_and_saved_with_its_own_statistics(
    images, tmp_path, monkeypatch, averaging
) -> None:
    monkeypatch.setattr("bne.training.checkpoints.KEPT", 99)
    recipe = small.recipe(averaging=averaging)
    result = run(recipe, images, tmp_path / "run")
    splits = split_sources(recipe, images.images, None).values()
    last, best = result.epochs[-1], best_on_validation(result.epochs)
    for model, epoch in {"model": last, "best": best}.items():
        step = 10 + 5 * epoch.epoch
        kept = small.tensors(tmp_path / f"run/checkpoints/step-{step:08}/tensors.safetensors")
        saved = weights(tmp_path / "run", model)
        average = {k[8:]: v for k, v in kept.items() if k.startswith("average/")}
        assert average
        assert all(torch.equal(saved[k], v) for k, v in average.items())
        assert any(not torch.equal(kept[f"method/{k}"], v) for k, v in average.items())
        assert_scores(images, tmp_path / "run" / model, epoch)
        method, transform, _ = load_model(tmp_path / "run" / model)
        for mean, split in zip(method.net.model.bn1.running_mean, splits, strict=True):
            own = first_mean(method, transform, images, list(split.train))
            torch.testing.assert_close(mean, own)
    # Training itself goes on as if nothing had been measured.
    run(small.recipe(), images, tmp_path / "plain")
    step = "checkpoints/step-00000030/tensors.safetensors"
    averaged, plain = (small.tensors(tmp_path / name / step) for name in ("run", "plain"))
    assert all(torch.equal(averaged[k], v) for k, v in plain.items() if k.startswith("method/"))


@pytest.mark.parametrize("averaging", [Averaging(), Averaging("ema", decay=0.97)])
def test_the_saved_models_give_the_recorded_accuracy(images, tmp_path, averaging) -> None:
    notes = Notes()
    recipe = small.recipe(exact_statistics=True, averaging=averaging)
    result = run(recipe, images, tmp_path / "run", listeners=[notes])
    assert [e for e in notes.heard if isinstance(e, Epoch)] == result.epochs
    assert [e.statistics for e in result.epochs] == ["running"] * 6 + ["exact"]
    assert result.accuracy["last"] == result.epochs[-1].target
    assert_scores(images, tmp_path / "run/model", result.epochs[-1])
    assert_scores(images, tmp_path / "run/best", best_on_validation(result.epochs))


def assert_scores(images, folder: Path, epoch: Epoch) -> None:
    method, transform, info = load_model(folder)
    assert info.classes == small.CLASSES
    numbers = images.images.indices_of(["sketch"])
    with torch.inference_mode():
        logits = method.predict(transform(images.pixels[numbers].permute(0, 3, 1, 2)))
    correct = (logits.argmax(1) == images.labels[numbers]).sum().item()
    assert correct == epoch.target["sketch"].correct


def test_training_stops_when_validation_gets_no_better(images, tmp_path) -> None:
    still = Phase(9, optimiser=Optimiser("sgd", learning_rate=0.0))
    recipe = small.recipe("freeze-bn", head=HeadPhase(0), train=still, patience=2)
    result = run(recipe, images, tmp_path / "run")
    assert [e.epoch for e in result.epochs] == [1, 2, 3]


def test_a_run_that_does_not_last_writes_no_network_and_ends_the_same(
    done, images, tmp_path
) -> None:
    _, result, _ = done
    folder = tmp_path / "run"
    analyse = lambda trained: {"mode": trained.method.training}  # noqa: E731
    found = run(small.recipe(), images, folder, analyse=analyse, lasting=False)
    assert timeless(found.epochs) == timeless(result.epochs)
    assert (found.leaning, found.analysis) == (result.leaning, result.analysis)
    assert not (folder / "model").exists()
    assert not (folder / "best").exists()
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert kept == ["step-00000010", "step-00000030"]  # the head's end, and the end


def test_a_loss_that_is_no_number_names_the_last_good_checkpoint(images, tmp_path) -> None:
    wild = Phase(3, optimiser=Optimiser("sgd", learning_rate=1e30))
    with pytest.raises(TrainingError, match=r"no longer finite.*checkpoints/step-00000010;"):
        run(small.recipe(train=wild), images, tmp_path / "run")


def test_answers_that_are_no_numbers_are_not_scored(images, tmp_path, monkeypatch) -> None:
    """Weights and losses may be finite where running statistics are not."""
    dark = -0.17  # photos and sketches are brighter
    monkeypatch.setattr(DeepAll, "predict", lambda self, x: self.net(x) / (x.mean() < dark))
    with pytest.raises(TrainingError, match=r"images of photo, sketch are not finite"):
        run(small.recipe("deepall"), images, tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()


def test_the_official_split_is_followed_by_itself_and_recorded(images, tmp_path) -> None:
    table = tmp_path / "split.csv"
    names = (f.name for f in images.images.files)
    rows = [f"{n.replace('/', ',', 1)},{'crossval' if n[-1] < '3' else 'train'}" for n in names]
    table.write_text("\n".join(["domain,file,split", *rows]))
    recipe = small.recipe("deepall", validation="auto", head=HeadPhase(0), train=Phase(1))
    for split_file, validation, count in ((table, "official", 9), (None, 0.1, 3)):
        folder = tmp_path / str(validation)
        result = run(recipe, images, folder, split_file=split_file)
        assert result.recipe["validation"] == validation
        assert yaml.safe_load((folder / "recipe.yaml").read_text())["validation"] == validation
        assert {s.images for s in result.epochs[-1].validation.values()} == {count}
        assert run(recipe, images, folder, split_file=split_file) == result
    # The two are not the same run.
    with pytest.raises(TrainingError, match=r"\(validation is 'official' there and 0\.1 here\)"):
        run(recipe, images, tmp_path / "official", split_file=None, resume=True)


def test_batch_norm_can_start_from_the_training_images(images, tmp_path) -> None:
    still = Phase(1, optimiser=Optimiser("sgd", learning_rate=0.0))
    for calibrate in (False, True):
        recipe = small.recipe("freeze-bn", head=HeadPhase(0), train=still, calibrate=calibrate)
        run(recipe, images, tmp_path / str(calibrate))
    plain, measured = weights(tmp_path / "False"), weights(tmp_path / "True")
    assert torch.equal(plain["net.bn1.running_mean"], torch.zeros(6))
    assert measured["net.bn1.running_mean"].abs().min() > 0


def test_a_short_run_is_scored_and_kept_under_measured_statistics(
    images, tmp_path, monkeypatch
) -> None:
    recipe = small.recipe(exact_statistics=False)
    short = run(recipe, images, tmp_path / "short")
    exact = run(small.recipe(exact_statistics=True), images, tmp_path / "exact")
    monkeypatch.setattr("bne.training.loop.SHORT", 0)
    long = run(recipe, images, tmp_path / "long")
    kept, measured, tracked = (weights(tmp_path / name) for name in ("short", "exact", "long"))
    # Few images: all of them are in the batches that statistics for scoring are measured on.
    torch.testing.assert_close(kept, measured, rtol=0, atol=0)
    assert short.epochs[-1].validation == exact.epochs[-1].validation
    different = {key for key in kept if not torch.equal(kept[key], tracked[key])}
    assert different
    assert all("running_" in key for key in different)
    assert [e.loss for e in short.epochs] == [e.loss for e in long.epochs]
