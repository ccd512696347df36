"""What an analysis writes."""

import base64
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from bne.data.cache import PreparedImages
from bne.inspection.examples import Example
from bne.report import look as scripts
from bne.report.look import SIDES, looks, thumbnails
from bne.report.model_sections import example_section
from bne.report.run_page import write_report
from tests.report.models import analysis, training


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    _, found = analysis(layers=["bn2"])
    return write_report(tmp_path_factory.mktemp("analysis"), found)


def test_every_figure_is_a_png_and_a_pdf(written: list[Path]) -> None:
    maps = ["map-all-layers", "map-bn2"]
    figures = [*maps, "similarity", "accuracy", "layers", "calibration", "confusion"]
    folder = written[0].parent
    for name in figures:
        with Image.open(folder / f"{name}.png") as image:
            image.verify()
        assert (folder / f"{name}.pdf").read_bytes()[:5] == b"%PDF-"
        assert b"CreationDate" not in (folder / f"{name}.pdf").read_bytes()
        assert b"%%EOF" in (folder / f"{name}.pdf").read_bytes()[-10:]
    names = [f"{name}.{form}" for name in figures for form in ("png", "pdf")]
    assert [path.name for path in written] == ["index.html", "analysis.json", *names]
    assert {path.name for path in folder.iterdir()} == {path.name for path in written}


def test_the_page_holds_everything_and_asks_for_nothing(written: list[Path]) -> None:
    page = written[0].read_text()
    assert len(page) < 15_000_000
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", own)
    assert own.count("<img") == own.count("<img alt=") + own.count("<img width=") + own.count(
        '<img id="hover-image" alt='
    )
    ids = re.findall(r' id="([^"]+)"', own)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("method", "absent"),
    [
        ("deepall", {"map-all-layers", "similarity", "layers"}),
        ("dnet", {"map-all-layers", "similarity", "layers"}),
    ],
)
def test_methods_without_a_space_of_domains(method: str, absent: set[str], tmp_path: Path) -> None:
    _, found = analysis(method)
    names = {path.stem for path in write_report(tmp_path, found)}
    assert not names & absent
    assert {"accuracy", "calibration", "confusion"} <= names
    page = (tmp_path / "index.html").read_text()
    (sentence,) = found.numbers["left_out"]
    assert sentence in page
    assert "This is a model's folder without its run" in html.unescape(page)
    assert ('id="images"' in page) == (method == "dnet")


def test_without_plotly_the_page_shows_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "plotly", lambda: None)
    _, found = analysis(images=4, layers=["bn1"])
    write_report(tmp_path, found, training(("art", "photo"), "dslr"))
    page = (tmp_path / "index.html").read_text()
    assert "<script" not in page
    for name in ("map-all-layers", "curves"):
        assert base64.b64encode((tmp_path / f"{name}.png").read_bytes()).decode() in page


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    _, found = analysis("deepall")
    write_report(tmp_path, found)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert json.loads((tmp_path / "analysis.json").read_text())["model"]["method"] == "deepall"


def test_an_image_has_few_bars_however_many_domains() -> None:
    """The heaviest, in the order of the domains."""
    weights = {f"d{k}": (k * 7 % 20) / 190 for k in range(20)}
    heaviest = sorted(weights, key=weights.get)[-8:]
    _, found = analysis("deepall", images=2)
    one = Example(0, "a.png", "art", "cat", "cat", weights)
    observed = replace(found.observed, branches=tuple(weights))
    many = replace(found, observed=observed, examples={"most mixed": [one]})
    text = "".join(example_section(many, looks(list(weights), seen=())))
    assert (
        "Bars are the weights of the branches in the answer, the 8 largest of each image." in text
    )
    assert re.findall(r"(d\d+) \d+ %", text) == sorted(heaviest, key=list(weights).index)


def test_many_noisy_thumbnails_keep_to_their_budget() -> None:
    noise = torch.randint(0, 256, (20, 96, 96, 3), dtype=torch.uint8)
    prepared = PreparedImages(None, noise, Path())
    for largest, budget in ((72, 17_500), (128, 60_000), (28, 10**9)):
        found = thumbnails(prepared, range(20), largest, budget)
        assert 0.3 * min(budget, 25_000) < sum(map(len, found)) <= budget
        with Image.open(io.BytesIO(base64.b64decode(found[0]))) as image:
            assert image.format == "JPEG"
            assert image.width in [side for side in SIDES if side <= largest]


def test_domains_look_different() -> None:
    names = [f"d{k}" for k in range(24)]
    found = looks(names, seen=names[:12])
    assert len({(look.colour, look.marker) for look in found.values()}) == 24
    assert len({look.colour for look in list(found.values())[:8]}) == 8
    seen = {look.marker for look in found.values() if look.seen}
    assert not seen & {look.marker for look in found.values() if not look.seen}
