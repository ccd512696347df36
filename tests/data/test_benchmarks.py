import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from bne.data.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from bne.errors import SettingsError


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_declarations_agree_with_themselves(benchmark: Benchmark) -> None:
    assert list(benchmark.domains) == sorted(set(benchmark.domains))
    assert list(benchmark.classes) == sorted(set(benchmark.classes))
    assert len(benchmark.classes) in (0, benchmark.class_count)
    assert set(benchmark.counts) in (set(), set(benchmark.domains))
    for domain, by_class in benchmark.class_counts.items():
        assert len(by_class) == len(benchmark.classes)
        assert sum(by_class) == benchmark.counts[domain]
        assert min(by_class) > 0  # or training on it would need --allow-gaps
    for target in benchmark.targets:
        assert set(target) < set(benchmark.domains)


def test_the_documented_table_says_what_is_declared() -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    section = page.partition("## Benchmarks")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:3] == "| `"]
    assert rows[1:] == [
        [
            f"`{benchmark.name}`",
            f"{sum(benchmark.counts.values()):,}" if benchmark.counts else "varies",
            re.sub(r"(http[^ ,]+)", r"<\1>", benchmark.origin),
            benchmark.terms,
        ]
        for benchmark in BENCHMARKS.values()
    ]


@pytest.mark.parametrize(
    ("name", "images", "classes"),
    [  # the totals that Gulrajani and Lopez-Paz give, In Search of Lost Domain Generalization
        ("vlcs", 10729, 5),
        ("pacs", 9991, 7),
        ("office_home", 15588, 65),
        ("domain_net", 586575, 345),
    ],
)
def test_counts_add_up_to_the_published_totals(name: str, images: int, classes: int) -> None:
    benchmark = find_benchmark(name)
    assert sum(benchmark.counts.values()) == images
    assert benchmark.class_count == classes


@pytest.mark.parametrize(
    ("name", "counts"),
    [  # as Li et al., Saenko et al. and Gong et al. give them
        ("pacs", {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}),
        ("office31", {"amazon": 2817, "dslr": 498, "webcam": 795}),
        ("office_caltech", {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}),
    ],
)
def test_classes_add_up_to_the_published_domains(name: str, counts: dict[str, int]) -> None:
    assert find_benchmark(name).counts == counts


def test_classes_of_pacs_are_as_large_as_its_own_table_says(shared: Path) -> None:
    pacs = find_benchmark("pacs")
    with (shared / "data/pacs/split.csv").open() as file:
        found = Counter((row["domain"], row["file"].split("/")[0]) for row in csv.DictReader(file))
    for domain, by_class in pacs.class_counts.items():
        assert [found[domain, name] for name in pacs.classes] == list(by_class)


@pytest.mark.parametrize("name", ["pacs", "office31", "office_caltech"])
def test_targets_are_those_of_the_papers_tables(shared: Path, name: str) -> None:
    with (shared / "paper/reference.csv").open() as file:
        theirs = {row["target"] for row in csv.DictReader(file) if row["dataset"] == name}
    theirs = {target for target in theirs if not target.startswith(("average", "gain"))}
    assert {"+".join(target) for target in find_benchmark(name).targets} == theirs


def test_an_unknown_benchmark_gets_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"no benchmark 'pcas'; .* 'pacs'"):
        find_benchmark("pcas")
