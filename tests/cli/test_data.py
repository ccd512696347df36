"""`bne data`: what check says of images, and what prepare leaves of them."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from bne.data.benchmarks import BENCHMARKS
from tests.cli.command import bne, refusal
from tests.data.small import names, write


def test_a_sound_copy_passes(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog", 3))
    output = bne("data", "check", tmp_path).out
    assert "12 images. All is well." in output
    row = next(line for line in output.splitlines() if "dog" in line)
    assert row.split()[1::2] == ["dog", "3", "3"]


def test_groups_by_a_pattern_and_single_images(tmp_path: Path) -> None:
    files = names("art photo", "cat dog", 4)
    write(tmp_path, *(name.replace(".png", "_1.png") for name in files), "art/cow/0_1.png")
    write(tmp_path, *names("photo", "cow", 2))
    rows = [path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*/*.png")]
    lines = [f"{r.replace('/', ',', 1)},{'crossval' if 'dog/0' in r else 'train'}" for r in rows]
    (tmp_path / "split.csv").write_text("\n".join(["domain,file,split", *lines]))
    assert "train, and none validates: art has one of cow" in bne("data", "check", tmp_path).out
    output = bne("data", "check", tmp_path, "--group", r"^(\d)", code=1).out
    assert "is on both sides of the split" in output
    assert "matches no file name" in refusal("data", "check", tmp_path, "--group", "patient")


def test_a_table_wider_than_the_terminal_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    domains = [f"location_{number}" for number in range(12)]
    write(tmp_path, *names(" ".join(domains), "cat dog", 1))
    said = bne("data", "check", tmp_path)
    lines = said.out.splitlines()
    assert lines[1].split()[1::2] == ["class", *sorted(domains)]
    assert next(line for line in lines if "dog" in line).split()[1::2] == ["dog", *["1"] * 12]
    assert said.err == ""  # no trace of a progress bar where there is no terminal


def test_many_domains_have_a_row_each(tmp_path: Path) -> None:
    domains = [f"camera{number:02}" for number in range(21)]
    write(tmp_path, *names(" ".join(domains), "cat dog", 1), "camera03/elk/0.png")
    lines = bne("data", "check", tmp_path, code=1).out.splitlines()
    found = [line.split()[1::2] for line in lines if line.startswith("│")]
    counts = [["3", "3"] if domain == "camera03" else ["2", "2"] for domain in domains]
    rows = [[domain, *count] for domain, count in zip(domains, counts, strict=True)]
    assert found == [*rows, ["all", "43", "3"]]


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_printed_and_the_exit_code_says_so(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat [red]dog", 1))
    (tmp_path / "art/[red]dog/0.png").write_bytes(b"")
    output = bne("data", "check", tmp_path, code=1).out
    assert "Wrong: art/[red]dog/0.png: the file is not a JPEG" in output
    assert "1 problem." in output
    Image.new("1", (10_000, 10_000)).save(tmp_path / "art/cat/big.png")
    output = bne("data", "check", tmp_path, code=1).out
    assert "Wrong: art/cat/big.png: more than 64 megapixels" in output
    assert "2 problems." in output


def test_one_class_is_nothing_to_learn(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat", 3))
    assert "Wrong: There is one class only, cat;" in bne("data", "check", tmp_path, code=1).out
    train = ("train", "--data", tmp_path, "--target", "photo", "--set", "weights=null")
    assert "Error: The data has one class only, cat;" in refusal(*train)


def test_identical_images_are_named_but_not_without_end(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog", 12))
    for number in range(12):
        shutil.copy(tmp_path / f"art/cat/{number}.png", tmp_path / f"art/cat/{number}b.png")
    lines = bne("data", "check", tmp_path).out.splitlines()
    start = lines.index("Identical images:")
    assert lines[start + 1] == "  art/cat/0.png and art/cat/0b.png"
    assert lines[start + 11] == "  2 more"
    assert lines[start + 12].startswith("Note: ")
    assert lines[start + 12].endswith(" 12 images.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder."),
        ([".", "--benchmark", "pcas"], "There is no benchmark 'pcas'; the nearest is 'pacs'"),
        (["."], ".: holds no images; expected domain/class/image below it."),
    ],
)
def test_errors_are_one_sentence_also_in_json(arguments: list[str], message: str) -> None:
    assert refusal("data", "check", *arguments).startswith(f"Error: {message}")
    report = bne("data", "check", *arguments, "--json", code=1).json
    assert report["ok"] is False
    (error,) = report["errors"]
    assert error.startswith(message)


@pytest.mark.parametrize(
    ("benchmark", "images"), [("pacs", 9991), ("office31", 4110), ("office_caltech", 2533)]
)
def test_the_paper_s_benchmarks_pass(shared: Path, benchmark: str, images: int) -> None:
    path = shared / "data" / benchmark
    report = bne("data", "check", path, "--benchmark", benchmark, "--json").json
    assert report["errors"] == []
    assert sum(sum(row.values()) for row in report["counts"].values()) == images


def test_files_that_are_passed_over_are_noted(tmp_path: Path) -> None:
    write(tmp_path, *names("art photo", "cat dog", 2), "art/cat/a.jfif", "art/cat/b.JPE")
    for name in ("art/cat/1.gif", "photo/cat/plain"):
        (tmp_path / name).write_bytes(b"")
    (note,) = bne("data", "check", tmp_path, "--json").json["notes"]
    assert "none 1, .gif 1" in note
    output = bne("data", "check", tmp_path).out
    assert f"Note: {note}\n" in output
    assert "10 images." in output


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_that_is_not_all_there(tmp_path: Path, name: str) -> None:
    """What is missing is said, and where the benchmark comes from."""
    declared = BENCHMARKS[name]
    message = refusal("data", "check", "nowhere", "--benchmark", name)
    assert "no such file or folder. " in message
    assert declared.origin in message
    assert declared.terms in message
    write(tmp_path, *names("art photo", "cat dog", 2))
    report = bne("data", "check", tmp_path, "--benchmark", name, "--json", code=1).json
    assert report["ok"] is False
    assert report["counts"]["dog"] == {"art": 2, "photo": 2}
    assert report["notes"] == [f"{declared.title}: {declared.origin} (terms: {declared.terms})."]
    if name == "pacs":
        assert "The domain sketch of PACS is missing." in report["errors"]
        output = bne("data", "check", tmp_path, "--benchmark", name, code=1).out
        assert "Wrong: The official split of PACS, split.csv, is missing; " in output
        assert "Errno" not in output
    assert declared.terms not in bne("data", "check", tmp_path).out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "set", *names("art photo", "cat dog", 2))


def test_says_where_the_images_are_and_how_large(data: Path, tmp_path: Path) -> None:
    said = bne("data", "prepare", data, "--cache", tmp_path / "other").out
    (store,) = (tmp_path / "other").glob("images-*")
    assert said == f"8 images of 256x256 pixels, 1.57 MB, are ready in {store}\n"


def test_the_cache_can_come_from_the_environment(data: Path, here: Path) -> None:
    report = bne("data", "prepare", data, "--size", 16, "--json").json
    assert Path(report.pop("folder")).parent == here / "cache"
    ways = {key: report.pop(key) for key in ("fit", "range", "channels", "notes")}
    assert ways == {"fit": "squash", "range": "full", "channels": 3, "notes": []}
    assert report == {"images": 8, "size": 16, "bytes": 8 * 16 * 16 * 3, "skipped": []}


def test_images_may_keep_their_aspect(data: Path) -> None:
    command = ("data", "prepare", data, "--size", 16)
    bne(*command)
    assert bne(*command, "--fit", "letterbox", "--json").json["fit"] == "letterbox"
    assert "--fit crop is unknown; give squash or letterbox" in refusal(*command, "--fit", "crop")


def test_bad_images_fail_or_are_skipped(data: Path) -> None:
    (data / "art/cat/0.png").write_bytes(b"")
    command = ("data", "prepare", data, "--size", 16)
    errors = bne(*command, code=1).err
    assert errors.startswith("Error: 1 of 8 images cannot be read")
    assert "art/cat/0.png" in errors
    assert "Traceback" not in errors
    said = bne(*command, "--skip-bad")
    assert said.err.startswith("Skipped: art/cat/0.png")
    assert said.out.startswith("7 images of 16x16")
