"""Windows of images against what a model knows: levels, power, and what is kept."""

import io
import json
import subprocess
import sys
from collections import UserList
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import bne
from bne.deploy.answers import Answers, Calibration, Seen
from bne.deploy.engine import FLAT
from bne.deploy.monitor import Known, Watch, known_domains, mixture_p_value, summary
from bne.deploy.pictures import Picture, find_pictures
from bne.deploy.reference import AXES, PER_AXIS, Reference
from bne.deploy.times import sort_by_time
from bne.errors import DataError, SettingsError
from tests.deploy.models import watching

Runs = dict[str, Path]
CENTRES = {"art": (0.0, 2.0, 2.5), "photo": (2.0, 0.2, 2.2), "sketch": (3.0, 3.0, 0.1)}
MIX = np.array([[1.0, 0.3, 0.0], [0.0, 0.7, 0.4], [0.2, 0.0, 0.5]])


def vectors(domain: str, count: int, rng: np.random.Generator, shift: float = 0.0) -> np.ndarray:
    """Skewed and correlated, as logarithms of distances are."""
    noise = (rng.gamma(4.0, size=(count, 3)) - 4) / 2
    return np.array(CENTRES[domain]) + shift + noise @ MIX


def alone(own: np.ndarray) -> Known:
    """What is usual in a domain beside which there is no other."""
    return known_domains({"art": own})["art"]


@pytest.fixture(scope="module")
def known(runs: Runs):
    """The manifest of a model that knows three domains from 80 to 150 held-out images each."""
    rng = np.random.default_rng(0)
    made = {name: vectors(name, n, rng) for name, n in zip(CENTRES, (80, 100, 150), strict=True)}
    own = {name: float(np.array(CENTRES[name])[k]) for k, name in enumerate(CENTRES)}
    kept = {name: own.tolist() for name, own in made.items()}
    reference = Reference("", [0.0] * 3, kept, own)
    scale = Calibration(images=330, percentiles=tuple(np.arange(101.0)), reference=reference)
    model = bne.load(runs["bne"], "cpu").info
    return replace(model, branches=tuple(CENTRES), calibration=scale)


def answers(known, own: np.ndarray) -> Answers:
    """Of images whose vectors are the logarithms of their distances."""
    return Answers(known, Seen(np.zeros((len(own), 2)), None, np.exp(own), own))


def test_p_values_are_hotellings_where_the_domain_is_known_well() -> None:
    rng = np.random.default_rng(1)
    many = alone(rng.normal(size=(200_000, 3)) @ MIX)
    assert many.margin < 0.01
    for size, shift in ((16, 0.6), (64, 0.3), (64, 0.0)):
        window = (rng.normal(size=(size, 3)) + shift) @ MIX
        apart = window.mean(0)
        statistic = size * apart @ np.linalg.inv(MIX.T @ MIX) @ apart
        found = many.window_p_value(window)
        assert found == pytest.approx(stats.chi2.sf(statistic, 3), rel=0.15, abs=0.01)


@pytest.mark.parametrize("size", [16, 64])
def test_windows_of_known_domains_alarm_as_seldom_as_stated(size: int) -> None:
    """In nearly all draws of 80 held-out images, however far these happen to be off."""
    rng = np.random.default_rng(2)
    over = 0
    for _ in range(100):
        own = alone(vectors("art", 80, rng))
        windows = vectors("art", 200 * size, rng).reshape(200, size, 3)
        found = [own.window_p_value(window) for window in windows]
        over += np.mean(np.array(found) < 0.01) > 0.01
    assert over <= 3


def test_a_shifted_window_alarms_and_names_what_is_nearest(known) -> None:
    rng = np.random.default_rng(3)
    watch = Watch(known, window=64)
    state = watch.take(answers(known, vectors("photo", 640, rng)))
    assert (state.windows, state.alarms, state.alarm) == (10, 0, False)
    assert {own.nearest for own in state.tested} == {"photo"}
    assert np.median([own.farther for own in state.tested]) == pytest.approx(1, abs=0.3)
    state = watch.take(answers(known, vectors("photo", 640, rng, shift=1.5)))
    assert (state.images, state.windows, state.alarms) == (1280, 20, 10)
    assert state.since.first == 640
    assert state.window.nearest == "photo"
    assert state.window.farther == pytest.approx(np.exp(1.5), rel=0.3)
    assert "at image 641:" in summary(state, state.tested)
    state = watch.take(answers(known, vectors("sketch", 64, rng)))
    assert not state.alarm


@pytest.mark.parametrize("counts", [(32, 32, 0), (0, 56, 8), (20, 20, 24), (62, 2, 0)])
def test_a_window_of_several_known_domains_does_not_alarm(known, counts) -> None:
    rng = np.random.default_rng(13)

    def window(shift: float = 0.0) -> np.ndarray:
        own = zip(CENTRES, counts, strict=True)
        return np.concatenate([vectors(name, n, rng, shift) for name, n in own])

    watch = Watch(known, window=64, mixed=True)
    tested = [watch.take(answers(known, window())).window for _ in range(100)]
    assert sum(own.alarm for own in tested) <= 3
    assert all(own.p_value == max(own.mixture, *own.p_values.values()) for own in tested)
    if min(n for n in counts if n) >= 8:
        found = [np.mean([own.parts.get(name, 0) for own in tested]) for name in CENTRES]
        assert found == pytest.approx(counts, abs=3)
    if max(counts) == 32:
        one = Watch(known, window=64).take(answers(known, window())).window
        assert one.alarm
        assert one.mixture >= 0.01
        assert one.p_value == max(one.p_values.values())
    watch = Watch(known, window=64, mixed=True)
    for _ in range(20):
        watch.take(answers(known, window(shift=1.5)))
    assert watch.state.alarms == 20


def test_a_mixture_is_tested_part_by_part(known) -> None:
    """By plain loops: all three domains, then without the smallest part, then one alone."""
    rng = np.random.default_rng(14)
    held_out = known.calibration.reference.vectors
    domains = known_domains({name: np.asarray(own) for name, own in held_out.items()})
    counts = {"art": 9, "sketch": 4, "photo": 3}
    window = np.concatenate([vectors(name, n, rng) for name, n in counts.items()])
    chances, told = [], []
    left = ["photo", "sketch", "art"]
    while left:
        suits = []
        for image in window:
            far = {name: float(domains[name].far(image[None])[0]) for name in left}
            suits.append(min(far, key=far.__getitem__))
        statistic = 0.0
        for name in left:
            part = np.stack([v for v, own in zip(window, suits, strict=True) if own == name])
            statistic -= 2 * np.log(domains[name].window_p_value(part))
        chances.append(stats.chi2.sf(statistic, 2 * len(left)))
        told.append({name: suits.count(name) for name in left})
        left.pop(0)
    assert told[0] == counts
    found, parts = mixture_p_value(domains, window)
    assert found == pytest.approx(max(chances))
    assert parts == told[int(np.argmax(chances))]
    found, parts = mixture_p_value({"art": domains["art"]}, window)
    assert found == pytest.approx(domains["art"].window_p_value(window))
    assert parts == {"art": 16}


def test_the_first_window_loads_nothing() -> None:
    """A server would answer nobody meanwhile."""
    code = """
import sys
import numpy as np
from bne.deploy.monitor import known_domains, mixture_p_value
draw = np.random.default_rng(0)
known = known_domains({"art": draw.normal(size=(60, 3)), "photo": draw.normal(size=(60, 3))})
before = {*sys.modules}
known["art"].window_p_value(draw.normal(size=(64, 3)))
mixture_p_value(known, draw.normal(size=(64, 3)))
print(*{*sys.modules} - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_window_may_come_in_any_parts(known) -> None:
    own = vectors("art", 200, np.random.default_rng(4))
    times = [datetime(2026, 5, 1) + timedelta(minutes=n) for n in range(200)]
    at_once = Watch(known, window=64)
    tested = at_once.take(answers(known, own), times).tested
    by_one, found = Watch(known, window=64), []
    for row, time in zip(own, times, strict=True):
        found += by_one.take(answers(known, row[None]), [time]).tested
        assert len(by_one._waiting) < 64
    assert tuple(found) == tested
    assert [one.begin for one in tested] == [times[0], times[64], times[128]]
    last = by_one.finish().tested
    assert (last[0].first, last[0].images) == (192, 8)
    assert by_one.finish().tested == ()
    with pytest.raises(DataError, match="as many times"):
        at_once.take(answers(known, own), times[:3])


@pytest.mark.parametrize("many", [list, tuple, np.array, UserList, iter])
def test_times_come_in_any_kind_of_list(known, many) -> None:
    own = vectors("art", 8, np.random.default_rng(4))
    times = [datetime(2026, 5, 1) + timedelta(minutes=n) for n in range(8)]
    watch = Watch(known, lambda images: answers(known, images), window=8)
    window = watch.add(own, many(times)).window
    assert (window.begin, window.end) == (times[0], times[-1])
    window = watch.add(own, times[1]).window
    assert (window.begin, window.end) == (times[1], times[1])


def test_single_images_have_p_values_of_the_right_level(known) -> None:
    rng = np.random.default_rng(5)
    shares = []
    for _ in range(20):  # 80 held-out images leave an error of 0.03
        held_out = {
            name: vectors(name, n, rng) for name, n in zip(CENTRES, (80, 100, 150), strict=True)
        }
        own = known_domains(held_out)["art"]
        shares.append(np.mean(own.image_p_values(vectors("art", 1000, rng)) < 0.1))
    assert np.mean(shares) == pytest.approx(0.1, abs=0.02)
    far = Watch(known).p_values(answers(known, vectors("art", 50, rng, shift=9.0)))
    assert far.max() < 0.02


def test_scores_of_held_out_images_are_those_without_them() -> None:
    rng = np.random.default_rng(11)
    kept, beside = rng.normal(size=(40, 3)) @ MIX, rng.normal(size=(60, 3))
    known = known_domains({"own": kept, "beside": beside})
    own, other = known["own"], known["beside"]
    limited, apart = own.limited(kept), other.limited(beside) - other.mean
    scores = []
    for number, row in enumerate(own._scaled(kept)):
        rest = np.delete(limited, number, 0)
        inner = rest - rest.mean(0)
        covariance = (inner.T @ inner / 39 + (inner.T @ inner + apart.T @ apart) / 98) / 2
        away = row - rest.mean(0)
        scores.append(np.sqrt(away @ np.linalg.inv(covariance) @ away))
    assert own.scores == pytest.approx(np.sort(scores), rel=1e-3)  # but for the ridge


def test_what_cannot_be_watched_is_one_sentence(known, runs: Runs) -> None:
    for model, options, words in (
        (known, {"window": 7}, "at least 8"),
        (known, {"alarm": 0.0}, "between 0 and 1"),
        (replace(known, calibration=Calibration()), {}, "bundle --data"),
        (replace(known, distance=None), {}, "measures no distances"),
        (bne.load(runs["bne"], "cpu").info, {}, "4 held-out images"),
    ):
        with pytest.raises(SettingsError, match=words):
            Watch(model, **options)


def test_a_run_keeps_what_monitoring_needs(runs: Runs) -> None:
    model = bne.load(runs["bne"] / "model.bne", "cpu")
    kept = model.info.calibration.reference
    assert {name: len(own) for name, own in kept.vectors.items()} == {"art": 2, "sketch": 2}
    net = model.engine.method.net
    file = next(runs["data"].glob("art/*/*.png"))
    point = net.embed(model.engine.transform.file(file))
    expected = kept.place(torch.cat([point.mean, (point.std + FLAT).log()], 1).detach().numpy())
    np.testing.assert_allclose(model.predict(file).seen.vectors, expected, atol=1e-3)
    assert bne.load(runs["dnet"], "cpu").info.calibration.reference is None


def test_vectors_are_principal_components() -> None:
    """Against scikit-learn's, of the same standardized points; a dead channel plays no part."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(6)
    points = rng.normal(size=(130, 40)) @ rng.normal(size=(40, 400)) + 3
    points[:, 7] = 0.5
    made = Reference.of({"art": points[:70], "photo": points[70:]}, {"art": 1.0})
    assert len(made.origin) == min(AXES, 130 // PER_AXIS)
    values = StandardScaler().fit_transform(points)
    expected = PCA(len(made.origin), svd_solver="full").fit_transform(values)
    found = np.concatenate([*made.vectors.values()])
    np.testing.assert_allclose(np.abs(found[:, :-1]), np.abs(expected), rtol=1e-2, atol=2e-2)
    placed = made.place(points)
    np.testing.assert_allclose(placed[:, :-1], found[:, :-1], atol=1e-4)
    np.testing.assert_allclose(np.exp(placed[:, -1]), np.linalg.norm(values, axis=1), rtol=1e-3)
    live = np.delete(points, 7, 1)
    for number in range(0, 130, 10):  # as if it were a new one
        scaler = StandardScaler().fit(np.delete(live, number, 0))
        apart = np.linalg.norm(scaler.transform(live[number : number + 1]))
        assert np.exp(found[number, -1]) == pytest.approx(apart, rel=1e-3)
    old = replace(made, channels=None)  # a file from before
    np.testing.assert_allclose(old.place(points), found[:, :-1], atol=1e-4)
    assert (made.numbers, old.numbers) == (len(found[0]), len(found[0]) - 1)
    few = Reference.of({"art": points[:17]}, {})
    assert len(few.origin) == 2
    assert Reference(**json.loads(json.dumps(asdict(few)))) == few


@pytest.mark.parametrize("count", [24, 60])
def test_few_held_out_images_of_many_channels_raise_no_alarms(count: int) -> None:
    """Their own mean and scale suit them better than any new image of the same domain."""
    rng = np.random.default_rng(8)
    alarms = []
    for _ in range(20):
        made = Reference.of({"art": rng.normal(size=(count, 2000))}, {})
        own = alone(np.asarray(made.vectors["art"]))
        alarms.append(own.window_p_value(made.place(rng.normal(size=(64, 2000)))) < 0.01)
    assert sum(alarms) <= 1


def test_a_small_domain_is_known_by_the_spread_of_all() -> None:
    """Its own images are fewer than a vector has numbers."""
    rng = np.random.default_rng(9)
    mix = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    many, few = rng.normal(size=(300, 30)) @ mix, rng.normal(size=(24, 30)) @ mix + 4
    found = known_domains({"many": many, "few": few, "left out": few[:-1]})
    assert set(found) == {"many", "few"}
    window = rng.normal(size=(64, 30)) @ mix
    assert found["few"].window_p_value(window + 4) > 0.01
    assert found["many"].window_p_value(window + 4) < 1e-6
    assert known_domains({"few": few}) == {}


@pytest.mark.parametrize("size", [8, 64])
def test_a_domain_of_as_few_images_as_may_be_raises_no_more_alarms_than_stated(size: int) -> None:
    rng = np.random.default_rng(10)
    alarms = []
    for _ in range(40):
        few, many = rng.normal(size=(24, 31)), rng.normal(size=(300, 31)) + 5
        known = known_domains({"few": few, "many": many})
        windows = rng.normal(size=(20, size, 31))
        alarms += [known["few"].window_p_value(window) < 0.01 for window in windows]
    assert np.mean(alarms) < 0.02  # with images of 8 held out it is 0.1


@pytest.mark.parametrize("size", [8, 16])
def test_windows_of_domains_alike_alarm_as_seldom_as_stated(size: int) -> None:
    """Half of what tells the one's spread counts in the other half, too."""
    rng = np.random.default_rng(12)
    over = 0
    for _ in range(60):
        known = known_domains({name: rng.normal(size=(60, 16)) for name in ("one", "other")})
        windows = rng.normal(size=(300, size, 16))
        found = [known["one"].window_p_value(window) < 0.01 for window in windows]
        over += np.mean(found) > 0.01
    assert over <= 1


def test_a_domain_off_the_axes_alarms() -> None:
    """It lies in directions in which known images hardly differ: none of the axes shows it."""
    rng = np.random.default_rng(7)
    spread = np.geomspace(5, 0.2, 300)

    def points(count: int, elsewhere: float = 0.0) -> np.ndarray:
        mean = np.where(np.arange(300) < 150, 0, elsewhere)
        return (mean + rng.normal(size=(count, 300)) * spread) @ mixing

    mixing = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    made = Reference.of({"art": points(120)}, {})
    vectors = np.asarray(made.vectors["art"])
    window = made.place(points(64, elsewhere=1.5))
    assert alone(vectors).window_p_value(window) < 0.01
    assert alone(vectors[:, :-1]).window_p_value(window[:, :-1]) > 0.01
    assert alone(vectors).window_p_value(made.place(points(64))) > 0.01


def test_what_was_enrolled_is_known_from_then_on(runs: Runs) -> None:
    model = bne.load(runs["bne"], "cpu")
    noise = np.random.default_rng(0).integers(0, 255, (176, 40, 40, 3), np.uint8)
    noise[:80] //= 2
    model = watching(model, {"dark": noise[:80]})
    bright = noise[80:128], noise[128:]
    assert model.monitor(window=48).add(bright[1]).alarm
    enrolled = model.enroll("bright", bright[0])
    watch = enrolled.monitor(window=48)
    assert watch.domains == ("dark", "bright")
    state = watch.add(bright[1], datetime(2026, 5, 1))
    assert not state.alarm
    assert state.window.nearest == "bright"
    assert state.window.farther == pytest.approx(1, abs=0.1)
    assert enrolled.forget("bright").info == model.info
    kept = enrolled.forget("art").info.calibration  # distances to it are not known any more
    assert kept.percentiles == ()
    assert set(kept.reference.vectors) == {"dark", "bright"}


def test_images_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    from PIL import Image

    for number, day in enumerate((3, 1, 2)):
        exif = Image.Exif()
        exif[306] = f"2026:05:0{day} 12:00:00"
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.jpg", exif=exif)
    rows = "path,taken\n0.jpg,2026-05-03\n1.jpg,2026-05-01T12:00\n2.jpg,2026-05-02T12:00+02:00\n"
    (tmp_path / "table.csv").write_text(rows)
    for given, kind in (([tmp_path], "exif"), ([tmp_path / "table.csv"], "taken")):
        found = sort_by_time(find_pictures(given), list(map(str, given)), kind)
        assert [Path(own.name).name for own, _ in found] == ["1.jpg", "2.jpg", "0.jpg"]
    assert found[1][1] == datetime(2026, 5, 2, 10)
    pictures = find_pictures([tmp_path])
    assert len(sort_by_time(pictures, [str(tmp_path)], "mtime")) == 3
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    bare = [Picture("bare.png", buffer.getvalue)]
    (tmp_path / "bad.csv").write_text("path,taken\n0.jpg,yesterday\n")
    for one, given, kind, words in (
        (bare, "bare.png", "exif", "tell no time"),
        (bare, "bare.png", "mtime", "no time of its own"),
        (bare, "bare.png", "taken", "is no .csv"),
        (bare, str(tmp_path / "bad.csv"), "taken", "line 2: 'yesterday' is no time"),
    ):
        with pytest.raises((DataError, SettingsError), match=words):
            sort_by_time(one, [given], kind)


def test_channels_that_hardly_vary_leave_finite_numbers() -> None:
    draw = np.random.default_rng(0)
    spread = np.array([1.0, 2e-6, 1e-5, 2e-4, 0.0])
    points = {name: (draw.normal(size=(40, 5)) * spread).astype(np.float32) for name in "ab"}
    made = Reference.of(points, {})
    new = made.place(draw.normal(size=(3, 5)) * spread)
    assert np.isfinite([*made.vectors["a"], *made.vectors["b"]]).all()
    assert np.isfinite(new).all()
