import json

import pytest

from bne.errors import DataError
from bne.speed import Measurement
from bne.speed.records import append, circumstances, read, record
from bne.speed.table import BEGIN, COLUMNS, END, by_part, cells, main, markdown, place
from tests.speed.settings import settings

STEP = Measurement(
    "train", "DT step", 3, 48, True, "ms",
    14.3645, 14.3, 14.5, 4.589, 13.577, "4 plain passes", 1.15,
)  # fmt: skip


def lines(when="2026-01-01", **changes):
    return {**record(STEP, circumstances(settings(), when)), **changes}


def test_a_record_holds_all_that_is_needed_to_judge_it():
    line = json.loads(json.dumps(lines()))
    assert line["ratio"] == pytest.approx(14.3645 / 13.577)
    assert line["to_plain"] == pytest.approx(14.3645 / 4.589)
    assert line["images_per_s"] == pytest.approx(48 / 0.0143645)
    assert line["met"] is True
    assert (line["domains"], line["source_domains"], line["images"]) == (3, 3, 48)
    for name in ("device", "torch", "python", "backbone", "precision", "size", "repeat", "when"):
        assert line[name], name


def test_cells():
    texts = dict(zip(COLUMNS, cells(lines()), strict=True))
    assert texts == {
        "measured": "DT step",
        "K": "3",
        "images": "48",
        "run": "graph",
        "takes": "14.4 ms ± 1%",
        "images/s": "3,342",
        "× plain": "3.13",
        "compared with": "4 plain passes: 13.58 ms",
        "ratio": "1.06",
        "goal": "≤ 1.15: met",
    }
    assert cells(lines(compiled=True))[3] == "compiled"
    assert cells(lines(met=False))[-1] == "≤ 1.15: missed"
    # A peak is that of a call, whatever older records say.
    assert cells(lines(unit="MiB", value=2803.6))[3:5] == ("calls", "2,804 MiB")
    assert cells(lines(value=None, note="no room"))[4:] == ("no room", "", "", "", "", "")
    assert cells(lines(ratio=0.0212))[8] == "0.021"


def test_the_last_run_of_every_part_is_shown():
    records = [
        lines("1", what="old"),
        lines("2", what="new a"),
        lines("1", what="other", part="memory"),
        lines("2", what="new b"),
        lines("1", what="elsewhere", device="another"),
    ]
    found = [[line["what"] for line in group] for group in by_part(records)]
    assert found == [["new a", "new b"], ["other"], ["elsewhere"]]
    page = markdown(records)
    assert page.count("| measured |") == 3
    assert "old" not in page


def test_through_a_file_and_into_a_page(tmp_path, capsys):
    file, page = tmp_path / "speed.jsonl", tmp_path / "README.md"
    append([lines("1")], file)
    append([lines("2")], file)
    assert [line["when"] for line in read(file)] == ["1", "2"]
    main([str(file)])
    table = capsys.readouterr().out
    assert "| DT step | 3 | 48 | graph |" in table
    page.write_text(f"# Before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):  # again changes nothing
        main([str(file), str(page)])
        assert page.read_text() == f"# Before\n{BEGIN}\n{table}{END}\nafter\n"


def test_what_is_wrong_is_said(tmp_path):
    file, page = tmp_path / "speed.jsonl", tmp_path / "README.md"
    append([lines()], file)
    page.write_text("no place")
    with pytest.raises(DataError, match=r"README\.md: has no place"):
        place("", page)
    assert page.read_text() == "no place"
    with file.open("a") as more:
        more.write('{"half": ')
    with pytest.raises(DataError, match=r"speed\.jsonl, line 2: is no measurement"):
        read(file)
    with pytest.raises(SystemExit, match="line 2"):
        main([str(file)])
    with pytest.raises(SystemExit, match="Usage"):
        main([])
