"""The runs of `bne benchmark --keep-models` that other scripts look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def runs_of(folder: Path, *methods: str) -> Iterator[Path]:
    """Folders of runs with a model of some methods; of any, if none is named.

    Models that have learned their shares are left out: lines of results name the method alone.

    Raises:
        SystemExit: There is none.
    """
    found = False
    for file in sorted(folder.rglob("model/model.json")):
        about = json.loads(file.read_text(encoding="utf-8"))
        known = not methods or about["method"] in methods
        if known and not about["options"].get("learn_lean"):
            found = True
            yield file.parent.parent
    if not found:
        raise SystemExit(
            f"{folder} has no such kept models; bne benchmark --keep-models makes them, but not "
            "of runs that are in its --records already: name another file there."
        )
