import pytest

from tests.report.browsing import CHROMIUM, need_chromium


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    need_chromium()
    with sync_api.sync_playwright() as playwright:
        options = {"executable_path": str(CHROMIUM), "args": ["--no-sandbox"]}
        with playwright.chromium.launch(**options) as running:
            yield running
