import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from bne.methods.pseudo import find_clusters, match


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
