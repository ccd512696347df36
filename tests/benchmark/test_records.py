import dataclasses
import json
import logging
import multiprocessing
from pathlib import Path

import pytest

from bne.benchmark.records import append, finished, outdated, read
from bne.errors import DataError
from bne.recipes.schema import Averaging
from tests.benchmark.examples import item, record


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "records.jsonl"
    written = [
        record(item("deepall", "photo"), 900, materials={"weights": "abc", "images": None}),
        record(item("bne", "photo", 1), 910, epochs=({"epoch": 1},), analysis={"é": [1]}),
    ]
    for one in written:
        append(file, one)
    assert read(file) == written
    lines = file.read_text().splitlines()
    assert len(lines) == 2
    first = json.loads(lines[0])
    assert list(first)[:6] == ["experiment", "row", "digest", "method", "target", "seed"]
    assert (first["digest"], first["seed"]) == (item("deepall", "photo").digest, 0)


def test_no_file_is_no_records_and_a_folder_is_no_file(tmp_path: Path) -> None:
    assert read(tmp_path / "records.jsonl") == []
    with pytest.raises(DataError, match="no file of records"):
        read(tmp_path)


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_line_cut_short_is_passed_over_and_the_next_is_whole(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "records.jsonl"
    one, other = record(item("deepall", "photo"), 900), record(item("bne", "photo"), 910)
    append(file, one)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:cut])  # -1: all but the line's end
    append(file, other)
    with caplog.at_level(logging.WARNING):
        found = read(file)
    assert found == ([one, one, other] if cut == -1 else [one, other])
    assert ("line 2: passed over" in caplog.text) == (cut != -1)
    file.write_bytes(b"no record\n" * 3)
    caplog.clear()
    assert read(file) == []
    assert "line 1 and 2 other lines: passed over" in caplog.messages[0]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accuracy", []),
        ("accuracy", {"last": 1}),
        ("accuracy", {"last": {"photo": {"correct": 5, "images": 4}}}),
        ("accuracy", {"last": {"photo": {"correct": 5}}}),
        ("environment", "a CPU"),
        ("settings", {"method": "deepall"}),
        ("settings", {"method": "deepall", "target": "photo"}),
    ],
)
def test_a_record_with_a_malformed_field_is_passed_over(
    tmp_path: Path, field: str, value: object
) -> None:
    file = tmp_path / "records.jsonl"
    good = record(item("deepall", "photo"), 900)
    file.write_text(json.dumps({**good.to_dict(), field: value}) + "\n")
    append(file, good)
    assert read(file) == [good]


def test_other_json_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text('[]\n{"experiment": 1}\n\n"text"\n\xff\n', encoding="latin-1")
    assert read(file) == []


def _add(file: Path, start: int) -> None:
    for seed in range(start, start + 20):
        append(file, record(item("deepall", "photo", seed), 900, analysis={"long": "x" * 50_000}))


def test_processes_may_append_at_once(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(file, 20 * n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(one.settings["seed"] for one in read(file)) == list(range(60))


def test_a_run_is_found_by_what_it_is_not_by_its_name() -> None:
    done = record(item("bne", "photo", row="BNE", weights="/here/w.safetensors"), 900)
    same = item("bne", "photo", row="BNE (dt,warmup)", weights="elsewhere/w.safetensors")
    assert finished([done], same) is done
    for other in (
        item("bne", "photo", seed=1, weights="w.safetensors"),
        item("bne", "sketch", weights="w.safetensors"),
        item("bne", "photo", weights="w.safetensors", per_domain=8),
        item("bne", "photo", weights="v.safetensors"),
        item("bne-b", "photo", weights="w.safetensors"),
    ):
        assert finished([done], other) is None


@pytest.mark.parametrize(
    ("weights", "same"),
    [("a", True), (None, True), ("x", False)],  # None: not known
)
@pytest.mark.parametrize("images", ["b", "x"])
def test_other_weights_or_images_are_another_run(
    weights: str | None, same: bool, images: str
) -> None:
    plain = item("bne", "photo")
    wanted = dataclasses.replace(plain, materials={"weights": "a", "images": "b"})
    done = record(plain, 900, materials={"weights": weights, "images": images})
    assert (finished([done], wanted) is not None) == (same and images == "b")
    assert finished([done], plain) is not None


def test_a_table_of_the_latent_space_needs_an_analysis() -> None:
    wanted = dataclasses.replace(item("bne", "photo"), analysed=True)
    without = record(wanted, 900)
    having = record(wanted, 900, analysis={"target": {}})
    assert finished([without], wanted) is None
    assert finished([without, having], wanted) is having


@pytest.mark.parametrize("change", [{"exact_statistics": True}, {"averaging": Averaging("ema")}])
def test_measured_statistics_of_an_earlier_version_make_a_record_old(change) -> None:
    plain = item("bne", "photo")
    measured = dataclasses.replace(plain, recipe=dataclasses.replace(plain.recipe, **change))
    new = record(measured, 900)
    assert finished([new], measured) is new
    first = {k: v for k, v in measured.settings.items() if k != "statistics"}
    old = dataclasses.replace(new, settings=first)
    assert finished([old], measured) is None
    assert outdated([record(plain, 900), old, new], [plain, measured]) == [old]
