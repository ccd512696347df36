"""`bne monitor`: tell when images come from a domain that a model does not know."""

import heapq
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bne.cli import common, screen
from bne.cli.predict import UNREADABLE
from bne.cli.progress import Phase, progress
from bne.errors import SettingsError
from bne.words import listed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bne.deploy.manifest import Manifest
    from bne.deploy.monitor import Watch, Window
    from bne.deploy.pictures import Picture
    from bne.deploy.predict import Part

    Timed = tuple[Picture, datetime | None]

EPILOG = "Example: bne monitor model.bne photos --time exif --report drift.html"
EXAMPLES = 8
ALARMED = 4  # exit code


def monitor(
    model: common.Model,
    images: common.Pictures,
    window: Annotated[int, typer.Option(help="Test so many images together.")] = 64,
    alarm: Annotated[float, typer.Option(help="Alarm at p-values below this.")] = 0.01,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Windows may mix known domains without an alarm.")
    ] = False,
    time: Annotated[
        str | None,
        typer.Option(
            help="Order images by mtime, the file's time; exif; or a column of a .csv.",
            show_default="the order given",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="The page to write, drift.html for example.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a line per image and per window.")
    ] = False,
    fail: Annotated[
        bool, typer.Option("--fail", help="Exit with 4 if a window alarms, for a schedule.")
    ] = False,
    column: common.Column = "path",
    device: common.Device = "auto",
) -> None:
    """Tell when images come from a domain that the model does not know.

    Windows of images are compared with held-out images of every known domain. A window alarms if it
    is improbable in all of them.
    """
    from bne.deploy.monitor import Watch, summary
    from bne.deploy.pictures import NAMES, find_pictures
    from bne.deploy.predict import open_engine, predict
    from bne.deploy.times import sort_by_time

    if model.suffix.lower() == ".onnx":
        raise SettingsError(
            f"{model}: an exported model tells no points of images; name the model file."
        )
    if report:
        common.check_file(report, "--report")
    pictures = find_pictures(images, sys.stdin if NAMES in images else (), column)
    engine, known = open_engine(model, device)
    watch = Watch(known, window=window, alarm=alarm, mixed=mixed)
    if watch.left_out:
        typer.echo(
            f"Too few held-out images of {', '.join(watch.left_out)}: their windows may alarm.",
            err=True,
        )
    timed = sort_by_time(pictures, images, time) if time else [(one, None) for one in pictures]
    if not as_json:
        typer.echo(_line("images", "p-value", "times as far", "nearest", ""))
    found = Found([], [], [], 0)
    bar = not (as_json and sys.stdout.isatty())
    with progress(Phase("Watching", len(timed)), bar=bar) as advance:
        for part in predict(engine, known, [picture for picture, _ in timed]):
            _take(part, watch, found, timed, as_json=as_json)
            advance("Watching", len(part.names) + len(part.problems))
    _tell(watch.finish().tested, found, as_json=as_json)
    if not as_json:
        typer.echo(summary(watch.state, found.windows))
    if watch.state.alarms and time is None:
        typer.echo("Known images alarm, too, where their order sorts them by class.", err=True)
    if mixtures := sum(own.alarm and own.mixture >= alarm for own in found.windows):
        typer.echo(
            f"Of the windows that alarm, {mixtures} may mix known domains; if windows may, say "
            "--mixed.",
            err=True,
        )
    if report:
        _write(report, known, watch, found, [picture for picture, _ in timed])
        typer.echo(f"{report}: the page.", err=True)
    if fail and watch.state.alarms:
        raise typer.Exit(ALARMED)
    if found.unreadable:
        raise typer.Exit(UNREADABLE)


@dataclass
class Found:
    """What was found by now.

    Attributes:
        windows: all that were tested.
        order: the pictures' numbers, of those that could be read.
        least: p-values and numbers of the least usual ones, as a heap.
        unreadable: how many could not be read.
    """

    windows: "list[Window]"
    order: list[int]
    least: list[tuple[float, int]]
    unreadable: int


def _take(
    part: "Part", watch: "Watch", found: Found, timed: "Sequence[Timed]", *, as_json: bool
) -> None:
    for problem in part.problems:
        screen.say(f"Skipped: {problem}", err=True)
    start = len(found.order) + found.unreadable
    found.unreadable += len(part.problems)
    if part.answers is None:
        return
    # Those that can be read come in the order of the pictures.
    places = iter(range(start, len(timed)))
    numbers = [next(n for n in places if timed[n][0].name == name) for name in part.names]
    found.order += numbers
    chances, unusual = watch.p_values(part.answers), part.answers.unusual
    for row, number in enumerate(numbers):
        heapq.heappush(found.least, (-float(chances[row]), number))
        if len(found.least) > EXAMPLES:
            heapq.heappop(found.least)
        if as_json:
            told = {"file": part.names[row], "p_value": float(chances[row])}
            told |= {} if unusual is None else {"unusual": float(unusual[row])}
            screen.say(json.dumps(told, ensure_ascii=False))
    state = watch.take(part.answers, [timed[number][1] for number in numbers])
    _tell(state.tested, found, as_json=as_json)


def _tell(windows: "Sequence[Window]", found: Found, *, as_json: bool) -> None:
    found.windows += windows
    for own in windows:
        if as_json:
            screen.say(json.dumps({"window": asdict(own)}, ensure_ascii=False, default=str))
            continue
        place = f"{own.first + 1}–{own.first + own.images}"
        far = "–" if own.farther is None else f"{own.farther:.2f}"
        begin = f" {own.begin:%Y-%m-%d %H:%M}" if own.begin else ""
        alarm = "ALARM" if own.alarm else ""
        screen.say(_line(place, f"{own.p_value:.2g}", far, own.nearest, alarm + begin))


def _line(images: str, p_value: str, far: str, nearest: str, rest: str) -> str:
    return f"{images:>15}  {p_value:>8}  {far:>12}  {nearest:<16}  {rest}".rstrip()


def _write(
    report: Path, known: "Manifest", watch: "Watch", found: Found, pictures: "Sequence[Picture]"
) -> None:
    from bne.deploy.monitor import summary
    from bne.report.monitor_page import write_page

    began = next((own for own in found.windows if own.alarm), None)
    examples = {}
    if began:
        own = found.order[began.first : began.first + began.images]
        examples["Where it began"] = own[:: max(1, len(own) // EXAMPLES)][:EXAMPLES]
    examples["The least usual images"] = [number for _, number in sorted(found.least, reverse=True)]
    write_page(
        report,
        title=f"New images beside {listed(watch.domains)}",
        sentence=summary(watch.state, found.windows),
        windows=[asdict(own) for own in found.windows],
        alarm=watch.alarm,
        mixed=watch.mixed,
        size=watch.window,
        domains=watch.domains,
        held_out=known.calibration.images,
        examples={
            kind: [(pictures[n].name, pictures[n].read) for n in numbers]
            for kind, numbers in examples.items()
        },
        way=known.way,
    )
