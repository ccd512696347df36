import copy

import torch
import torch.nn.functional as F

from bne.methods import BNE, BNEAdaptation
from tests.networks import small_cnn

DOMAINS = ["art", "photo", "target"]


def unlabelled(batch):
    """The batch as the engine gives it: the last domain's images without labels."""
    images, labels, domains = batch
    return images, labels.where(domains < 2, -100), domains


def test_target_images_shape_statistics_but_not_the_cross_entropy(batch):
    images, labels, domains = batch
    for epoch in (0, 1):
        method = BNEAdaptation(small_cnn(), DOMAINS).train()
        method.begin_epoch(epoch, warm_up=1)
        reference = copy.deepcopy(method.net)
        out = reference(images, domains, own_branch=epoch == 0)
        torch.testing.assert_close(method(*unlabelled(batch)), F.cross_entropy(out[:6], labels[:6]))
        statistics = method.net.domain_embeddings()
        torch.testing.assert_close(statistics.mean, reference.domain_embeddings().mean)
        assert not torch.equal(statistics.mean[2], torch.zeros_like(statistics.mean[2]))


def test_without_target_images_it_is_bne(batch):
    images, labels, domains = (tensor[:6] for tensor in batch)
    model = small_cnn()
    method, bne = BNEAdaptation(model, DOMAINS[:2]).train(), BNE(model, DOMAINS[:2]).train()
    torch.testing.assert_close(method(images, labels, domains), bne(images, labels, domains))
    torch.testing.assert_close(method.eval().predict(images), bne.eval().predict(images))


def test_it_alone_asks_for_the_target():
    from bne.methods import entries

    assert [entry.name for entry in entries() if entry.method.uses_target] == ["bne-adapt"]
