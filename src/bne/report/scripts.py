"""Scripts that a page holds."""

from __future__ import annotations

from importlib import resources


def plotly() -> str | None:
    """The library that draws charts; None if it, which is optional, is not installed."""
    try:
        from plotly.offline.offline import get_plotlyjs
    except ModuleNotFoundError:
        return None
    return str(get_plotlyjs())


def own(name: str) -> str:
    """A script of ours."""
    return (resources.files("bne.report") / f"{name}.js").read_text()
