import base64
import io
import re
from html.parser import HTMLParser

import pytest
import torch

from bne.data.cache import PreparedImages
from bne.data.images import ImageFile, ImageSet
from bne.demo import Outcome, Settings, Unseen
from bne.demo.report import page


@pytest.fixture
def html(tmp_path):
    files = tuple(
        ImageFile(f"{domain}/3/{i}.png", 3, number, bytes, "")
        for number, domain in enumerate(("<ink>", "chalk"))
        for i in range(3)
    )
    images = ImageSet(("<ink>", "chalk"), tuple("0123456789"), files)
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 8, 8, 3).contiguous()
    prepared = PreparedImages(images, pixels, tmp_path)
    outcomes = [
        Outcome("DeepAll", "<ink>", 0, 40.0, ()),
        Outcome("DeepAll", "chalk", 0, 44.0, ()),
        Outcome("BNE", "<ink>", 0, 51.25, (Unseen("n", pixels[0], "3", "8", {"chalk": 1.0}),)),
        Outcome("BNE", "chalk", 0, 60.0, (Unseen("m", pixels[5], "3", "3", {"<ink>": 0.7}),)),
    ]
    return page(prepared, outcomes, Settings())


class Balance(HTMLParser):
    """Fails on a tag that is not closed, or closed too soon."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_is_well_formed_and_needs_no_network(html):
    parser = Balance()
    parser.feed(html)
    assert not parser.open
    assert "http" not in html
    assert "<ink>" not in html  # names are escaped


def test_shows_every_number_and_picture(html):
    from PIL import Image

    for text in ("51.2", "44.0", "a 3, seen as 8", "70%", "&lt;ink&gt; unseen"):
        assert text in html
    pictures = re.findall(r"base64,([^\"]+)", html)
    assert len(pictures) == 6 + 2
    last = Image.open(io.BytesIO(base64.b64decode(pictures[-1])))
    assert last.size == (8, 8)
    assert last.getpixel((0, 0)) == (5, 5, 5)
