from pathlib import Path

import pytest

from bne.benchmark.execute import Job
from tests.benchmark.test_execute import write_pictures


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture
def job(data: Path, tmp_path: Path) -> Job:
    (tmp_path / "out").mkdir()
    return Job(data, tmp_path / "cache", tmp_path / "out", tmp_path / "records.jsonl")
