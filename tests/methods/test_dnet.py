import copy

import pytest
import torch
import torch.nn.functional as F

from bne.methods import DNet, create
from tests.networks import DOMAINS, randomise_norms, small_cnn


def domain_logits(method, images):
    """The lateral branch, image by image: global pooling, ReLU, fully connected."""
    convolution = method.net.model[0]
    weight, bias = method.discovery.weight, method.discovery.bias
    rows = []
    for image in images:
        pooled = torch.stack([channel.mean() for channel in convolution(image.unsqueeze(0))[0]])
        rows.append(weight @ pooled.clamp_min(0) + bias)
    return torch.stack(rows)


def test_prediction_against_a_loop_over_plain_networks(batch):
    images, _, _ = batch
    method = DNet(small_cnn(), DOMAINS).eval()
    randomise_norms(method.net)
    out = method.explain(images)
    expected = torch.zeros(9, 4)
    logits = domain_logits(method, images)
    for i in range(9):
        weights = logits[i].exp() / logits[i].exp().sum()
        for k, name in enumerate(DOMAINS):
            own = method.net.to_plain(name).eval()(images[i : i + 1])[0]
            torch.testing.assert_close(out.branch_logits[i, k], own)
            expected[i] += weights[k] * own
    torch.testing.assert_close(out.domain_logits, logits)
    torch.testing.assert_close(method.predict(images), expected)


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_training_mixes_the_branches_of_distance_training(batch, factor):
    images, labels, domains = batch
    method = DNet(small_cnn(), DOMAINS, domain_loss=factor).train()
    randomise_norms(method.net)
    reference = copy.deepcopy(method.net)
    branches = reference(images, domains, details=True).branch_logits
    logits = domain_logits(method, images)
    mixture = torch.einsum("nk,nkc->nc", logits.softmax(1), branches)
    expected = F.cross_entropy(mixture, labels) + factor * F.cross_entropy(logits, domains)
    torch.testing.assert_close(method(*batch), expected)
    torch.testing.assert_close(method.net.state_dict(), reference.state_dict())  # the statistics


def test_the_warm_up_is_bnes(batch):
    images, labels, domains = batch
    method = create("dnet-ce", small_cnn(), DOMAINS).train()
    method.begin_epoch(0, warm_up=1)
    logits = copy.deepcopy(method.net)(images, domains, own_branch=True)
    torch.testing.assert_close(method(*batch), F.cross_entropy(logits, labels))


def test_domain_labels_teach_the_lateral_branch(batch):
    images, labels, domains = batch
    images = images + domains.view(-1, 1, 1, 1)  # each domain brighter than the last
    method = create("dnet-ce", small_cnn(), DOMAINS).train()
    optimiser = torch.optim.Adam(method.parameters(), 0.03)
    for _ in range(60):
        optimiser.zero_grad()
        method(images, labels, domains).backward()
        optimiser.step()
    assert torch.equal(method.eval().explain(images).weights.argmax(1), domains)


def test_a_loss_that_drives_domains_together_is_refused():
    with pytest.raises(ValueError, match="domain_loss must be at least 0, not -1"):
        DNet(small_cnn(), DOMAINS, domain_loss=-1)
