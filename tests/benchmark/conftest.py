from pathlib import Path

import pytest

from bne.benchmark.execute import Job


@pytest.fixture
def job(data: Path, tmp_path: Path) -> Job:
    (tmp_path / "out").mkdir()
    return Job(data, tmp_path / "cache", tmp_path / "out", tmp_path / "records.jsonl")
