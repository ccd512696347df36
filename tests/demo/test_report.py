import base64
import io
import re
from pathlib import Path

import pytest
import torch
from scipy.stats import ttest_1samp

from bne.benchmark.tables import Cell, average
from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.demo import Outcome, Settings, Unseen
from bne.demo.report import answer, cells, page
from bne.training.events import Leaning, Score
from tests.report.pages import HOSTILE, Reader, fits, opened, readable, told


def outcome(method, target, seed, *correct, examples=()):
    """A run with so many of 100 images of the target correct at shares 0, 0.1, and so on."""
    held_out = {"held-out": Score(90, 100)}
    leanings = tuple(
        Leaning(number / 10, held_out, {target: Score(found, 100)}, 0, 0)
        for number, found in enumerate(correct)
    )
    return Outcome(method, target, seed, leanings, examples)


@pytest.fixture
def html(tmp_path):
    domains = (HOSTILE, "chalk")
    files = tuple(
        ImageFile(f"{domain}/3/{i}.png", 3, number, bytes, "")
        for number, domain in enumerate(domains)
        for i in range(3)
    )
    images = ImageSet(domains, tuple("0123456789"), files)
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 8, 8, 3).contiguous()
    prepared = PreparedImages(images, pixels, tmp_path)
    one = Unseen("n", pixels[0], "3", "8", {"chalk": 1.0})
    other = Unseen("m", pixels[5], "3", "3", {HOSTILE: 0.7})
    outcomes = [
        outcome("DeepAll", HOSTILE, 0, 40),
        outcome("DeepAll", "chalk", 0, 44),
        outcome("BNE", HOSTILE, 0, 51, examples=(one,)),
        outcome("BNE", "chalk", 0, 60, examples=(other,)),
    ]
    return page(prepared, outcomes, Settings())


def test_is_well_formed_and_names_are_texts(html):
    found = Reader(html)
    assert found.asked == []
    assert found.sections == ["accuracy", "images"]
    assert HOSTILE not in html


def test_shows_every_number_and_picture(html):
    from PIL import Image

    rows = Reader(html).table("Accuracy, %")
    assert rows["unseen"] == [HOSTILE, "chalk", "average"]
    assert rows["DeepAll"] == ["40.0", "44.0", "42.0"]
    assert rows["BNE"] == ["51.0", "60.0", "55.5"]
    assert re.findall(r'class="(right|wrong)"', html) == ["wrong", "right"]
    assert re.findall(r"width:([\d.]+%)", html) == ["100.0%", "70.0%"]
    pictures = re.findall(r"base64,([^\"]+)", html)
    assert len(pictures) == 6 + 2
    last = Image.open(io.BytesIO(base64.b64decode(pictures[-1])))
    assert last.size == (8, 8)
    assert last.getpixel((0, 0)) == (5, 5, 5)


def test_the_answer_is_the_gain_seed_by_seed():
    base, best = Cell({0: 50.0, 1: 60.0, 2: 52.0}, 3), Cell({0: 58.0, 1: 70.0, 2: 59.5}, 3)
    told = answer({"DeepAll": base, "BNE": best})
    assert told.startswith("+8.5 points on an unseen style (+7.5 to +10.0 in 3 seeds): BNE ")
    few = Cell({0: 51.0, 1: 70.0}, 2)  # 1 and 10 points
    assert ttest_1samp([8, 10, 7.5], 0).pvalue < 0.05 < ttest_1samp([1, 10], 0).pvalue
    assert "2 seeds, too few to be sure)" in answer({"DeepAll": base, "BNE": few})
    assert answer({"BNE": best, "DeepAll": base}).startswith("No gain")
    assert "one seed" in answer({"DeepAll": Cell({0: 1.0}, 1), "BNE": Cell({0: 2.0}, 1)})


@pytest.mark.parametrize(("width", "color"), [(1280, "light"), (390, "dark")])
def test_it_opens_in_a_browser(browser, html, width: int, color: str, tmp_path: Path):
    (tmp_path / "demo.html").write_text(html)
    with opened(browser, tmp_path / "demo.html", width, "body.ready", color) as found:
        fits(found, width)
        readable(found)
        assert "BNE, chalk: 60.0 %" in told(found, "chart-styles")


ACCURACIES = {("x", 0): 50, ("x", 1): 60, ("y", 0): 80, ("y", 1): 74}
OUTCOMES = [outcome("BNE", *key, correct, 90) for key, correct in ACCURACIES.items()]
OUTCOMES += [outcome("DeepAll", *key, 10) for key in ACCURACIES]


def test_cells_are_mean_and_standard_error_and_averaged_seed_by_seed():
    row = cells(OUTCOMES, "BNE")
    assert list(row) == ["x", "y"]
    found = [(cell.mean, cell.error) for cell in (*row.values(), average(list(row.values())))]
    assert found == [pytest.approx((55, 5)), pytest.approx((77, 3)), pytest.approx((66, 1))]
    assert str(row["x"]) == "55.0 ± 5.0"
    assert [cell.mean for cell in cells(OUTCOMES, "BNE, leaning").values()] == [90, 90]


def test_one_seed_has_no_error():
    cell = cells([outcome for outcome in OUTCOMES if outcome.seed == 0], "BNE")["x"]
    assert (cell.error, str(cell)) == (None, "50.0")
