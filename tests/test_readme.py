"""The README; its code is run by tests/docs."""

import re

from tests.docs.pages import ROOT


def test_the_first_screen_names_both_commands() -> None:
    start = (ROOT / "README.md").read_text()[:1500]
    assert {"make demo", "make test"} <= set(re.findall(r"make \w+", start))
