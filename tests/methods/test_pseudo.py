"""Domains that are found by clustering, against scikit-learn's blobs and scores."""

import copy
import os

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_info
from torch import nn

from bne.methods import BNEPseudo
from bne.methods.pseudo import find_clusters, match
from tests.networks import DOMAINS, small_cnn

SIZES = (20, 30, 10)


@pytest.fixture
def images():
    """Domains that differ in brightness and contrast, mixed up as to their numbers."""
    torch.manual_seed(0)
    truth = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))[torch.randperm(60)]
    brightness, contrast = torch.tensor([0.0, 2.0, -2.0]), torch.tensor([1.0, 0.2, 3.0])
    noise = torch.randn(60, 3, 16, 16)
    scale, shift = (values[truth].view(-1, 1, 1, 1) for values in (contrast, brightness))
    return noise * scale + shift, truth


@pytest.fixture
def members():
    """Labels of domains that mean nothing here."""
    return {"art": range(0, 60, 3), "cartoon": range(1, 60, 3), "photo": range(2, 60, 3)}


def looker(pictures):
    def look(numbers):
        yield from pictures[torch.as_tensor(numbers)].split(7)

    return look


def refuse(numbers):
    raise AssertionError("nothing is to be looked at")


def labels(found, count=60):
    """Each image's cluster, by its number."""
    clusters = torch.full((count,), -1)
    for cluster, numbers in enumerate(found.values()):
        clusters[torch.as_tensor(numbers)] = cluster
    return clusters


def test_domains_are_found_without_labels(images, members):
    pictures, truth = images
    method = BNEPseudo(small_cnn(), DOMAINS, smallest=5).train()
    found = method.members(members, 0, looker(pictures))
    assert list(found) == ["cluster 1", "cluster 2", "cluster 3"] == list(method.net.domains)
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(60))
    assert adjusted_rand_score(labels(found), truth) == 1
    assert method.training


def test_clusters_keep_their_numbers_when_the_network_changes(images, members):
    pictures, _ = images
    method = BNEPseudo(small_cnn(), DOMAINS, refresh=1, smallest=5)
    first = labels(method.members(members, 0, looker(pictures)))
    for epoch in range(1, 5):
        method.net.model[0].reset_parameters()
        again = labels(method.members(members, epoch, looker(pictures)))
        assert torch.equal(again, first)
        assert int(method.assigned) == epoch


def test_every_layer_counts_alike(images, members):
    """The loudest layer is not the only one that is heard."""
    pictures, truth = images
    method = BNEPseudo(small_cnn(), DOMAINS, smallest=5)
    with torch.no_grad():
        method.net.model[1].weight.copy_(0.5 + torch.rand(6))
        method.net.model[3].weight.mul_(1e3)  # in the second layer the domains differ less
    found = method.members(members, 0, looker(pictures))
    assert adjusted_rand_score(labels(found), truth) == 1


def test_an_assignment_lasts_until_it_is_due(images, members):
    pictures, _ = images
    method = BNEPseudo(small_cnn(), DOMAINS, refresh=2)
    found = method.members(members, 0, looker(pictures))
    assert method.members(members, 1, refuse) == found
    with pytest.raises(AssertionError, match="nothing is to be looked at"):
        method.members(members, 2, refuse)
    method.members(members, 2, looker(pictures))
    assert method.members(members, 3, refuse) == method.members(members, 2, refuse)


def test_a_resumed_epoch_gets_the_same_answer(images, members):
    pictures, _ = images
    method = BNEPseudo(small_cnn(), DOMAINS)
    found = method.members(members, 5, looker(pictures))
    resumed = BNEPseudo(small_cnn(), DOMAINS)
    resumed.load_state_dict(method.state_dict())
    assert resumed.members(members, 5, refuse) == found
    method.load_state_dict(BNEPseudo(small_cnn(), DOMAINS).state_dict())  # and back
    assert len(method.assignment) == 0


def test_other_images_are_refused(images, members):
    pictures, _ = images
    method = BNEPseudo(small_cnn(), DOMAINS)
    method.members(members, 0, looker(pictures))
    with pytest.raises(ValueError, match="those of 60 training images, but there are 20"):
        method.members({"art": members["art"]}, 1, looker(pictures))


@pytest.mark.parametrize("clusters", [1, 2, 5])
def test_any_number_of_clusters(images, members, clusters, batch):
    pictures, labels_, domains = batch
    method = BNEPseudo(small_cnn(), DOMAINS, clusters=clusters, smallest=2).train()
    found = method.members(members, 0, looker(images[0]))
    assert len(found) == clusters
    assert min(len(numbers) for numbers in found.values()) >= 2
    assert method(pictures, labels_, domains.clamp_max(clusters - 1)).isfinite()


def test_images_are_placed_as_in_evaluation(images, members):
    model = small_cnn()
    model[2] = nn.Dropout()
    found = []
    for _ in range(2):
        method = BNEPseudo(model, DOMAINS, clusters=5, smallest=1).train()
        found.append(method.members(members, 0, looker(images[0])))
    assert found[0] == found[1]
    assert method.net.model[2].training


def test_the_statistics_of_the_network_do_not_change(images, members):
    method = BNEPseudo(small_cnn(), DOMAINS).train()
    before = copy.deepcopy(method.net.state_dict())
    method.members(members, 0, looker(images[0]))
    torch.testing.assert_close(method.net.state_dict(), before, rtol=0, atol=0)


def test_k_means_takes_as_many_threads_as_torch(monkeypatch):
    fit, seen = KMeans.fit, set()

    def spy(self, points):
        seen.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "openmp")
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", spy)
    before, given = torch.get_num_threads(), os.cpu_count() + 1  # which no library takes by itself
    try:
        torch.set_num_threads(given)
        find_clusters(torch.arange(20.0).view(10, 2).numpy(), 2, 1)
    finally:
        torch.set_num_threads(before)
    assert seen == {given}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("option", ["clusters", "refresh", "smallest"])
def test_impossible_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1, not 0"):
        BNEPseudo(small_cnn(), DOMAINS, **{option: 0})


def blobs(*sizes):
    centres = 20 * np.eye(4)[: len(sizes)]
    points, truth = make_blobs(list(sizes), centers=centres, cluster_std=0.5, random_state=0)
    return points.astype(np.float32), truth


def test_clusters_that_are_there_are_found():
    points, truth = blobs(30, 50, 20)
    assert adjusted_rand_score(find_clusters(points, 3, 8), truth) == 1


def test_a_small_cluster_takes_in_what_is_nearest():
    points, truth = blobs(40, 3, 40)
    labels = find_clusters(points, 3, 10)
    small = labels[truth == 1][0]
    assert (labels[truth == 1] == small).all()
    distances = np.linalg.norm(points - points[truth == 1].mean(0), axis=1)
    assert set(np.argsort(distances)[:10]) == set(np.flatnonzero(labels == small))


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_no_cluster_is_empty_even_if_all_points_are_one():
    labels = find_clusters(np.ones((10, 2), dtype=np.float32), 3, 64)
    assert sorted(np.bincount(labels, minlength=3)) == [3, 3, 4]


def test_too_few_points():
    with pytest.raises(ValueError, match="2 images cannot make 3 clusters"):
        find_clusters(np.zeros((2, 2), dtype=np.float32), 3, 1)


def test_numbers_are_matched_to_the_former_ones():
    generator = np.random.default_rng(0)
    old = generator.integers(5, size=200)
    permutation = generator.permutation(5)
    assert np.array_equal(match(permutation[old], old, 5), old)
    new = permutation[old]
    new[:20] = 0
    assert (match(new, old, 5) == old).mean() >= 0.9
