"""The sweep over the zoos, with networks that take no time and processes that die."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zoo import sweep
from tests.zoo.sweep import KILLED, RECORDS, TABLE, Record, read, table

NAMES = ["timm/a", "timm/b", "timm/deadly", "timm/c", "timm/deadly too", "timm/stop", "timm/d"]
OLD = '{"name": "timm/old", "library": "timm 1", "torch": "2", "device": "cpu", "result": "passed"'
OLD += ', "layers": 5, "kinds": ["BatchNorm2d"], "size": 32}\n'

Run = Callable[..., None]


def examine(name: str, device: str) -> Record:
    """Dies, is interrupted on the device "interrupted", or gives a record."""
    if "deadly" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stop" in name and device == "interrupted":
        raise KeyboardInterrupt
    about = {"name": name, "library": "timm 1", "torch": "2", "device": device}
    return {**about, "result": "no batch norm"}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command, in a folder with an old record in zoo.jsonl and an old page."""
    (tmp_path / "zoo.jsonl").write_text(OLD)
    (tmp_path / "zoo.md").write_text("old page")
    monkeypatch.setattr(sweep, "RECORDS", tmp_path / "zoo.jsonl")
    monkeypatch.setattr(sweep, "TABLE", tmp_path / "zoo.md")
    monkeypatch.setattr(sweep, "examine", examine)
    monkeypatch.setattr("tests.zoo.check.names", lambda: NAMES)

    def command(*options: str) -> None:
        monkeypatch.setattr("sys.argv", ["sweep", *options])
        sweep.main()

    return command


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_dies_is_a_failure_and_the_others_go_on(
    jobs: int, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as end:
        run("--jobs", str(jobs))
    assert end.value.code == 1
    old, *records = read(tmp_path / "zoo.jsonl")
    assert old == json.loads(OLD)
    assert sorted(record["name"] for record in records) == sorted(NAMES)
    failed = {r["name"]: r["reason"] for r in records if r["result"] == "failed"}
    assert failed == {"timm/deadly": KILLED, "timm/deadly too": KILLED}
    page = (tmp_path / "zoo.md").read_text()
    assert f"| timm/deadly too | | | | failed: {KILLED} |" in page
    assert "| timm/old | 5 | BatchNorm2d | 32 | passed |" in page


def test_an_interrupted_sweep_afresh_keeps_the_old_records_and_goes_on(
    run: Run, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run("--afresh", "--device", "interrupted")
    assert (tmp_path / "zoo.jsonl").read_text() == OLD
    assert (tmp_path / "zoo.md").read_text() == "old page"
    with pytest.raises(SystemExit):
        run("--afresh", "--device", "cpu")
    devices = {record["name"]: record["device"] for record in read(tmp_path / "zoo.jsonl")}
    assert devices == {
        name: "cpu" if name in ("timm/stop", "timm/d") else "interrupted" for name in NAMES
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["zoo.jsonl", "zoo.md"]
    assert "old" not in (tmp_path / "zoo.md").read_text()


def test_other_records_leave_the_page_alone(run: Run, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        run("--records", str(tmp_path / "other.jsonl"), "--only", "/a")
    assert not end.value.code
    assert [record["name"] for record in read(tmp_path / "other.jsonl")] == ["timm/a"]
    assert (tmp_path / "zoo.md").read_text() == "old page"
    assert (tmp_path / "zoo.jsonl").read_text() == OLD


def test_afresh_is_for_all_networks(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--afresh", "--only", "/a")
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_page_is_what_the_records_give() -> None:
    assert TABLE.read_text() == table(read(RECORDS)), "write table(read(RECORDS)) to docs/zoo.md"


def test_the_page_tells_what_each_network_was_checked_with() -> None:
    page = TABLE.read_text()
    for record in read(RECORDS):
        assert f"\n| {record['library']} | {record['torch']} | {record['device']} | " in page
        assert (f"\n| {record['name']} | " in page) == (record["result"] != "no batch norm")
