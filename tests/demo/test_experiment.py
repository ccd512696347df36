import dataclasses
import json
import signal
import subprocess
import sys

import pytest
import torch

from bne.demo import METHODS, Settings, experiment
from bne.demo.digits import DOMAINS, load
from bne.demo.experiment import fit, run, score
from bne.training.loop import TrainingStep
from tests.training.small import blackened, mislabelled

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def digits():
    return load(per_domain=60)


SETTINGS = Settings(warm_up_steps=1, distance_steps=1)


@pytest.mark.parametrize("name", METHODS)
def test_target_labels_and_images_never_reach_training(digits, name):
    target = digits.images.domains[0]
    changed = blackened(mislabelled(digits, target), target)
    states = [fit(d, [target], 0, name, SETTINGS)[0].state_dict() for d in (digits, changed)]
    torch.testing.assert_close(*map(dict, states), rtol=0, atol=0)

    source = digits.images.domains[1]  # the test can fail: a source's labels do reach it
    other = fit(mislabelled(digits, source), [target], 0, name, SETTINGS)[0].state_dict()
    assert any(not torch.equal(value, other[key]) for key, value in states[0].items())


def test_both_methods_start_from_the_same_weights(digits):
    still = dataclasses.replace(SETTINGS, learning_rate=0.0)
    target = digits.images.domains[0]
    deepall, ours, _ = (fit(digits, [target], 1, name, still)[0] for name in METHODS)
    assert ours.distance_training  # with which it ends
    for one, other in zip(deepall.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    again = fit(digits, [target], 2, METHODS[0], still)[0]
    assert not torch.equal(next(deepall.parameters()), next(again.parameters()))


def budget(monkeypatch, digits, name, settings):
    """What every training step of a method is given."""
    given = []

    class Recorded(TrainingStep):
        def __init__(self, method, optimiser, **options):
            super().__init__(method, optimiser, **options)
            self.recorded = optimiser

        def __call__(self, images, labels, domains):
            groups = [{**group, "params": 0} for group in self.recorded.param_groups]
            how = [type(self.recorded), groups]
            given.append(([images.clone(), labels.clone(), domains.clone()], how))
            super().__call__(images, labels, domains)

    monkeypatch.setattr(experiment, "TrainingStep", Recorded)
    fit(digits, digits.images.domains[:1], 3, name, settings)
    return given


def test_both_methods_have_the_same_budget(digits, monkeypatch):
    settings = Settings(warm_up_steps=2, distance_steps=3, per_domain=4)
    deepall, ours, _ = (budget(monkeypatch, digits, name, settings) for name in METHODS)
    assert len(deepall) == len(ours) == 5
    for (batch, how), (our_batch, our_how) in zip(deepall, ours, strict=True):
        assert len(batch[0]) == 3 * 4
        torch.testing.assert_close(batch, our_batch, rtol=0, atol=0)
        assert how == our_how  # the optimiser, its learning rate and all else of it
    rates = {how[1][0]["lr"] for _, how in deepall}
    assert len(rates) == 5  # the schedule is part of what is compared


UNGUARDED = """
import json
import signal
from bne.demo import Settings, compare
from bne.demo.digits import load

settings = Settings(warm_up_steps=1, distance_steps=1)
outcomes = compare(load(per_domain=50), 1, settings, advance=lambda: print("done"))
for outcome in outcomes:
    examples = [(one.name, one.truth, one.weights) for one in outcome.examples]
    print(json.dumps([outcome.target, outcome.method, outcome.accuracy(), examples]))
"""


def test_every_target_seed_and_method_has_an_outcome(tmp_path):
    """In a script without a guard, whose lines run once: not again in every process."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:12] == ["done"] * 12
    outcomes = [json.loads(line) for line in lines[12:]]
    assert [(target, method) for target, method, *_ in outcomes] == [
        (target, method) for target in DOMAINS for method in METHODS
    ]
    for target, method, accuracy, examples in outcomes:
        assert 0 <= accuracy <= 100
        assert bool(examples) == (method == "BNE")
        for name, truth, weights in examples:
            assert name.startswith(f"{target}/{truth}/")
            assert sum(weights.values()) == pytest.approx(1, abs=1e-5)
            assert set(weights) == set(DOMAINS) - {target}


def test_accuracy_is_that_of_the_predictions(digits):
    target = digits.images.domains[2]
    outcome = run(digits, target, 0, "DeepAll", SETTINGS)
    method, transform = fit(digits, [target], 0, "DeepAll", SETTINGS)
    right = 0
    for index in digits.images.indices_of([target]):
        image = transform(digits.pixels[index : index + 1].permute(0, 3, 1, 2))
        right += int(method.eval().predict(image).argmax()) == digits.images.files[index].label
    total = len(digits.images.indices_of([target]))
    assert outcome.accuracy() == pytest.approx(100 * right / total)


def test_several_domains_may_stay_unseen_and_each_has_its_own_score(digits):
    *unseen, source, other = digits.images.domains
    method, transform = fit(digits, unseen, 0, "BNE", SETTINGS)
    assert method.net.domains == (source, other)
    together = score(method.eval(), transform, digits, unseen)
    for domain in unseen:
        alone = score(method, transform, digits, [domain])
        for one, both in zip(alone, together, strict=True):
            assert both.target[domain] == one.target[domain]
    held_out = sum(len(digits.images.indices_of([domain])) for domain in (source, other)) // 10
    assert together[0].validation["held-out"].images == held_out


def test_ctrl_c_is_ignored_by_processes_that_start_and_then_by_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    with experiment._spared_ctrl_c():
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        said = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert said.stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is before
