"""The page of watched images: when a domain not known began, how far off, and how it looks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from bne.data.images import Way, pixels
from bne.report.look import looks, picture
from bne.report.page import render
from bne.training.files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bne.report.look import Look

SIDE = 128  # pixels of a thumbnail


@dataclass(frozen=True)
class MonitorPage:
    """What the template shows."""

    title: str
    sentence: str  # what all windows tell
    windows: Sequence[Mapping[str, Any]]
    alarm: float
    mixed: bool  # whether windows may mix known domains
    size: int  # images of a window
    domains: Sequence[str]  # known ones
    held_out: int  # images that new ones are compared with
    examples: Mapping[str, Sequence[tuple[str, str]]]  # names and pictures, by what they are
    looks: Mapping[str, Look]


def write_page(
    file: Path,
    *,
    title: str,
    sentence: str,
    windows: Sequence[Mapping[str, Any]],
    alarm: float,
    mixed: bool,
    size: int,
    domains: Sequence[str],
    held_out: int,
    examples: Mapping[str, Sequence[tuple[str, Callable[[], bytes]]]],
    way: Way,
) -> None:
    """Writes the page of a watch.

    Args:
        file: to write.
        title: of the page.
        sentence: what all windows tell.
        windows: fields of `bne.deploy.monitor.Window`; times may be None.
        alarm: p-value below which a window alarms.
        mixed: whether windows may mix known domains.
        size: images of a full window.
        domains: known ones.
        held_out: images that new ones are compared with.
        examples: names of images, and functions that read their bytes, by what they are.
        way: how the model's images are prepared: their range and channels are shown.
    """
    shown = replace(way, size=SIDE, fit="letterbox")
    pictures = {
        kind: [(name, _thumbnail(name, read, shown)) for name, read in own]
        for kind, own in examples.items()
        if own
    }
    told = [{**own, **{k: _time(own[k]) for k in ("begin", "end")}} for own in windows]
    nearest = [own["nearest"] for own in windows]
    content = MonitorPage(
        title,
        sentence,
        told,
        alarm,
        mixed,
        size,
        domains,
        held_out,
        pictures,
        looks(nearest, nearest),
    )
    write_text(file, render("monitor", content))


def _thumbnail(name: str, read: Callable[[], bytes], way: Way) -> str:
    return picture(torch.from_numpy(pixels(read(), name, way).copy()), SIDE)


def _time(time: Any) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
