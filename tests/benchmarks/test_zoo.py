"""The sweep over the zoos, with networks that take no time and processes that die."""

import importlib
import json
import os
import signal

import pytest

NAMES = ["timm/a", "timm/b", "timm/deadly", "timm/c", "timm/deadly too", "timm/stop", "timm/d"]
OLD = '{"name": "timm/old", "library": "timm 1", "torch": "2", "device": "cpu", "result": "passed"'
OLD += ', "layers": 5, "kinds": ["BatchNorm2d"], "size": 32}\n'


def examine(name, device):
    """Dies, is interrupted on the device "interrupted", or gives a record."""
    if "deadly" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stop" in name and device == "interrupted":
        raise KeyboardInterrupt
    about = {"name": name, "library": "timm 1", "torch": "2", "device": device}
    return {**about, "result": "no batch norm"}


@pytest.fixture(scope="session")
def zoo(_scripts):
    return importlib.import_module("zoo")


@pytest.fixture
def run(zoo, monkeypatch, tmp_path):
    """The command, in a folder with an old record in zoo.jsonl and an old page."""
    (tmp_path / "zoo.jsonl").write_text(OLD)
    (tmp_path / "zoo.md").write_text("old page")
    monkeypatch.setattr(zoo, "RECORDS", tmp_path / "zoo.jsonl")
    monkeypatch.setattr(zoo, "TABLE", tmp_path / "zoo.md")
    monkeypatch.setattr(zoo, "examine", examine)
    monkeypatch.setattr("zoo_check.names", lambda: NAMES)

    def command(*options):
        monkeypatch.setattr("sys.argv", ["zoo", *options])
        with pytest.raises((SystemExit, KeyboardInterrupt)) as end:
            zoo.main()
        return end.value

    return command


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_dies_is_a_failure_and_the_others_go_on(jobs, zoo, run, tmp_path):
    assert run("--jobs", str(jobs)).code == 1
    old, *records = zoo.read(tmp_path / "zoo.jsonl")
    assert old == json.loads(OLD)
    assert sorted(record["name"] for record in records) == sorted(NAMES)
    failed = {r["name"]: r["reason"] for r in records if r["result"] == "failed"}
    assert failed == {"timm/deadly": zoo.KILLED, "timm/deadly too": zoo.KILLED}
    page = (tmp_path / "zoo.md").read_text()
    assert f"| timm/deadly too | | | | failed: {zoo.KILLED} |" in page
    assert "| timm/old | 5 | BatchNorm2d | 32 | passed |" in page


def test_an_interrupted_sweep_afresh_keeps_the_old_records_and_goes_on(zoo, run, tmp_path):
    assert isinstance(run("--afresh", "--device", "interrupted"), KeyboardInterrupt)
    assert (tmp_path / "zoo.jsonl").read_text() == OLD
    assert (tmp_path / "zoo.md").read_text() == "old page"
    assert isinstance(run("--afresh", "--device", "cpu"), SystemExit)
    devices = {record["name"]: record["device"] for record in zoo.read(tmp_path / "zoo.jsonl")}
    assert devices == {
        name: "cpu" if name in ("timm/stop", "timm/d") else "interrupted" for name in NAMES
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["zoo.jsonl", "zoo.md"]
    assert "old" not in (tmp_path / "zoo.md").read_text()


def test_other_records_leave_the_page_alone(zoo, run, tmp_path):
    assert not run("--records", str(tmp_path / "other.jsonl"), "--only", "/a").code
    assert [record["name"] for record in zoo.read(tmp_path / "other.jsonl")] == ["timm/a"]
    assert (tmp_path / "zoo.md").read_text() == "old page"
    assert (tmp_path / "zoo.jsonl").read_text() == OLD


def test_afresh_is_for_all_networks(run, capsys):
    assert run("--afresh", "--only", "/a").code
    assert "not allowed with argument" in capsys.readouterr().err


def test_the_page_is_what_the_records_give(zoo):
    page, records = zoo.TABLE.read_text(), zoo.read(zoo.RECORDS)
    assert page == zoo.table(records), "write table(read(RECORDS)) to docs/zoo.md"
    for record in records:
        assert f"\n| {record['library']} | {record['torch']} | {record['device']} | " in page
        assert (f"\n| {record['name']} | " in page) == (record["result"] != "no batch norm")
