"""Target images in training, and several at once in use, against the definition and against BNE."""

import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import BNE, BNEAdaptation, BNEPooled, entries
from tests.networks import DOMAINS, randomise_norms, small_cnn

WITH_TARGET = ["art", "photo", "target"]


def unlabelled(batch):
    """The batch as the engine gives it: the last domain's images without labels."""
    images, labels, domains = batch
    return images, labels.where(domains < 2, -100), domains


def test_target_images_shape_statistics_but_not_the_cross_entropy(batch):
    images, labels, domains = batch
    for epoch in (0, 1):
        method = BNEAdaptation(small_cnn(), WITH_TARGET).train()
        method.begin_epoch(epoch, warm_up=1)
        reference = copy.deepcopy(method.net)
        out = reference(images, domains, own_branch=epoch == 0)
        torch.testing.assert_close(method(*unlabelled(batch)), F.cross_entropy(out[:6], labels[:6]))
        statistics = method.net.domain_embeddings()
        torch.testing.assert_close(statistics.mean, reference.domain_embeddings().mean)
        assert not torch.equal(statistics.mean[2], torch.zeros_like(statistics.mean[2]))


def test_adaptation_without_target_images_is_bne(batch):
    images, labels, domains = (tensor[:6] for tensor in batch)
    model = small_cnn()
    method, bne = BNEAdaptation(model, WITH_TARGET[:2]).train(), BNE(model, WITH_TARGET[:2]).train()
    torch.testing.assert_close(method(images, labels, domains), bne(images, labels, domains))
    torch.testing.assert_close(method.eval().predict(images), bne.eval().predict(images))


def test_adaptation_alone_asks_for_the_target():
    assert [entry.name for entry in entries() if entry.method.uses_target] == ["bne-adapt"]


def pair(**options):
    """A pooled method and BNE of the same network and statistics."""
    pooled = BNEPooled(small_cnn(), DOMAINS, **options).eval()
    randomise_norms(pooled.net)
    bne = BNE(small_cnn(), DOMAINS).eval()
    bne.load_state_dict(pooled.state_dict())
    return pooled, bne


def by_definition(bne, images):
    """One estimate of the statistics of all images, as of one set of activations."""
    points = [bne.net.embed(image) for image in images.split(1)]
    mean = sum(point.mean[0] for point in points) / len(points)
    second = sum(point.var[0] + point.mean[0].square() for point in points) / len(points)
    std = (second - mean.square()).sqrt()
    known = bne.net.domain_embeddings()
    similarity = [
        1 / ((mean - m).square().sum() + (std - v.sqrt()).square().sum())
        for m, v in zip(known.mean, known.var, strict=True)
    ]
    branches = [bne.net.to_plain(name).eval()(images) for name in DOMAINS]
    mixture = sum(w * logits for w, logits in zip(similarity, branches, strict=True))
    return mixture / sum(similarity)


@pytest.mark.parametrize(("group", "sizes"), [(None, [9]), (9, [9]), (4, [4, 4, 1]), (100, [9])])
def test_pooling_against_the_definition(batch, group, sizes):
    images, _, _ = batch
    pooled, bne = pair(group=group)
    expected = torch.cat([by_definition(bne, part) for part in images.split(sizes)])
    torch.testing.assert_close(pooled.predict(images), expected)
    weights = pooled.explain(images).weights.split(sizes)
    assert all(torch.equal(part, part[:1].expand_as(part)) for part in weights)


def test_groups_of_one_are_bne(batch):
    pooled, bne = pair(group=1)
    torch.testing.assert_close(pooled.predict(batch[0]), bne.predict(batch[0]))


def test_training_to_pool_is_bnes(batch):
    pooled, bne = pair()
    pooled.train().begin_epoch(1, warm_up=1)
    bne.train().begin_epoch(1, warm_up=1)
    torch.testing.assert_close(pooled(*batch), bne(*batch))
    assert not torch.allclose(pooled.eval().predict(batch[0]), bne.eval().predict(batch[0]))


def test_the_nearest_branches_are_those_of_the_group(batch):
    pooled, _ = pair(nearest=1)
    whole, _ = pair()
    nearest = whole.explain(batch[0]).weights.argmax(1)
    assert torch.equal(pooled.explain(batch[0]).weights.argmax(1), nearest)
    assert torch.equal(pooled.explain(batch[0]).weights.amax(1), torch.ones(9))


def test_an_impossible_group_is_refused():
    with pytest.raises(ValueError, match="group must be at least 1, not 0"):
        BNEPooled(small_cnn(), DOMAINS, group=0)
