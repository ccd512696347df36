import base64
import io
import re
from pathlib import Path

import pytest
import torch
from scipy.stats import ttest_1samp

from bne.benchmark.tables import Cell
from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.demo import Settings, Unseen
from bne.demo.report import answer, page
from tests.demo.test_table import outcome
from tests.report.pages import HOSTILE, Reader, fits, opened, readable, told


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
