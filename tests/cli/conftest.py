from pathlib import Path

import pytest

from tests.benchmark.test_execute import write_pictures


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BNE_DEBUG", raising=False)
    return tmp_path
