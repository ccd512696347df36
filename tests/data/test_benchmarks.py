import csv
from pathlib import Path

import pytest

from bne.data.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from bne.data.images import DataError


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=BENCHMARKS)
def test_declarations_agree_with_themselves(benchmark: Benchmark) -> None:
    assert list(benchmark.domains) == sorted(set(benchmark.domains))
    assert list(benchmark.classes) == sorted(set(benchmark.classes))
    assert len(benchmark.classes) in (0, benchmark.class_count)
    assert set(benchmark.counts) in (set(), set(benchmark.domains))
    for target in benchmark.targets:
        assert set(target) < set(benchmark.domains)
        assert benchmark.sources(target)
        assert {*benchmark.sources(target), *target} == set(benchmark.domains)


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


@pytest.mark.parametrize("name", ["pacs", "office31", "office_caltech"])
def test_targets_are_those_of_the_papers_tables(shared: Path, name: str) -> None:
    with (shared / "paper/reference.csv").open() as file:
        theirs = {row["target"] for row in csv.DictReader(file) if row["dataset"] == name}
    theirs = {target for target in theirs if not target.startswith(("average", "gain"))}
    assert {"+".join(target) for target in find_benchmark(name).targets} == theirs


def test_an_unknown_benchmark_lists_the_known() -> None:
    with pytest.raises(DataError, match="no benchmark 'pcas'; choose from pacs, office31"):
        find_benchmark("pcas")
