"""What every method promises to the engine."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bne.methods import DSON, check_options, create, entries, find
from bne.methods.method import _options
from tests.networks import DOMAINS, randomise_norms, small_cnn

NAMES = [entry.name for entry in entries()]
PAPERS = [entry.name for entry in entries() if not entry.sentence.startswith("past the paper")]
POOLED = "bne-pooled"  # its images do depend on one another

every_method = pytest.mark.parametrize("name", NAMES)


def trained(name, batch, steps=2):
    """A method after some steps of its last stage, in evaluation mode."""
    method = create(name, randomise_norms(small_cnn()), DOMAINS).train()
    method.begin_epoch(1, warm_up=1)
    optimiser = torch.optim.SGD(method.parameters(), 0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        method(*batch).backward()
        optimiser.step()
    return method.eval()


def trainable(method):
    return [parameter for parameter in method.parameters() if parameter.requires_grad]


@every_method
@pytest.mark.parametrize("domains", [[0, 0, 0, 1, 1, 1, 2, 2, 2], [2, 0, 1, 0, 0, 2, 0, 0, 0]])
def test_the_loss_trains_every_parameter(name, batch, domains):
    images, labels, _ = batch
    method = create(name, small_cnn(), DOMAINS).train()
    method.begin_epoch(1, warm_up=1)
    loss = method(images, labels, torch.tensor(domains))
    assert loss.shape == ()
    assert loss.isfinite()
    loss.backward()
    assert trainable(method)
    for parameter in trainable(method):
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


@every_method
def test_smoothed_labels_change_the_loss_of_every_stage(name, batch):
    method = create(name, small_cnn(), DOMAINS).train()
    start, known = copy.deepcopy(method.state_dict()), {}
    for smoothing in (0.0, 0.1):
        method.label_smoothing = smoothing
        for epoch in (0, 1):
            method.begin_epoch(epoch, warm_up=1)
            method.load_state_dict(start)
            torch.manual_seed(3)
            known[smoothing, epoch] = method(*batch).item()
    for epoch in (0, 1):
        assert known[0.1, epoch] != known[0.0, epoch]


@pytest.mark.parametrize("weights", [None, torch.tensor([0.5, 1.0, 2.0, 0.7])])
def test_smoothed_labels_are_shares_of_all_classes(weights):
    method, logits = create("deepall", small_cnn(), DOMAINS), torch.randn(6, 4)
    labels = torch.tensor([0, 3, -100, 1, 1, 2])
    method.class_weights, method.label_smoothing = weights, 0.2
    shares = 0.8 * F.one_hot(labels[labels >= 0], 4) + 0.05
    known = F.cross_entropy(logits[labels >= 0], shares, weights, reduction="sum") / 5
    torch.testing.assert_close(method.cross_entropy(logits, labels), known)


@every_method
def test_one_domain(name, batch):
    images, labels, _ = batch
    method = create(name, small_cnn(), ["only"]).train()
    for epoch in (0, 1):
        method.begin_epoch(epoch, warm_up=1)
        loss = method(images, labels, torch.zeros(9, dtype=torch.long))
        assert loss.isfinite()
        loss.backward()
    assert method.eval().predict(images).isfinite().all()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in NAMES),
        ("points", {"centre": 0.2, "groups": True, "beyond": 0.5, "mixstyle": "own domain"}),
        ("bne", {"mixstyle": "own domain", "branch_statistics": "population"}),
    ],
)
def test_the_loss_needs_no_value(name, options, batch):
    """What meta tensors can run, without any values, can be recorded as a CUDA graph."""
    if "mixstyle" in (name, *options):
        try:
            torch._standard_gamma(torch.empty(1, device="meta"))
        except NotImplementedError:
            pytest.skip("this torch draws from no Beta distribution without values")
    images, labels, domains = (tensor.to("meta") for tensor in batch)
    method = create(name, small_cnn(), DOMAINS, options).to("meta").train()
    for epoch in (0, 1):
        method.begin_epoch(epoch, warm_up=1)
        method(images, labels, domains).backward()


@every_method
def test_predictions(name, batch):
    images, _, _ = batch
    method = trained(name, batch)
    before = copy.deepcopy(method.state_dict())
    with torch.no_grad():
        logits = method.predict(images)
        assert logits.shape == (9, 4)
        torch.testing.assert_close(method.predict(images), logits, rtol=0, atol=0)
        if name != POOLED:
            alone = torch.cat([method.predict(image) for image in images.split(1)])
            torch.testing.assert_close(alone, logits)
    for key, value in method.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", [e.name for e in entries() if hasattr(e.method, "explain")])
def test_explained_predictions_are_the_predictions(name, batch):
    method = trained(name, batch)
    out = method.explain(batch[0])
    torch.testing.assert_close(out.logits, method.predict(batch[0]))
    torch.testing.assert_close(out.weights.sum(1), torch.ones(9))
    if name != "points":  # it runs no branch
        mixed = torch.einsum("nk,nkc->nc", out.weights, out.branch_logits)
        torch.testing.assert_close(mixed, out.logits)


@every_method
def test_its_state_is_all_there_is(name, batch):
    method = trained(name, batch)
    other = create(name, small_cnn(), DOMAINS).eval()
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other.predict(batch[0]), method.predict(batch[0]), rtol=0, atol=0)


@every_method
def test_a_copy_is_independent(name, batch):
    method = trained(name, batch)
    before = method.predict(batch[0])
    other = copy.deepcopy(method).train()
    other(*batch).backward()
    with torch.no_grad():
        for parameter in trainable(other):
            parameter -= 0.1 * parameter.grad
    torch.testing.assert_close(method.predict(batch[0]), before, rtol=0, atol=0)
    assert not torch.equal(other.eval().predict(batch[0]), before)


@every_method
def test_bfloat16(name, batch):
    method = trained(name, batch)
    exact = method.predict(batch[0])
    with torch.autocast("cpu", torch.bfloat16):
        logits = method.predict(batch[0])
        loss = method.train()(*batch)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in trainable(method))
    torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.05)


@every_method
def test_its_stages_are_told_before_it_is_built(name):
    method, entry = create(name, small_cnn(), DOMAINS), find(name)
    for epoch in (0, 1, 5):
        method.begin_epoch(epoch, warm_up=1)
        stage, training, evaluation = entry.method.cost(epoch, 1, len(DOMAINS), entry.options)
        assert stage == method.stage
        assert min(training, evaluation) >= 1


@every_method
def test_an_epoch_may_begin_twice(name, batch):
    method = create(name, small_cnn(), DOMAINS).train()
    for epoch in range(3):
        method.begin_epoch(epoch, warm_up=1)
        stage, state = method.stage, copy.deepcopy(method.state_dict())
        method.begin_epoch(epoch, warm_up=1)
        assert method.stage == stage
        for key, value in method.state_dict().items():
            torch.testing.assert_close(value, state[key], rtol=0, atol=0)


@every_method
def test_observing_changes_statistics_alone(name, batch):
    images, _, domains = batch
    method = create(name, small_cnn(), DOMAINS).train()
    before = copy.deepcopy(method.state_dict())
    method.observe(images, domains)
    parameters = dict(method.named_parameters())
    changed = {key for key, value in method.state_dict().items() if not value.equal(before[key])}
    assert changed.isdisjoint(parameters)
    tracks = name not in ("freeze-bn", "instance-norm", "head-only", "epi-fcr")
    assert any(key.endswith("running_mean") for key in changed) == tracks


@every_method
def test_fused_layers_keep_their_activation(name, batch):
    """timm's batch norm with a ReLU of its own gives what batch norm and then ReLU give."""
    norm_act = pytest.importorskip("timm.layers").BatchNormAct2d
    apart = small_cnn()
    fused = copy.deepcopy(apart)
    for place in (1, 4):
        fused[place] = norm_act(apart[place].num_features)
        fused[place + 1] = nn.Identity()
    losses = []
    for model in (apart, fused):
        torch.manual_seed(1)  # of the new layers
        method = create(name, model, DOMAINS).train()
        method.begin_epoch(1, warm_up=1)
        losses.append(method(*batch))
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", PAPERS)
def test_the_sentence_is_the_papers(name, shared):
    words = re.compile(r"[a-z0-9]+")
    paper = (shared / "paper" / "bne.tex").read_text()
    paper = re.sub(r"~?\\(cite|autoref)\{[^}]*\}", " ", paper)
    for macro, text in (("methodName", "BNE"), ("discoveryName", "DNet"), ("ie", "i.e.")):
        paper = re.sub(rf"\\{macro}\b(\{{\}})?", text, paper)
    paper = re.sub(r"\\[a-z]+", " ", paper)
    sentence = re.sub(r"^\([abcd]\) ", "", find(name).sentence)
    assert " ".join(words.findall(sentence.lower())) in " ".join(words.findall(paper.lower()))


@every_method
def test_options(name):
    options = find(name).options
    check_options(name, options)
    method = create(name, small_cnn(), DOMAINS, options)
    assert type(method) is type(create(name, small_cnn(), DOMAINS))
    with pytest.raises(ValueError, match="has no option 'distanse'"):
        check_options(name, {"distanse": "uniform"})


def test_options_of_the_class_above_are_options_too():
    assert find("bne-pooled").options == {**find("bne").options, "group": None}
    assert find("dson-bne").options["distance"] == "wasserstein"
    assert find("dson").options["distance"] == "uniform"
    assert find("dnet-ce").options["domain_loss"] == 1.0


def test_options_pass_through_mixins():
    class Still:
        pass

    class Own:
        def __init__(self, *args, own=1, **kwargs):
            super().__init__(*args, **kwargs)

    class Mixed(Still, Own, DSON):
        pass

    assert _options(Mixed) == {**find("dson").options, "own": 1}


def test_deepall_merges_the_domains(batch):
    images, labels, _ = batch
    model = small_cnn()
    plain = copy.deepcopy(model)
    method = create("deepall", model, DOMAINS).train()
    torch.testing.assert_close(method.loss(*batch), F.cross_entropy(plain(images), labels))
    torch.testing.assert_close(model[1].running_mean, plain[1].running_mean)  # one batch of all
    torch.testing.assert_close(method.eval().predict(images), plain.eval()(images))
