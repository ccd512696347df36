"""The page of a search whose runs are pretended."""

from pathlib import Path
from typing import Any

import pytest

from bne.benchmark.records import read
from bne.report.tune_page import grid, tune_page
from bne.tuning import tuning as tuning_module
from tests.report.pages import Reader, data_of, fits, opened, readable, told
from tests.tuning.pretend import Pretending, tuning


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pretending = Pretending()
    monkeypatch.setattr(tuning_module, "execute", pretending)
    search, job = tuning(tmp_path, settings=9, seeds=2)
    list(search.carry_out(job))
    (one,) = search.outcome(read(job.records))
    return one


def test_the_page_has_all_settings_with_their_errors_and_both_rules(found: Any) -> None:
    text = tune_page([found])
    page = Reader(text)
    assert page.asked == []  # nothing of any network
    head, rows = grid(found)
    (shown,) = [own for name, own in page.tables.items() if name.startswith("Settings trained")]
    assert shown == [head, *rows]
    place = head.index("mean")
    assert [row[place] for row in rows] == [f"{one.mean:.1f}" for one in found.rows]
    assert [row[place + 1] for row in rows] == [f"{one.error:.1f}" for one in found.rows]
    marks = [row[0] for row in rows]
    assert sum("chosen" in mark for mark in marks) == 1
    assert sum("recipe" in mark for mark in marks) == 1
    assert [dot["mean"] for dot in data_of(text, "tune-data-0")] == [one.mean for one in found.rows]
    (stopped,) = [own for name, own in page.tables.items() if name.startswith("Mean accuracy")]
    assert [row[0] for row in stopped[1:]] == list(found.stopped)
    chosen, best = found.choice.chosen, found.choice.best
    alternatives = [name for name in page.tables if name.startswith("The alternative")]
    assert len(alternatives) == (best is not chosen)


@pytest.mark.parametrize(("width", "color"), [(1280, "light"), (390, "dark")])
def test_it_opens_in_a_browser(browser, found: Any, width: int, color: str, tmp_path: Path) -> None:
    file = tmp_path / "tune.html"
    file.write_text(tune_page([found]))
    with opened(browser, file, width, "body.ready", color) as page:
        fits(page, width)
        readable(page)
        first = found.rows[0]
        assert told(page, "settings-0")[0].endswith(f": {first.mean:.1f} ± {first.error:.1f} %")
