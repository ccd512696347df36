"""Maps keep apart what is apart."""

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score

from bne import wasserstein
from bne.inspection import analysis as page
from bne.inspection.maps import choose_layers, flatten
from tests.inspection.models import analysis


def test_three_domains_stay_apart() -> None:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(3, 200)) * 4
    domain = np.repeat(np.arange(3), 60)
    points = centres[domain] + generator.normal(size=(180, 200))
    flat = flatten(np.concatenate([points, centres]), seed=0)
    np.testing.assert_array_equal(flat, flatten(np.concatenate([points, centres]), seed=0))
    assert flat.shape == (183, 2)
    assert silhouette_score(flat[:180], domain) > 0.6
    for k in range(3):  # a domain's own point lies among its images
        nearest = np.argsort(np.linalg.norm(flat[:180] - flat[180 + k], axis=1))[:10]
        assert set(domain[nearest]) == {k}


def test_points_that_are_all_the_same() -> None:
    assert (flatten(np.ones((8, 6)), seed=0) == 0).all()


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (20, [0, 10, 19])]
)
def test_first_middle_and_last_layer(count: int, expected: list[int]) -> None:
    names = [f"bn{k}" for k in range(count)]
    assert choose_layers(names, None) == [names[k] for k in expected]
    assert choose_layers(names, [names[-1], names[0], names[-1]])[0] == names[-1]


def test_maps_have_the_images_that_were_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "POINTS", 40)
    model, found = analysis(layers=["bn2"])
    assert [one.name for one in found.maps] == ["all layers", "bn2"]
    for one in found.maps:
        assert one.images.shape == (40, 2)  # 8 of each of 5 domains
        assert one.domains.shape == (3, 2)
    numbers = [point.number for point in found.points]
    pixels = model.prepared.pixels[numbers].permute(0, 3, 1, 2)
    out = model.method.explain(model.transform(pixels))
    np.testing.assert_allclose(found.maps[0].distances, out.distances.detach(), rtol=1e-3)
    weights = [list(point.weights.values()) for point in found.points]
    np.testing.assert_allclose(weights, out.weights.detach(), rtol=1e-3)
    rows = [row for row, point in enumerate(found.points) if point.domain == "dslr"]
    own = np.array(weights)[rows]
    off = np.abs(own - own.mean(0)).sum(1)
    assert found.chosen == rows[off.argmin()]  # a typical one of the first unseen domain
    assert off.argmin() != 0


def test_neighbors_are_the_nearest_training_images() -> None:
    """By the distance that the paper has, computed pair by pair; held-out images are none."""
    model, found = analysis(layers=["bn2"], held_out=range(0, 75, 5))
    numbers = [point.number for point in found.points]
    seen = np.array([n < 75 and n % 5 > 0 for n in numbers])
    pixels = model.prepared.pixels[numbers].permute(0, 3, 1, 2)
    with torch.no_grad():
        embedded = model.method.explain(model.transform(pixels)).embedding
    for one, layers in zip(found.maps, (embedded.layers, ["bn2"]), strict=True):
        own = embedded.select(layers)
        away = wasserstein(own, own).numpy()
        away[:, ~seen] = np.inf
        np.fill_diagonal(away, np.inf)
        expected = np.sort(away, axis=1)[:, :5]
        got = np.take_along_axis(away, one.neighbors, axis=1)
        np.testing.assert_allclose(got, expected, rtol=1e-3)


def test_more_domains_and_maps_leave_room_for_fewer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point on a map has two places, three distances and five neighbors."""
    monkeypatch.setattr(page, "NUMBERS", 40 * 10 * 2)
    for layers, count in ((["bn2"], 40), (["bn1", "bn2", "bn3"], 20)):
        assert analysis(layers=layers)[1].maps[0].distances.shape == (count, 3)


def test_too_few_images_for_a_map() -> None:
    _, found = analysis(domains=("dslr",), images=1)
    assert found.maps == []
    assert page.FEW_POINTS in found.numbers["left_out"]
