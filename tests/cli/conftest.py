import pytest


@pytest.fixture(autouse=True)
def _here(here: None) -> None:
    """Commands write into a folder of the test's own."""
